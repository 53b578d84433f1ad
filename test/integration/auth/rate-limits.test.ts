import { randomUUID } from 'node:crypto'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createRateLimits, type RateLimits } from '#api/auth/rate-limits.ts'

import { createUser, newEmail, PASSWORD } from './support/people.ts'
import { readConfig, startServer, type CallResult, type TestServer } from './support/server.ts'

describe('limits per client', () => {
  let server: TestServer
  beforeAll(async () => {
    server = await startServer({
      isFrozen: true,
      env: { AUTH_RATE_LIMIT_HEADER: 'X-Forwarded-For', AUTH_RATE_LIMIT_VERIFY: '60' },
    })
  })
  afterAll(() => server.close())

  const verify = (address: string): Promise<CallResult> =>
    server.call({
      method: 'POST',
      path: '/verify',
      body: { type: 'email', email: newEmail(), token: '123456' },
      headers: address === '' ? {} : { 'x-forwarded-for': address },
    })

  it('let a burst of thirty through, also when all come at once, and refill evenly', async () => {
    const answers = await Promise.all(Array.from({ length: 40 }, () => verify('192.0.2.1')))
    expect(answers.filter((answer) => answer.status === 429)).toHaveLength(10)
    const refused = await verify('192.0.2.1, 10.0.0.1')
    expect(refused.body).toEqual({
      code: 429,
      error_code: 'over_request_rate_limit',
      msg: 'Request rate limit reached',
    })
    // 60 in five minutes are one in five seconds.
    expect(refused.headers['retry-after']).toBe('5')
    server.clock.advance(5)
    expect((await verify('192.0.2.1')).status).toBe(403)
    expect((await verify('192.0.2.1')).status).toBe(429)
  })

  it('are one per client and route', async () => {
    for (let turn = 0; turn < 31; turn += 1) await verify('192.0.2.2')
    expect((await verify('192.0.2.2')).status).toBe(429)
    expect((await verify('192.0.2.3')).status).toBe(403)
    const headers = { 'x-forwarded-for': '192.0.2.2' }
    const path = '/token?grant_type=refresh_token'
    const body = { refresh_token: 'x' }
    expect((await server.call({ method: 'POST', path, body, headers })).status).toBe(400)
  })

  it('see through ports and through the many addresses of one network', async () => {
    for (let turn = 0; turn < 30; turn += 1) {
      await verify(`192.0.2.9:${50_000 + turn}, 10.0.0.1:80`)
      await verify(`[2001:db8:1:2:${turn}::1]:443`)
    }
    expect((await verify('::ffff:192.0.2.9')).status).toBe(429)
    expect((await verify('2001:DB8:1:2::77')).status).toBe(429)
    expect((await verify('2001:db8:1:3::77')).status).toBe(403)
  })

  it('do not touch requests without the header', async () => {
    for (let turn = 0; turn < 35; turn += 1) expect((await verify('')).status).toBe(403)
  })
})

describe('limits of the whole server', () => {
  it('hold across processes, exactly', async () => {
    const server = await startServer()
    const config = readConfig({
      AUTH_SITE_URL: 'http://a.test',
      AUTH_API_EXTERNAL_URL: 'http://a.test',
      AUTH_JWT_SECRET: 'a secret of enough characters',
      AUTH_RATE_LIMIT_EMAIL_SENT: '25/10m',
    }).rateLimits
    const keyPrefix = `test:${randomUUID()}:`
    const { redis, clock } = server
    const processes: RateLimits[] = [1, 2, 3].map(() =>
      createRateLimits({ redis, keyPrefix, config, clock }),
    )
    const takes = Array.from({ length: 60 }, (_, index) =>
      (processes[index % 3] as RateLimits).takeSend('email').then(
        () => 'sent',
        (error: { code: string }) => error.code,
      ),
    )
    const results = await Promise.all(takes)
    expect(results.filter((result) => result === 'sent')).toHaveLength(25)
    expect(results.filter((result) => result === 'over_email_send_rate_limit')).toHaveLength(35)
    clock.advance(600)
    await processes[0]?.takeSend('email')
    await server.close()
  })

  it('refuse mails beyond the hour’s number, and none is half sent', async () => {
    const env = { AUTH_RATE_LIMIT_EMAIL_SENT: '2' }
    const server = await startServer({ isFrozen: true, env })
    const signUp = (email: string) =>
      server.call({ method: 'POST', path: '/signup', body: { email, password: PASSWORD } })
    await signUp(newEmail())
    await signUp(newEmail())
    const email = newEmail()
    expect((await signUp(email)).body).toMatchObject({
      code: 429,
      error_code: 'over_email_send_rate_limit',
      msg: 'email rate limit exceeded',
    })
    const { email: known } = await createUser(server)
    for (const address of [known, newEmail()]) {
      const body = { email: address }
      expect((await server.call({ method: 'POST', path: '/recover', body })).status).toBe(429)
    }
    server.clock.advance(3600)
    expect((await signUp(email)).status).toBe(200)
    expect(server.mails).toHaveLength(3)
    await server.close()
  })
})

describe('the gap between two mails to one user', () => {
  it('is 900 seconds for confirmations and 60 for links by default', async () => {
    const env = { AUTH_SMTP_MAX_FREQUENCY: '' }
    const server = await startServer({ isFrozen: true, env })
    const wait = async (path: string, body: object): Promise<string> =>
      (await server.call({ method: 'POST', path, body })).body.msg ?? 'sent'
    const email = newEmail()
    const { email: known } = await createUser(server)
    const tooSoon = (seconds: number) =>
      `For security purposes, you can only request this after ${seconds} seconds.`
    const signUp = () => wait('/signup', { email, password: PASSWORD })
    const recover = () => wait('/recover', { email: known })
    expect([await signUp(), await recover()]).toEqual(['sent', 'sent'])
    server.clock.advance(59)
    expect([await signUp(), await recover()]).toEqual([tooSoon(841), tooSoon(1)])
    server.clock.advance(1)
    expect([await signUp(), await recover()]).toEqual([tooSoon(840), 'sent'])
    server.clock.advance(840)
    expect(await signUp()).toBe('sent')
    await server.close()
  })

  it('lets one of twenty requests at once send a mail', async () => {
    const server = await startServer()
    const { email } = await createUser(server)
    const answers = await Promise.all(
      Array.from({ length: 20 }, () =>
        server.call({ method: 'POST', path: '/recover', body: { email } }),
      ),
    )
    expect(answers.filter((answer) => answer.status === 200)).toHaveLength(1)
    expect(answers.filter((answer) => answer.status === 429)).toHaveLength(19)
    expect(server.mails).toHaveLength(1)
    await server.close()
  })
})
