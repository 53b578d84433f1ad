import { expect, it } from 'vitest'

import { createUrlSigner } from '#shared/storage/signed-url.ts'

const signer = createUrlSigner('a secret')
const NOW = 1_700_000_000_000
const queryOf = (url: string) => Object.fromEntries(new URL(url, 'http://host').searchParams)

it('accepts the path that it signed until its time is over', () => {
  const query = queryOf(signer.sign('/v1/media/a.png', NOW + 3_600_000))
  expect(signer.verify('/v1/media/a.png', query, NOW)).toBe(true)
  expect(signer.verify('/v1/media/a.png', query, NOW + 3_600_001)).toBe(false)
})

it.each([
  ['another path', '/v1/media/b.png', {}],
  ['a later expiry', '/v1/media/a.png', { expires: '1900000000' }],
  ['no signature', '/v1/media/a.png', { signature: '' }],
  ['another signature', '/v1/media/a.png', { signature: 'AAAA' }],
  ['an expiry that is not a number', '/v1/media/a.png', { expires: 'NaN' }],
])('refuses %s', (_case, path, change) => {
  const query = queryOf(signer.sign('/v1/media/a.png', NOW + 1000))
  expect(signer.verify(path, { ...query, ...change }, NOW)).toBe(false)
})

it('refuses a signature of another secret', () => {
  const query = queryOf(createUrlSigner('other').sign('/a', NOW + 1000))
  expect(signer.verify('/a', query, NOW)).toBe(false)
})
