import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { signedInUser } from './support/people.ts'
import { startServer, type TestServer } from './support/server.ts'

const BURST = 100

describe('changes of one user', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startServer({ isFrozen: true })
  })
  afterAll(() => server.close())

  const entriesOf = async (userId: string): Promise<number> => {
    const { rows } = await server.database.pool.query(
      `select count(*)::int as entries from audit_log_entries
       where payload ->> 'actor_id' = $1 and payload ->> 'action' <> 'login'`,
      [userId],
    )
    return rows[0].entries
  }

  it('are limited without a header that identifies clients, and so are their audit log entries', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const change = () => server.call({ method: 'PUT', path: '/user', bearer, body: { data: {} } })
    const statuses = new Set<number>()
    for (let times = 0; times < BURST + 50; times += 1) statuses.add((await change()).status)
    expect(await entriesOf(user.id)).toBe(BURST)
    expect([...statuses]).toEqual([200, 429])
    const refused = await change()
    expect(refused.body).toMatchObject({ error_code: 'over_request_rate_limit' })
    // 1,000 in an hour are one in 3.6 seconds.
    expect(refused.headers['retry-after']).toBe('4')
    server.clock.advance(4)
    expect((await change()).status).toBe(200)
  })

  it('count together for all routes, except that a session can always be ended', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const change = (at: number) =>
      at % 2 === 0
        ? server.call({ method: 'PUT', path: '/user', bearer, body: { data: {} } })
        : server.call({ path: '/reauthenticate', bearer })
    for (let times = 0; times < BURST; times += 1) {
      expect((await change(times)).body.error_code).not.toBe('over_request_rate_limit')
    }
    const body = { factor_type: 'totp', friendly_name: user.email }
    const enrolled = await server.call({ method: 'POST', path: '/factors', bearer, body })
    expect(enrolled.status).toBe(429)
    expect((await server.call({ path: '/user', bearer })).status).toBe(200)
    expect((await server.call({ method: 'POST', path: '/logout', bearer })).status).toBe(204)
  })
})
