import { expect, it } from 'vitest'

import { routedUrl } from '#api/http/request.ts'

it.each([
  ['/v1/models/', '/v1/models'],
  ['/v1/files/?limit=1&after=a/', '/v1/files?limit=1&after=a/'],
  ['//v1//chat/completions//', '/v1/chat/completions'],
  ['/auth//v1//signup?a=//', '/auth/v1/signup?a=//'],
  ['//signup//', '/signup/'],
  ['/v1//engines//x//', '/v1/engines//x'],
  ['//', '/'],
  ['/v1//', '/v1/'],
])('%s means %s', (url, meant) => {
  expect(routedUrl(url)).toBe(meant)
})

it.each([
  '/v1/models',
  '/v1/',
  '/',
  '/v1/models?a=/',
  '/signup/',
  '/v10/a/',
  '/factors//verify',
  '*',
  '',
])('%s stays as it is', (url) => {
  expect(routedUrl(url)).toBe(url)
})

it('needs no more time for thousands of slashes', () => {
  const slashes = '/'.repeat(60_000)
  expect(routedUrl(`/v1/a${slashes}b`)).toBe(`/v1/a${slashes}b`)
  expect(routedUrl(`/v1/a${slashes}`)).toBe('/v1/a')
})
