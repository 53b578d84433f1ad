import { expect } from 'vitest'

import { authPlugin, UNKNOWN_PATHS } from '#api/auth/plugin.ts'
import { buildApp } from '#api/server/app.ts'
import { createLogger } from '#shared/logger.ts'
import { serverConfig } from '#test/support/server-config.ts'
import { it } from '#test/support/services.ts'

import { startServer } from './support/server.ts'

it('refuses unknown paths and methods of the user server in its form, before bodies are read', async () => {
  const server = await startServer()
  const app = await buildApp({
    server: serverConfig(),
    version: 'test',
    publicUrl: 'http://localhost',
    log: createLogger({ level: 'silent' }),
    health: { dependencies: { states: async () => [] }, isDraining: () => false },
    surfaces: [
      {
        prefixes: ['/', '/auth/v1'],
        plugin: authPlugin(server.services),
        unknownBelow: UNKNOWN_PATHS,
      },
    ],
  })
  const ask = async (url: string, headers = {}) => {
    const answer = await app.inject({ url, headers })
    expect([url, answer.statusCode]).toEqual([url, 404])
    return answer
  }
  const known = ['/admin/sso', '/user/nothing', '/factors/a/b/c', '/token/x?y=1', '//verify/x']
  const newer = ['/oauth/nothing', '/.well-known/openid-configuration']
  for (const path of [...known, ...newer]) {
    const answer = await ask(path)
    expect(answer.json()).toEqual({
      code: 404,
      error_code: 'not_found',
      msg: 'This path is not served',
    })
    const textual = await ask(path, { 'x-supabase-api-version': '2024-01-01' })
    expect(textual.json()).toEqual({ code: 'not_found', message: 'This path is not served' })
  }
  for (const path of ['/chat/completions', '/administration', '/users', '/user%2Fx?a=/user/']) {
    expect((await ask(path)).json().error).toMatchObject({ code: 'unknown_url', param: null })
  }
  for (const path of ['/pooling', '/v2/chat']) {
    expect((await ask(path)).json().error.message).toMatch(/ use \/v1\/(embeddings|chat\/comp)/)
  }
  const refused = [
    ['DELETE', '/token', 'POST'],
    ['PATCH', '/auth/v1/token/', 'POST'],
    ['POST', '/%74oken/', undefined],
    ['QUERY', '/admin/users/x', 'POST, GET, PUT, DELETE'],
    // A parameter of another path would match these.
    ['DELETE', '/user/identities/authorize', 'GET'],
    ['DELETE', '/auth/v1/user/identities/', 'GET'],
  ] as const
  for (const [method, url, allow] of refused) {
    const headers = { 'content-type': 'application/json' }
    const answer = await app.inject({ method: method as 'GET', url, headers, payload: '{' })
    const status = allow === undefined ? 400 : 405
    expect([url, answer.statusCode, answer.headers.allow]).toEqual([url, status, allow])
  }
  await app.close()
  await server.close()
})
