import { expect, it } from 'vitest'

import { cleanUp, cleanUpAll } from '#api/auth/cleanup.ts'

import { fakeProviders } from './support/fake-provider.ts'
import { createUser, refresh, signedInUser } from './support/people.ts'
import { startServer } from './support/server.ts'

const DAY_SECONDS = 86_400

it('deletes rows that ended a day ago, and nothing that is in use', async () => {
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
    unconfirmedUsers: 0,
    webauthnChallenges: 0,
    abandonedFlows: 0,
    auditLog: 0,
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

it('keeps the flow of a link as long as the link is valid, and its code some time longer', async () => {
  const server = await startServer({
    isFrozen: true,
    env: { AUTH_MAILER_OTP_EXP: String(7 * DAY_SECONDS) },
  })
  const { email } = await createUser(server)
  const verifier = 'v'.repeat(43)
  const challenge = { code_challenge: verifier, code_challenge_method: 'plain' }
  await server.call({ method: 'POST', path: '/otp', body: { email, ...challenge } })
  server.clock.advance(6 * DAY_SECONDS)
  await cleanUp(server.services)
  const { variables } = server.lastMail(email)
  const link = new URL(variables.confirmationUrl)
  const clicked = await server.call({ path: link.pathname + link.search })
  const code = new URL(clicked.location).searchParams.get('code')
  await cleanUp(server.services)
  const path = '/token?grant_type=pkce'
  const body = { auth_code: code, code_verifier: verifier }
  expect((await server.call({ method: 'POST', path, body })).status).toBe(200)
  await server.call({ method: 'POST', path: '/otp', body: { email, ...challenge } })
  server.clock.advance(8 * DAY_SECONDS + 60)
  expect(await cleanUp(server.services)).toMatchObject({ oneTimeTokens: 1, flowStates: 1 })
  await server.close()
})

it('keeps the short-lived data of visitors for minutes', async () => {
  const server = await startServer({
    isFrozen: true,
    providers: fakeProviders(),
    env: { AUTH_PASSKEY_ENABLED: 'true' },
  })
  await server.call({ path: '/authorize?provider=github' })
  await server.call({ method: 'POST', path: '/passkeys/authentication/options', body: {} })
  server.clock.advance(9 * 60)
  const left = { abandonedFlows: 0, webauthnChallenges: 0 }
  expect(await cleanUp(server.services)).toMatchObject(left)
  server.clock.advance(10 * 60)
  expect(await cleanUp(server.services)).toMatchObject({
    abandonedFlows: 1,
    webauthnChallenges: 1,
  })
  await server.close()
})

it('reports the anonymous users that it deletes', async () => {
  const ended: string[] = []
  const server = await startServer({
    isFrozen: true,
    env: { AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true' },
    onUsersEnded: async (_tx, userIds) => void ended.push(...userIds),
  })
  const made = await server.call({ method: 'POST', path: '/signup', body: {} })
  server.clock.advance(31 * DAY_SECONDS)
  expect(await cleanUp(server.services)).toMatchObject({ anonymousUsers: 1 })
  expect(ended).toEqual([made.body.user.id])
  await server.close()
})

it('deletes in one turn everything that a busy day has left', async () => {
  const server = await startServer({ isFrozen: true })
  const { refresh_token: token } = await signedInUser(server)
  await refresh(server, token)
  // Inserts the rows that thousands of refreshes would leave.
  await server.database.pool.query(`
    insert into refresh_tokens (session_id, token_sha256, seed, created_at, revoked_at)
    select session_id, sha256(convert_to(number::text, 'utf8')), seed, created_at, revoked_at
    from refresh_tokens, generate_series(1, 2500) number where revoked_at is not null`)
  server.clock.advance(2 * DAY_SECONDS)
  expect(await cleanUpAll(server.services)).toMatchObject({ refreshTokens: 2501 })
  const { rows } = await server.database.pool.query(
    'select count(*)::int as left from refresh_tokens',
  )
  expect(rows).toEqual([{ left: 1 }])
  await server.close()
})

it('deletes unconfirmed sign-ups after their lifetime, and no other user', async () => {
  const server = await startServer({ isFrozen: true })
  const bearer = await server.serviceToken()
  const email = 'unconfirmed@example.com'
  const body = { email, password: 'correct horse' }
  await server.call({ method: 'POST', path: '/signup', body })
  await createUser(server)
  await createUser(server, { email: 'by-an-administrator@example.com', email_confirm: false })
  await server.call({ method: 'POST', path: '/invite', bearer, body: { email: 'a@example.com' } })
  server.clock.advance(6 * DAY_SECONDS)
  expect(await cleanUp(server.services)).toMatchObject({ unconfirmedUsers: 0 })
  server.clock.advance(2 * DAY_SECONDS)
  expect(await cleanUp(server.services)).toMatchObject({ unconfirmedUsers: 1 })
  const { body: list } = await server.call({ path: '/admin/users', bearer })
  expect(list.users).toHaveLength(3)
  await server.close()
})

it('keeps the audit log for the days of its setting', async () => {
  const env = { MILLRACE_AUDIT_RETENTION_DAYS: '30' }
  const server = await startServer({ isFrozen: true, env })
  await signedInUser(server)
  server.clock.advance(29 * DAY_SECONDS)
  expect(await cleanUp(server.services)).toMatchObject({ auditLog: 0 })
  server.clock.advance(2 * DAY_SECONDS)
  const { pool } = server.database
  const entries = async () =>
    (await pool.query('select count(*)::int as entries from audit_log_entries')).rows[0].entries
  const before = await entries()
  expect(before).toBeGreaterThan(0)
  expect(await cleanUp(server.services)).toMatchObject({ auditLog: before })
  expect(await entries()).toBe(0)
  await server.close()
})
