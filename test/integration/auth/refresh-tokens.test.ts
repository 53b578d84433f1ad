import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, refresh, signedInUser, signIn } from './support/people.ts'
import { startServer, type TestServer } from './support/server.ts'

const USED = { code: 400, error_code: 'refresh_token_already_used' }

describe('refresh tokens without a reuse interval', () => {
  let server: TestServer
  beforeAll(async () => {
    const env = { AUTH_SECURITY_REFRESH_TOKEN_REUSE_INTERVAL: '0' }
    server = await startServer({ env, isFrozen: true })
  })
  afterAll(() => server.close())

  it('exchanges a valid one for a child and revokes it', async () => {
    const first = await signedInUser(server)
    const second = await refresh(server, first.refresh_token)
    expect(second.status).toBe(200)
    expect(second.body.refresh_token).toMatch(/^[\w-]{22}$/)
    expect(second.body.refresh_token).not.toBe(first.refresh_token)
    expect((await refresh(server, second.body.refresh_token)).status).toBe(200)
  })

  it('treats reuse as theft: the whole family is revoked, and stays revoked', async () => {
    const tokens = [(await signedInUser(server)).refresh_token]
    for (let turn = 0; turn < 3; turn += 1) {
      tokens.push((await refresh(server, tokens.at(-1) as string)).body.refresh_token)
    }
    for (const presented of tokens) {
      expect((await refresh(server, presented)).body).toMatchObject(USED)
    }
    expect(server.events.filter((event) => event === 'token_reuse_detected')).toHaveLength(4)
  })

  it('does not affect other sessions of the user', async () => {
    const { email } = await createUser(server)
    const [one, other] = [await signIn(server, email), await signIn(server, email)]
    await refresh(server, one.refresh_token)
    expect((await refresh(server, one.refresh_token)).body).toMatchObject(USED)
    expect((await refresh(server, other.refresh_token)).status).toBe(200)
  })

  it('refuses unknown and empty ones', async () => {
    expect((await refresh(server, 'nonsense')).body).toMatchObject({
      error_code: 'refresh_token_not_found',
      msg: 'Invalid Refresh Token: Refresh Token Not Found',
    })
    expect((await refresh(server, '')).body).toMatchObject({ error: 'invalid_request' })
  })

  it('refuses those of banned users, and accepts them again when the ban is lifted', async () => {
    const session = await signedInUser(server)
    const bearer = await server.serviceToken()
    const ban = (ban_duration: string) =>
      server.call({
        method: 'PUT',
        path: `/admin/users/${session.user.id}`,
        bearer,
        body: { ban_duration },
      })
    expect((await ban('1.5h')).body.banned_until).toBe('2026-01-15T13:30:00.000Z')
    expect((await refresh(server, session.refresh_token)).body).toMatchObject({
      code: 400,
      error_code: 'user_banned',
    })
    expect((await ban('none')).body).not.toHaveProperty('banned_until')
    expect((await refresh(server, session.refresh_token)).status).toBe(200)
    expect((await ban('tomorrow')).body).toMatchObject({ code: 400 })
  })

  it('stores neither refresh tokens nor anything that makes them', async () => {
    const session = await signedInUser(server)
    const child = (await refresh(server, session.refresh_token)).body.refresh_token
    const { rows } = await server.database.pool.query('select * from refresh_tokens')
    const stored = JSON.stringify(rows.map((row) => Object.values(row).map(String)))
    expect(stored).not.toContain(session.refresh_token)
    expect(stored).not.toContain(child)
  })

  it('accepts one of a hundred at once and revokes the family', async () => {
    const session = await signedInUser(server)
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => refresh(server, session.refresh_token)),
    )
    const accepted = answers.filter((answer) => answer.status === 200)
    expect(accepted).toHaveLength(1)
    expect(answers.filter((answer) => answer.body.error_code === USED.error_code)).toHaveLength(99)
    const child = accepted[0]?.body.refresh_token
    expect((await refresh(server, child)).body).toMatchObject(USED)
  })
})

describe('refresh tokens with the usual reuse interval of ten seconds', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startServer({ isFrozen: true })
  })
  afterAll(() => server.close())

  it('hands the same child out again within the interval', async () => {
    const { refresh_token: parent } = await signedInUser(server)
    const child = (await refresh(server, parent)).body.refresh_token
    server.clock.advance(10)
    const again = await refresh(server, parent)
    expect(again.status).toBe(200)
    expect(again.body.refresh_token).toBe(child)
    expect((await refresh(server, child)).status).toBe(200)
  })

  it('treats the previous one as stolen after the interval', async () => {
    const { refresh_token: parent } = await signedInUser(server)
    const child = (await refresh(server, parent)).body.refresh_token
    server.clock.advance(10.001)
    expect((await refresh(server, parent)).body).toMatchObject(USED)
    expect((await refresh(server, child)).body).toMatchObject(USED)
  })

  it('treats an older one than the previous as stolen, even within the interval', async () => {
    const { refresh_token: grandparent } = await signedInUser(server)
    const parent = (await refresh(server, grandparent)).body.refresh_token
    const child = (await refresh(server, parent)).body.refresh_token
    expect((await refresh(server, grandparent)).body).toMatchObject(USED)
    expect((await refresh(server, child)).body).toMatchObject(USED)
  })

  it('gives a hundred at once the same child', async () => {
    const { refresh_token: parent } = await signedInUser(server)
    const answers = await Promise.all(Array.from({ length: 100 }, () => refresh(server, parent)))
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([200]))
    const children = new Set(answers.map((answer) => answer.body.refresh_token))
    expect(children.size).toBe(1)
    const { rows } = await server.database.pool.query(
      `select count(*)::int as valid from refresh_tokens where revoked_at is null and session_id =
       (select session_id from refresh_tokens order by id desc limit 1)`,
    )
    expect(rows).toEqual([{ valid: 1 }])
  })
})

describe('refresh tokens without rotation', () => {
  it('returns the child to its parent at any time, and refuses older ones without revoking', async () => {
    const env = { AUTH_SECURITY_REFRESH_TOKEN_ROTATION_ENABLED: 'false' }
    const server = await startServer({ isFrozen: true, env })
    const { refresh_token: grandparent } = await signedInUser(server)
    const parent = (await refresh(server, grandparent)).body.refresh_token
    const child = (await refresh(server, parent)).body.refresh_token
    server.clock.advance(3600)
    expect((await refresh(server, parent)).body.refresh_token).toBe(child)
    expect((await refresh(server, grandparent)).body).toMatchObject(USED)
    expect((await refresh(server, child)).status).toBe(200)
    await server.close()
  })
})

describe('sessions that end by themselves', () => {
  const check = async (env: Record<string, string>, waits: readonly number[]): Promise<string> => {
    const server = await startServer({ isFrozen: true, env })
    try {
      let { refresh_token: current } = await signedInUser(server)
      let message = ''
      for (const seconds of waits) {
        server.clock.advance(seconds)
        const { body } = await refresh(server, current)
        message = body.msg ?? 'accepted'
        current = body.refresh_token
      }
      return message
    } finally {
      await server.close()
    }
  }

  it('end after the time box, however often they are refreshed', async () => {
    const env = { AUTH_SESSIONS_TIMEBOX: '1h' }
    expect(await check(env, [1800, 1800])).toBe('accepted')
    expect(await check(env, [1800, 1801])).toBe('Invalid Refresh Token: Session Expired')
  })

  it('end after a time without use', async () => {
    const env = { AUTH_SESSIONS_INACTIVITY_TIMEOUT: '10m' }
    expect(await check(env, [600, 600])).toBe('accepted')
    expect(await check(env, [600, 601])).toBe('Invalid Refresh Token: Session Expired (Inactivity)')
  })

  it('end when the user signs in elsewhere and may have one only', async () => {
    const server = await startServer({ env: { AUTH_SESSIONS_SINGLE_PER_USER: 'true' } })
    const { email } = await createUser(server)
    const [old, fresh] = [await signIn(server, email), await signIn(server, email)]
    expect((await refresh(server, old.refresh_token)).body.msg).toBe(
      'Invalid Refresh Token: Session Expired (Revoked by Newer Login)',
    )
    expect((await refresh(server, fresh.refresh_token)).status).toBe(200)
    await server.close()
  })
})

describe('refreshes of one session', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startServer({
      isFrozen: true,
      env: { MILLRACE_SESSION_REFRESHES_PER_HOUR: '5' },
    })
  })
  afterAll(() => server.close())

  it('are limited per hour, and the refresh token remains valid', async () => {
    const user = await signedInUser(server)
    let newest = user.refresh_token
    for (let times = 0; times < 5; times += 1) {
      const { status, body } = await refresh(server, newest)
      expect(status).toBe(200)
      newest = body.refresh_token
    }
    const refused = await refresh(server, newest)
    expect(refused.body).toMatchObject({ code: 429, error_code: 'over_request_rate_limit' })
    expect(Number(refused.headers['retry-after'])).toBe(3600)
    server.clock.advance(3600)
    expect((await refresh(server, newest)).status).toBe(200)
  })

  it('add no more entries to the audit log when an exchanged token is presented again', async () => {
    const user = await signedInUser(server)
    await refresh(server, user.refresh_token)
    const statuses = new Set<number>()
    for (let times = 0; times < 350; times += 1) {
      statuses.add((await refresh(server, user.refresh_token)).status)
    }
    expect([...statuses]).toEqual([200, 429])
    const { rows } = await server.database.pool.query(
      `select count(*)::int as entries from audit_log_entries
       where payload ->> 'actor_id' = $1 and payload ->> 'action' = 'token_refreshed'`,
      [user.user.id],
    )
    expect(rows[0].entries).toBe(1 + 300)
  })

  it('are revoked for a reuse, however often an exchanged token was presented before', async () => {
    const { refresh_token: stolen, user } = await signedInUser(server)
    const first = (await refresh(server, stolen)).body.refresh_token
    const second = (await refresh(server, first)).body.refresh_token
    // A thief who holds the newest two uses up the limit.
    const statuses = []
    for (let times = 0; times < 310; times += 1)
      statuses.push((await refresh(server, first)).status)
    expect(statuses.at(-1)).toBe(429)
    expect((await refresh(server, stolen)).body.error_code).toBe('refresh_token_already_used')
    expect((await refresh(server, second)).body.error_code).toBe('refresh_token_already_used')
    for (let times = 0; times < 320; times += 1) await refresh(server, stolen)
    const { rows } = await server.database.pool.query(
      `select count(*)::int as entries from audit_log_entries
       where payload ->> 'actor_id' = $1 and payload ->> 'action' = 'token_reuse_detected'`,
      [user.id],
    )
    expect(rows[0].entries).toBe(300)
  })
})
