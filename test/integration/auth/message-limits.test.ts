import { randomUUID } from 'node:crypto'

import { describe, expect, it } from 'vitest'

import { createRateLimits, type RateLimits } from '#api/auth/rate-limits.ts'

import { createUser, newEmail, PASSWORD } from './support/people.ts'
import { readConfig, startServer } from './support/server.ts'

describe('the hourly messages of the server', () => {
  it.each(['recover', 'resend'])('end /%s before any row is written or locked', async (path) => {
    const server = await startServer({
      env: { AUTH_RATE_LIMIT_EMAIL_SENT: '1', AUTH_SMTP_MAX_FREQUENCY: '0s' },
    })
    try {
      const email = newEmail()
      const body = { email, password: PASSWORD }
      const signUp = { method: 'POST', path: '/signup', body } as const
      expect((await server.call(signUp)).status).toBe(200)
      const rows = async () => {
        const query = 'select xmin, xmax, ctid from users'
        const { rows: users } = await server.database.pool.query(query)
        const { rows: sent } = await server.database.pool.query(
          'select count(*) from one_time_tokens',
        )
        return JSON.stringify([users, sent])
      }
      const before = await rows()
      for (const prefix of ['', '/auth/v1']) {
        for (const one of [email, newEmail()]) {
          const body = { type: 'signup', email: one }
          const answer = await server.call({ method: 'POST', path: `${prefix}/${path}`, body })
          expect([answer.status, answer.body.error_code]).toEqual([
            ...[429, 'over_email_send_rate_limit'],
          ])
        }
      }
      // A statement that was rolled back leaves its mark on the row, as a lock does.
      expect(await rows()).toBe(before)
    } finally {
      await server.close()
    }
  })

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
    const sender = { ip: '10.0.0.7', network: '10.0.0.7' }
    const processes: RateLimits[] = [1, 2, 3].map(() =>
      createRateLimits({ redis, keyPrefix, config, clock }),
    )
    const takes = Array.from({ length: 60 }, (_, index) =>
      (processes[index % 3] as RateLimits).takeSend('email', sender).then(
        () => 'sent',
        (error: { code: string }) => error.code,
      ),
    )
    const results = await Promise.all(takes)
    expect(results.filter((result) => result === 'sent')).toHaveLength(25)
    expect(results.filter((result) => result === 'over_email_send_rate_limit')).toHaveLength(35)
    clock.advance(600)
    await processes[0]?.takeSend('email', sender)
    await server.close()
  })

  it('leave half of the mails for others when one network uses up its share', async () => {
    const env = { AUTH_RATE_LIMIT_EMAIL_SENT: '8', AUTH_SMTP_MAX_FREQUENCY: '0s' }
    const server = await startServer({ isFrozen: true, env })
    const { email: known } = await createUser(server)
    const sentFrom = async (remoteAddress: string, path = '/signup') => {
      for (let sent = 0; ; sent += 1) {
        const email = path === '/signup' ? newEmail() : known
        const payload = { email, password: PASSWORD }
        const answer = await server.app.inject({
          method: 'POST',
          url: path,
          payload,
          remoteAddress,
        })
        if (answer.statusCode === 429) return sent
      }
    }
    try {
      expect(await sentFrom('8.8.4.4')).toBe(4)
      expect(await sentFrom('8.8.4.4', '/recover')).toBe(0)
      // The networks of one /48 share.
      expect(await sentFrom('2600:1:1:2::1')).toBe(2)
      expect(await sentFrom('2600:1:1:3::1')).toBe(0)
      expect(await sentFrom('2600:1:2:3::1', '/recover')).toBe(1)
      expect(await sentFrom('10.0.0.7')).toBe(1)
      server.clock.advance(3600)
      expect(await sentFrom('8.8.4.4')).toBe(4)
    } finally {
      await server.close()
    }
  })

  it('are used up alike by known and unknown addresses', async () => {
    const env = { AUTH_RATE_LIMIT_EMAIL_SENT: '1' }
    for (const path of ['/recover', '/resend', '/signup']) {
      const rest: unknown[] = []
      for (const isKnown of [true, false]) {
        const server = await startServer({ isFrozen: true, env })
        const known = await createUser(server, { email_confirm: path !== '/resend' })
        const post = (email: string) =>
          server.call({ method: 'POST', path, body: { email, type: 'signup', password: PASSWORD } })
        const first = await post(isKnown ? known.email : newEmail())
        rest.push([path, first.status, (await post(newEmail())).status])
        await server.close()
      }
      expect(rest).toEqual([
        [path, 200, 429],
        [path, 200, 429],
      ])
    }
  })

  it('refuse mails beyond the hourly number, and no request is half done', async () => {
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
