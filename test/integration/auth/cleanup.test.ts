import { expect, it } from 'vitest'

import { cleanUp } from '#api/auth/cleanup.ts'

import { createUser, refresh, signedInUser } from './support/people.ts'
import { startServer } from './support/server.ts'

const DAY_SECONDS = 86_400

it('deletes what has been over for a day, and nothing that is in use', async () => {
  const server = await startServer({
    isFrozen: true,
    env: {
      AUTH_SESSIONS_TIMEBOX: '1h',
      AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true',
      AUTH_MAILER_OTP_EXP: '600',
    },
  })
  const nothing = {
    oneTimeTokens: 0,
    flowStates: 0,
    challenges: 0,
    factors: 0,
    refreshTokens: 0,
    sessions: 0,
    anonymousUsers: 0,
  }
  const session = await signedInUser(server)
  await refresh(server, session.refresh_token)
  const bearer = session.access_token
  const factor = { factor_type: 'totp' }
  const enrolled = await server.call({ method: 'POST', path: '/factors', bearer, body: factor })
  const path = `/factors/${enrolled.body.id}/challenge`
  expect((await server.call({ method: 'POST', path, bearer })).status).toBe(200)
  const { email } = await createUser(server)
  const body = {
    email,
    code_challenge: 'c'.repeat(43),
    code_challenge_method: 'plain',
  }
  await server.call({ method: 'POST', path: '/otp', body })
  await server.call({ method: 'POST', path: '/signup', body: {} })
  server.clock.advance(DAY_SECONDS)
  expect(await cleanUp(server.services)).toEqual(nothing)
  server.clock.advance(2 * 3600)
  expect(await cleanUp(server.services)).toEqual({
    ...nothing,
    oneTimeTokens: 1,
    flowStates: 1,
    challenges: 1,
    factors: 1,
    refreshTokens: 1,
    sessions: 2,
  })
  server.clock.advance(30 * DAY_SECONDS)
  expect(await cleanUp(server.services)).toEqual({ ...nothing, anonymousUsers: 1 })
  await server.close()
})
