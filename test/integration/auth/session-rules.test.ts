import { TOTP } from 'otpauth'
import { describe, expect } from 'vitest'

import { it } from '#test/support/services.ts'

import { createUser, refresh, signIn } from './support/people.ts'
import { startServer, type TestServer } from './support/server.ts'

const withServer = async (
  env: Record<string, string>,
  work: (server: TestServer) => Promise<void>,
): Promise<void> => {
  const server = await startServer({ env, isFrozen: true })
  await work(server).finally(() => server.close())
}

async function enroll(server: TestServer, bearer: string) {
  const post = (path: string, body: object) => server.call({ method: 'POST', path, bearer, body })
  const { body: factor } = await post('/factors', { factor_type: 'totp' })
  const challenge = await post(`/factors/${factor.id}/challenge`, {})
  const code = new TOTP({ secret: factor.totp.secret }).generate({ timestamp: server.clock.now() })
  const proof = { challenge_id: challenge.body.id, code }
  return (await post(`/factors/${factor.id}/verify`, proof)).body
}

const ended = (reason: string) => ({
  code: 400,
  error_code: 'session_expired',
  msg: `Invalid Refresh Token: Session Expired (${reason})`,
})
const LOW_AAL = ended('Low AAL: User Needs MFA Verification')
const NEWER = ended('Revoked by Newer Login')

describe('AUTH_SESSIONS_ALLOW_LOW_AAL', () => {
  it('ends sessions without the second factor of their user', () =>
    withServer({ AUTH_SESSIONS_ALLOW_LOW_AAL: '5m' }, async (server) => {
      const { email } = await createUser(server)
      const raised = await enroll(server, (await signIn(server, email)).access_token)
      const low = await signIn(server, email)
      const other = await signIn(server, (await createUser(server)).email)
      server.clock.advance(299)
      const next = (await refresh(server, low.refresh_token)).body
      server.clock.advance(2)
      expect((await refresh(server, next.refresh_token)).body).toMatchObject(LOW_AAL)
      expect((await refresh(server, raised.refresh_token)).status).toBe(200)
      // A user without a second factor has nothing to prove.
      expect((await refresh(server, other.refresh_token)).status).toBe(200)
    }))

  it('does not let such a session end those with the second factor', () => {
    const single = { AUTH_SESSIONS_SINGLE_PER_USER: 'true' }
    return withServer({ AUTH_SESSIONS_ALLOW_LOW_AAL: '5m', ...single }, async (server) => {
      const { email } = await createUser(server)
      const raised = await enroll(server, (await signIn(server, email)).access_token)
      server.clock.advance(1)
      await signIn(server, email)
      expect((await refresh(server, raised.refresh_token)).body).toMatchObject(NEWER)
      server.clock.advance(301)
      expect((await refresh(server, raised.refresh_token)).status).toBe(200)
    })
  })
})

describe('AUTH_SESSIONS_TAGS', () => {
  it('separates sessions that would end each other', () => {
    const env = { AUTH_SESSIONS_SINGLE_PER_USER: 'true', AUTH_SESSIONS_TAGS: 'web, phone' }
    return withServer(env, async (server) => {
      const { email } = await createUser(server)
      const start = async (tag: string | null) => {
        server.clock.advance(1)
        const { access_token: token, refresh_token: refreshToken } = await signIn(server, email)
        const { session_id: id } = await server.services.accessTokens.verify(token)
        const sql = 'update sessions set tag = $2 where id = $1'
        await server.database.pool.query(sql, [id, tag])
        return refreshToken
      }
      const [web, phone] = [await start('web'), await start('phone')]
      const newest = await start('phone')
      expect((await refresh(server, phone)).body).toMatchObject(NEWER)
      const next = (await refresh(server, web)).body
      expect(next).toHaveProperty('refresh_token')
      // Without a known tag a session has the first one.
      await start('unknown')
      expect((await refresh(server, next.refresh_token)).body).toMatchObject(NEWER)
      expect((await refresh(server, newest)).status).toBe(200)
    })
  })
})

describe('AUTH_SESSIONS_SINGLE_PER_USER', () => {
  it('ignores sessions that have ended', () => {
    const env = { AUTH_SESSIONS_SINGLE_PER_USER: 'true', AUTH_SESSIONS_INACTIVITY_TIMEOUT: '1h' }
    return withServer(env, async (server) => {
      const { email } = await createUser(server)
      const older = await signIn(server, email)
      const [{ id }] = (
        await server.database.pool.query('select id from sessions where user_id = $1', [
          older.user.id,
        ])
      ).rows
      server.clock.advance(60)
      await signIn(server, email)
      expect((await refresh(server, older.refresh_token)).body).toMatchObject(NEWER)
      // The newer session was used last before the limit, the older one later.
      const age = "update sessions set created_at = created_at - interval '2 hours' where id <> $1"
      await server.database.pool.query(age, [id])
      expect((await refresh(server, older.refresh_token)).status).toBe(200)
    })
  })
})

describe('the sessions of one user', () => {
  it('are bounded: a further sign-in ends the one that was used least recently', () =>
    withServer({}, async (server) => {
      const { email, id } = await createUser(server)
      const first = await signIn(server, email)
      server.clock.advance(1)
      const second = await signIn(server, email)
      server.clock.advance(1)
      const used = (await refresh(server, first.refresh_token)).body
      const { pool } = server.database
      const now = new Date(server.clock.now())
      await pool.query(
        `insert into sessions (id, user_id, created_at, updated_at)
          select gen_random_uuid(), $1, $2, $2 from generate_series(1, 998)`,
        [id, now],
      )
      server.clock.advance(1)
      await signIn(server, email)
      const count = 'select count(*)::int as sessions from sessions where user_id = $1'
      expect((await pool.query(count, [id])).rows).toEqual([{ sessions: 1000 }])
      expect((await refresh(server, second.refresh_token)).body).toMatchObject({
        error_code: 'refresh_token_not_found',
      })
      expect((await refresh(server, used.refresh_token)).status).toBe(200)
    }))
})
