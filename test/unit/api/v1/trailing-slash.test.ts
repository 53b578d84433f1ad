import { expect, it } from 'vitest'

import { withoutTrailingSlash } from '#api/http/url-path.ts'

it.each([
  ['/v1/models/', '/v1/models'],
  ['/v1/files/?limit=1&after=a/', '/v1/files?limit=1&after=a/'],
  ['//v1//chat/completions//', '//v1//chat/completions'],
])('%s means %s', (url, meant) => {
  expect(withoutTrailingSlash(url)).toBe(meant)
})

it.each(['/v1/models', '/v1/', '/v1//', '/', '/v1/models?a=/', '/signup/', '/v10/a/', '*', ''])(
  '%s stays as it is',
  (url) => {
    expect(withoutTrailingSlash(url)).toBe(url)
  },
)

it('takes no longer for thousands of slashes', () => {
  const slashes = '/'.repeat(60_000)
  expect(withoutTrailingSlash(`/v1/a${slashes}b`)).toBe(`/v1/a${slashes}b`)
  expect(withoutTrailingSlash(`/v1/a${slashes}`)).toBe('/v1/a')
})
