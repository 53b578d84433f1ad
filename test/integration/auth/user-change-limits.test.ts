import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createRateLimits } from '#api/auth/rate-limits.ts'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { createUser, newEmail, PASSWORD, signedInUser } from './support/people.ts'
import { type CallOptions, startServer, type TestServer } from './support/server.ts'

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

describe('sign-ins of one user', () => {
  const providers = fakeProviders()
  let server: TestServer
  beforeAll(async () => {
    server = await startServer({ isFrozen: true, providers })
  })
  afterAll(() => server.close())

  /** Repeats a request until the limit is reached; returns the answers and the new entries. */
  const repeat = async (request: CallOptions) => {
    const count = async () =>
      (await server.database.pool.query('select count(*)::int as n from audit_log_entries')).rows[0]
        .n
    const before = await count()
    const statuses: number[] = []
    for (let times = 0; times < BURST + 20; times += 1) {
      statuses.push((await server.call(request)).status)
    }
    return { statuses: [...new Set(statuses)], entries: (await count()) - before }
  }

  it('by password are limited by themselves, also those of unconfirmed users', async () => {
    const { email } = await createUser(server)
    const body = { email, password: PASSWORD }
    const request = { method: 'POST', path: '/token?grant_type=password', body } as const
    expect(await repeat(request)).toEqual({ statuses: [200, 429], entries: BURST })
    const { email: unconfirmed } = await createUser(server, { email_confirm: false })
    const pending = { ...request, body: { email: unconfirmed, password: PASSWORD } }
    expect(await repeat(pending)).toEqual({ statuses: [400, 429], entries: BURST })
    server.clock.advance(4)
    const { access_token: bearer } = (await server.call(request)).body
    const change = { method: 'PUT', path: '/user', bearer, body: { data: {} } } as const
    expect((await server.call(change)).status).toBe(200)
  })

  it('by an id token are limited', async () => {
    providers.visitors.set('token', visitor('g-1', newEmail()))
    const body = { provider: 'google', id_token: 'token' }
    const request = { method: 'POST', path: '/token?grant_type=id_token', body } as const
    expect((await server.call(request)).status).toBe(200)
    expect(await repeat(request)).toEqual({ statuses: [200, 429], entries: BURST })
  })

  it('are possible while Redis is unreachable', async () => {
    const unreachable = createRateLimits({
      redis: { eval: () => Promise.reject(new Error('unreachable')) },
      keyPrefix: '',
      config: server.services.config.rateLimits,
      clock: server.clock,
    })
    const account = { id: 'a user', network: '192.0.2.1' }
    await unreachable.takeOfAccount('sign-ins', account)
    await expect(unreachable.takeOfAccount('changes', account)).rejects.toThrow('unreachable')
  })
})

it('limits of one user are not used up by another network, but by ten of them', async () => {
  const server = await startServer({ isFrozen: true })
  const { limits } = server.services
  const take = (network: string) =>
    limits.takeOfAccount('sign-ins', { id: 'a user', network }).then(
      () => 'taken',
      (error: { code: string }) => error.code,
    )
  for (const network of Array.from({ length: 10 }, (_, index) => `192.0.2.${index}`)) {
    const results = []
    for (let times = 0; times <= BURST; times += 1) results.push(await take(network))
    expect([results.at(-2), results.at(-1)]).toEqual(['taken', 'over_request_rate_limit'])
  }
  expect(await take('192.0.2.99')).toBe('over_request_rate_limit')
  await server.close()
})
