import { expect } from 'vitest'

import { answerUnknownPath, authPlugin, USER_SERVER_SEGMENTS } from '#api/auth/plugin.ts'
import { buildApp } from '#api/server/app.ts'
import { createLogger } from '#shared/logger.ts'
import { serverConfig } from '#test/support/server-config.ts'
import { it } from '#test/support/services.ts'

import { startServer } from './support/server.ts'

it('unknown paths at the root are refused in the form of those who ask for them', async () => {
  const server = await startServer()
  const app = await buildApp({
    ...{ server: serverConfig(), version: 'test', publicUrl: 'http://localhost' },
    log: createLogger({ level: 'silent' }),
    health: { dependencies: { states: async () => [] }, isDraining: () => false },
    surfaces: [
      {
        prefixes: ['/', '/auth/v1'],
        plugin: authPlugin(server.services),
        unknownBelow: { segments: USER_SERVER_SEGMENTS, answer: answerUnknownPath },
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
      ...{ code: 404, error_code: 'not_found', msg: 'This path is not served' },
    })
    const textual = await ask(path, { 'x-supabase-api-version': '2024-01-01' })
    expect(textual.json()).toEqual({ code: 'not_found', message: 'This path is not served' })
  }
  for (const path of ['/chat/completions', '/administration', '/users', '/user%2Fx?a=/user/']) {
    expect((await ask(path)).json().error).toMatchObject({ code: 'unknown_url', param: null })
  }
  await app.close()
  await server.close()
})
