import fc from 'fast-check'
import { describe, expect, it } from 'vitest'

import { matchesGlob } from '#api/auth/redirects/glob.ts'
import { isRedirectAllowed } from '#api/auth/redirects/redirect-url.ts'
import { createAccessTokens } from '#api/auth/sessions/access-token.ts'
import { parseEmail, parsePhone } from '#api/auth/users/contact.ts'
import { systemClock } from '#shared/clock.ts'
import { readJwtConfig } from '#shared/config/auth-jwt.ts'
import { EnvReader } from '#shared/config/env-reader.ts'
import { createUrlSigner } from '#shared/storage/signed-url.ts'

import { holds, orRefusal, RUNS } from './properties.ts'
import { hostileText, hostileValue, toJson } from './values.ts'

describe('access tokens', () => {
  it('are ours unaltered, or refused', async () => {
    const env = new EnvReader({ AUTH_JWT_SECRET: 'a secret of the tests that is long enough' })
    const accessTokens = await createAccessTokens(readJwtConfig(env), systemClock)
    const described = accessTokens.describe(
      { id: '6f1b3ad5-5d4f-4c0e-9f7c-0d3f3c0c4f10', role: 'authenticated' } as never,
      { id: '7f1b3ad5-5d4f-4c0e-9f7c-0d3f3c0c4f11', aal: 'aal1', amr: [] } as never,
    )
    const good = await accessTokens.sign(described)
    const claims = await accessTokens.verify(good)
    const [head = '', body = '', signature = ''] = good.split('.')
    const part = (value: unknown) => Buffer.from(toJson(value)).toString('base64url')
    const algorithms = fc.constantFrom(
      'none',
      'None',
      '',
      'HS256',
      'HS512',
      'RS256',
      'ES256',
      'EdDSA',
      'PS256',
      null,
      1,
    )
    const header = fc
      .record({ alg: algorithms }, { requiredKeys: [] })
      .chain((made) =>
        fc
          .dictionary(fc.constantFrom('kid', 'jku', 'jwk', 'crit', 'b64', 'x5u'), hostileValue)
          .map((more) => ({ ...more, ...made })),
      )
    const forged = fc.oneof(
      hostileText,
      fc.tuple(fc.nat(), fc.nat(255)).map(([at, byte]) => {
        const bytes = Buffer.from(good)
        bytes[at % bytes.length] = byte
        return bytes.toString('latin1')
      }),
      header.map((made) => `${part(made)}.${body}.${signature}`),
      header.map((made) => `${part(made)}.${body}.`),
      hostileValue.map((made) => `${head}.${part(made)}.${signature}`),
      fc.nat(good.length).map((at) => good.slice(0, at)),
      fc.constantFrom(
        `${good}.`,
        `.${good}`,
        `${good}.${good}`,
        `${head}..${signature}`,
        '..',
        '...',
      ),
      fc.constant(`${'a'.repeat(100_000)}.${'b'.repeat(100_000)}.c`),
      fc.constant('.'.repeat(100_000)),
    )
    await holds(forged, async (text) => {
      const accepted = await orRefusal(() => accessTokens.verify(text))
      // The last character of a signature has bits that mean nothing.
      if (accepted !== undefined)
        expect([text.slice(0, -1), accepted]).toEqual([good.slice(0, -1), claims])
    })
  })
})

describe('signed addresses', () => {
  it('prove exactly the signed address', async () => {
    const signer = createUrlSigner('a secret')
    const nowMs = 1_700_000_000_000
    const path = '/v1/media/a/b.png'
    const [, query = ''] = signer.sign(path, nowMs + 60_000).split('?')
    const { expires = '', signature = '' } = Object.fromEntries(new URLSearchParams(query))
    const changes = fc.record({
      path: fc.oneof(
        fc.constant(path),
        hostileText,
        hostileText.map((text) => path + text),
      ),
      expires: fc.oneof(fc.constant(expires), hostileText, fc.nat().map(String)),
      signature: fc.oneof(fc.constant(signature), hostileText, fc.base64String()),
    })
    await holds(changes, (made) => {
      const isSame = made.path === path && made.expires === expires
      const given = Buffer.from(made.signature, 'base64url')
      const isProof = isSame && given.equals(Buffer.from(signature, 'base64url'))
      expect(signer.verify(made.path, made, nowMs)).toBe(isProof)
    })
  })
})

describe('contacts', () => {
  it('are addresses and numbers that can be written to, or refused', async () => {
    await holds(fc.oneof(hostileText, fc.emailAddress()), async (text) => {
      const email = await orRefusal(() => parseEmail(text))
      if (email !== undefined) expect(email).toMatch(/^[^\s@<>,;:"()[\]\\\p{Cc}]+@[a-z0-9.-]+$/u)
    })
    await holds(fc.oneof(hostileText, fc.stringMatching(/^\+?[0-9 ]{0,20}$/)), async (text) => {
      const phone = await orRefusal(() => parsePhone(text))
      if (phone !== undefined) expect(phone).toMatch(/^[1-9][0-9]{1,14}$/)
    })
  })
})

// Few characters, so that globs and texts often meet.
const LETTERS = ['a', 'b', '.', '/', '-'] as const

describe('redirect globs', () => {
  it('match the same addresses as another implementation', async () => {
    const element = fc.constantFrom(...LETTERS, '*', '**', '?', '[ab]', '[!a]', '\\*', '{a,b.}')
    const globs = fc.array(element, { maxLength: 8 }).map((parts) => parts.join(''))
    const texts = fc.string({ unit: fc.constantFrom(...LETTERS, '*', 'c'), maxLength: 10 })
    await holds(
      fc.tuple(globs, texts),
      ([glob, text]) =>
        expect([glob, text, matchesGlob(glob, text)]).toEqual([glob, text, meant(glob).test(text)]),
      RUNS * 5,
    )
  })

  it('need no more time when there are more ways to match', async () => {
    const unit = fc.constantFrom('*a', '**a', '*', '{a,aa}', '?', '[a-z]*', '{*,**}', '\\')
    const globs = fc.tuple(unit, fc.nat(40)).map(([text, count]) => `${text.repeat(count)}b`)
    await holds(
      fc.tuple(globs, fc.nat(2000)),
      ([glob, length]) => {
        matchesGlob(glob, 'a'.repeat(length))
      },
      Math.ceil(RUNS / 10),
    )
  })

  it('never lead to a host that is not allowed', async () => {
    const rules = {
      siteUrl: 'https://app.example.com/home',
      uriAllowList: [
        'https://*.example.net/cb',
        'https://preview-*.example.org/**',
        'http://localhost:*/**',
        'myapp://callback',
      ],
    }
    await holds(
      fc.oneof(targets, hostileText),
      (target) => {
        if (!isRedirectAllowed(target, rules)) return
        const url = new URL(target)
        expect([url.username, url.password]).toEqual(['', ''])
        expect([target, isMeant(url, target)]).toEqual([target, true])
      },
      RUNS * 5,
    )
  })
})

function meant(glob: string): RegExp {
  const pattern = glob.replaceAll(
    /\\.|\*\*|\*|\?|\[!a\]|\[ab\]|\{a,b\.\}|[./-]/g,
    (token) => MEANINGS[token] ?? `\\${token.at(-1)}`,
  )
  return new RegExp(`^(?:${pattern})$`)
}

const MEANINGS: Readonly<Record<string, string>> = {
  '*': '[^./]*',
  '**': '.*',
  '?': '[^./]',
  '[ab]': '[ab]',
  '[!a]': '[^a./]',
  '{a,b.}': '(?:a|b\\.)',
}

function isMeant({ protocol, hostname, port, pathname }: URL, target: string): boolean {
  if (hostname === 'app.example.com') return protocol === 'https:' || protocol === 'http:'
  if (protocol === 'myapp:') return hostname === 'callback' && pathname === ''
  // A URL drops the port of its scheme, and an empty one.
  const isPortGiven = port !== '' || /localhost:/i.test(target)
  if (protocol === 'http:') return hostname === 'localhost' && isPortGiven
  if (protocol !== 'https:' || port !== '') return false
  if (/^[^./]+\.example\.net$/.test(hostname)) return pathname === '/cb'
  return /^preview-[^./]*\.example\.org$/.test(hostname)
}

const SCHEMES = ['https:', 'http:', 'myapp:', 'javascript:', 'data:', 'HTTPS:', '', 'ftp:', 'https']
const SLASHES = ['//', '/', '\\\\', '/\\', '', '///', '//\t/', '%2f%2f']
const USERS = ['', 'app.example.com@', 'a:b@', '%40', 'app.example.com%40', '@', 'x.example.net\\@']
const HOSTS = [
  ...['app.example.com', 'evil.example', 'x.example.net', 'preview-1.example.org', 'callback'],
  ...['app.example.com.evil.example', 'evil.example%2fexample.net', 'evil.example/.example.net'],
  ...['evil.example#.example.net', 'evil.example?.example.net', 'a.b.example.net', 'evil。example'],
  ...['preview-evil.example/x.example.org', 'preview-evil.example%00.example.org', '127.0.0.1'],
  ...[
    'APP.EXAMPLE.COM',
    'app.example.com.',
    'xn--app-example',
    '0x7f.1',
    '[::1]',
    'localhost',
    '2130706433',
  ],
  ...[
    'preview-.example.org',
    'preview-a\\.example.org',
    'preview-@evil.example',
    'ａpp.example.com',
  ],
]
const PORTS = ['', ':443', ':80', ':99999', ':a', ':', ':8080', ':1@evil.example', ':*']
const PATHS = [
  '',
  '/',
  '/cb',
  '/cb/../x',
  '/cb#a',
  '/cb?a=//evil.example',
  '/%2e%2e/x',
  '//evil.example',
  '\\evil',
  '/cb\n',
]

const targets = fc
  .tuple(...[SCHEMES, SLASHES, USERS, HOSTS, PORTS, PATHS].map((list) => fc.constantFrom(...list)))
  .map((parts) => parts.join(''))
