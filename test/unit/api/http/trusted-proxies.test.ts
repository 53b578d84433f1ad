import { expect, it } from 'vitest'

import { buildApp } from '#api/server/app.ts'
import { EnvReader } from '#shared/config/env-reader.ts'
import { readServerConfig } from '#shared/config/server.ts'
import { createLogger } from '#shared/logger.ts'

const FORWARDED = {
  'x-forwarded-for': '203.0.113.9',
  'x-forwarded-host': 'evil.test',
  'x-forwarded-proto': 'https',
}
const ITSELF = { ip: '192.0.2.1', host: 'localhost:80', protocol: 'http' }

it.each([
  ['believed from nobody by default', '', ITSELF],
  ['not believed from others than the named proxies', '192.0.2.2', ITSELF],
  [
    'believed from a named proxy',
    '192.0.2.0/24',
    { ip: '203.0.113.9', host: 'evil.test', protocol: 'https' },
  ],
])('forwarded headers are %s', async (_title, proxies, seen) => {
  const server = readServerConfig(new EnvReader({ MILLRACE_TRUSTED_PROXIES: proxies }))
  const app = await buildApp({
    server,
    version: 'test',
    publicUrl: 'http://localhost',
    log: createLogger({ level: 'silent' }),
    health: { dependencies: { states: async () => [] }, isDraining: () => false },
    surfaces: [
      {
        prefixes: ['/'],
        plugin: async (scope) => {
          scope.get('/seen', async ({ ip, host, protocol }) => ({ ip, host, protocol }))
        },
      },
    ],
  })
  const answer = await app.inject({ url: '/seen', headers: FORWARDED, remoteAddress: '192.0.2.1' })
  expect(answer.json()).toEqual(seen)
  await app.close()
})
