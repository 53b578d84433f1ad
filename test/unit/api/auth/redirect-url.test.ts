import { describe, expect, it } from 'vitest'

import {
  chooseRedirect,
  isRedirectAllowed,
  withFragment,
  withQuery,
} from '#api/auth/redirects/redirect-url.ts'

const RULES = {
  siteUrl: 'https://app.example.com/home',
  uriAllowList: [
    'https://*.preview.example.org',
    'https://docs.example.org/*',
    'https://deep.example.org/**',
    'http://localhost:8000/*',
    'com.example.app.*://**',
    'https://{red,blue}.example.net/[a-c]?x',
    'http://10.0.0.7/cb',
    'https://glued.example.io**',
    'http*://both.example.io/**',
    '{http,https}://named.example.io/**',
    'http://ports.example.io:*/**',
    'https://class.example.io:300[0-9]/**',
    'http://\\[::1\\]:8000/**',
    'https://**.any.example.io/**',
    'https://*.*.two.example.io/**',
    'https://App?.Example.Biz/**',
    'https://paths.example.org/mine/**',
    'https://start.example.*',
  ],
}

describe('isRedirectAllowed', () => {
  const check = (target: string, expected: boolean): void =>
    it(`${expected ? 'permits' : 'refuses'} ${JSON.stringify(target.slice(0, 80))}`, () => {
      expect(isRedirectAllowed(target, RULES)).toBe(expected)
    })

  describe('on the host of the site', () => {
    check('https://app.example.com', true)
    check('https://app.example.com/any/where?x=1#y', true)
    check('https://app.example.com:443/dev', true)
    check('http://app.example.com/dev', false)
    check('http://app.example.com:443/dev', false)
    check('https://app.example.com:8443/dev', false)
    check('http://app.example.com:8080/dev', false)
    check('HTTPS://APP.EXAMPLE.COM/upper', true)
    check('https://example.com/', false)
    check('https://other.app.example.com/', false)
    check('https://app.example.com.evil.test/', false)
    check('https://xapp.example.com/', false)
    check('ftp://app.example.com/', false)
  })

  describe('by the allow list', () => {
    check('https://one.preview.example.org', true)
    check('https://one.two.preview.example.org', false)
    check('https://evil.test/.preview.example.org', false)
    check('https://evil.test#.preview.example.org', false)
    check('https://evil.test?.preview.example.org', false)
    check('https://docs.example.org/page', true)
    check('https://docs.example.org/page?x=1', true)
    check('https://docs.example.org/page/sub', false)
    check('https://docs.example.org', false)
    check('https://docs.example.org/page.html', false)
    check('https://deep.example.org/a/b/c.html', true)
    check('http://localhost:8000/path', true)
    check('http://localhost:8001/path', false)
    check('com.example.app.staging://callback/deep', true)
    check('com.example.other://callback', false)
    check('https://red.example.net/b1x', true)
    check('https://green.example.net/b1x', false)
    check('https://red.example.net/d1x', false)
    check('http://10.0.0.7/cb', true)
    check('http://10.0.0.8/cb', false)
    check('http://deep.example.org/a', false)
    check('https://deep.example.org:8443/a', false)
    check('https://glued.example.io/a', true)
    check('https://glued.example.io:8443/a', false)
    check('https://both.example.io/a', false)
    check('http://both.example.io/a', false)
    check('https://glued.example.io.evil.test/a', false)
    check('https://glued.example.iox', false)
    check('https://glued.example.io?a=b', true)
    check('https://a.b.any.example.io/c', true)
    check('https://evil.test/.any.example.io/c', false)
    check('https://evil.test?.any.example.io/c', false)
    check('https://evil.test:443/.any.example.io/c', false)
    check('https://a.b.two.example.io/c', true)
    check('https://evil.test?.two.example.io/c', false)
    check('https://evil.test/c?d=.two.example.io/c', false)
    check('https://deep.example.org/a/../b', false)
    check('https://paths.example.org/mine/.well-known/x', true)
    check('https://paths.example.org/mine/../other', false)
    check('https://paths.example.org/mine/%2E./other', false)
    check('https://paths.example.org/mine/..?a=b', false)
    check('https://paths.example.org/mine/a?b=/../c', true)
    check('https://App1.Example.Biz/a', true)
    check('https://start.example.org', true)
    check('https://start.example.org.evil.test', false)
    check('http://named.example.io/a', true)
    check('https://named.example.io/a', true)
    check('https://named.example.io:444/a', false)
    check('http://ports.example.io:8123/a', true)
    check('https://ports.example.io:8123/a', false)
    check('https://class.example.io:3007/a', true)
    check('https://class.example.io:4007/a', false)
    check('http://[::1]:8000/a', true)
    check('http://[::1]:8001/a', false)
  })

  describe('with any list', () => {
    check('', false)
    check('/relative', false)
    check('//evil.test', false)
    check('https:evil.test', false)
    check('https:/evil.test', false)
    check('https:///evil.test', false)
    check('https://app.example.com@evil.test/', false)
    check('https://app.example.com:pw@evil.test/', false)
    check('https://evil.test\\@app.example.com/', false)
    check('https://app.example.com\\.evil.test/', false)
    check('https://evil.test\\.preview.example.org', false)
    check('https://evil.test\t.preview.example.org', false)
    check('https://app.example.com/\r\nSet-Cookie: a=b', false)
    check('https://app.example.com/\u0000', false)
    check('java\nscript://app.example.com/%0aalert(1)', false)
    check('javascript://app.example.com/%0aalert(1)', false)
    check('data://app.example.com/text', false)
    check('https://evil%2etest%2f.preview.example.org', false)
    check('https://evil。test/', false)
    check('https://2130706433/', false)
    check(`https://app.example.com/${'a'.repeat(3000)}`, false)
  })
})

describe('a site on a loopback address', () => {
  const rules = { siteUrl: 'http://localhost:3000', uriAllowList: [] }
  it.each([
    ['http://localhost:3000/a', true],
    ['http://localhost:9999/a', true],
    ['https://localhost:3000/a', false],
    ['http://127.0.0.1:3000/a', false],
  ])('permits %s: %s', (target, expected) => {
    expect(isRedirectAllowed(target, rules)).toBe(expected)
  })
})

describe('chooseRedirect', () => {
  it('chooses the first permitted candidate, else the site', () => {
    const good = 'https://app.example.com/a'
    expect(chooseRedirect([undefined, 'https://evil.test', good], RULES)).toBe(good)
    expect(chooseRedirect(['https://evil.test'], RULES)).toBe(RULES.siteUrl)
  })
})

describe('parameters of a redirect', () => {
  it('go behind the hash in alphabetical order, replacing an older fragment', () => {
    expect(withFragment('https://a.test/x?y=1#old', { b: '2', a: '1 1' })).toBe(
      'https://a.test/x?y=1#a=1+1&b=2',
    )
  })

  it('go into the query before the fragment, replacing their namesakes', () => {
    expect(withQuery('https://a.test/x?code=old&y=1#z', { code: 'new' })).toBe(
      'https://a.test/x?code=new&y=1#z',
    )
    expect(withQuery('com.example.app://callback', { code: 'c' })).toBe(
      'com.example.app://callback?code=c',
    )
  })
})
