import { fastify } from 'fastify'
import { expect, it } from 'vitest'

import { publicPathOf } from '#api/http/public-path.ts'

const PROXY = '192.0.2.1'

interface Seen {
  readonly publicUrl: string
  readonly headers?: Readonly<Record<string, string>>
  readonly from?: string
}

async function pathSeenBy({ publicUrl, headers = {}, from = PROXY }: Seen): Promise<string> {
  const app = fastify({ trustProxy: PROXY })
  app.get('/seen', async (request) => ({ path: publicPathOf(request, publicUrl) }))
  const answer = await app.inject({ url: '/seen', headers, remoteAddress: from })
  await app.close()
  return answer.json().path
}

it('is the path of the public address for clients that used its host', async () => {
  const at = (publicUrl: string, host: string, proto = 'https') =>
    pathSeenBy({ publicUrl, headers: { host, 'x-forwarded-proto': proto } })
  expect(await at('https://example.test/millrace', 'example.test')).toBe('/millrace')
  expect(await at('https://Example.test:443/a/b/', 'example.test:443')).toBe('/a/b')
  expect(await at('http://example.test:8081/a', 'example.test:8081', 'http')).toBe('/a')
  expect(await at('https://example.test/millrace/auth/v1', 'example.test')).toBe('/millrace')
  for (const publicUrl of ['https://example.test', 'https://example.test/auth/v1']) {
    expect(await at(publicUrl, 'example.test')).toBe('')
  }
})

it('is no path for clients that used another host', async () => {
  for (const host of ['api.internal:8081', 'example.test:8081', 'not a host']) {
    expect(await pathSeenBy({ publicUrl: 'https://example.test/a', headers: { host } })).toBe('')
  }
})

it('is the one that a trusted proxy states, unless it is not a plain path', async () => {
  const stated = (prefix: string, from = PROXY) =>
    pathSeenBy({
      publicUrl: 'https://example.test/configured',
      headers: {
        host: 'example.test',
        'x-forwarded-proto': 'https',
        'x-forwarded-for': '203.0.113.9',
        'x-forwarded-prefix': prefix,
      },
      from,
    })
  expect(await stated('/millrace/')).toBe('/millrace')
  expect(await stated('/')).toBe('')
  for (const prefix of ['//evil.test', '/a?b', '/a#b', 'evil.test', '/a, /b', '/a\\b', '@evil']) {
    expect(await stated(prefix)).toBe('/configured')
  }
  expect(await stated('/millrace', '198.51.100.7')).toBe('/configured')
})
