import { expect } from 'vitest'

import type { Logger } from '#shared/logger.ts'
import { it } from '#test/support/services.ts'

import { createUser, newEmail, PASSWORD, refresh, signIn } from './support/people.ts'
import { startServer } from './support/server.ts'

it('serves the same routes at the root and below /auth/v1', async () => {
  const server = await startServer()
  for (const prefix of ['', '/auth/v1']) {
    expect((await server.call({ path: `${prefix}/settings` })).status).toBe(200)
    expect((await server.call({ path: `${prefix}/user` })).status).toBe(401)
  }
  const unknown = await server.call({ path: '/auth/v1/nothing' })
  expect(unknown).toMatchObject({ status: 404, body: '404 page not found\n' })
  await server.close()
})

it('works on tables with a prefix: AUTH_DB_NAMESPACE', async () => {
  const server = await startServer({
    tablePrefix: 'tenant',
    env: { AUTH_SECURITY_REFRESH_TOKEN_REUSE_INTERVAL: '0' },
  })
  const { id, email } = await createUser(server)
  const session = await signIn(server, email)
  const refreshed = await refresh(server, session.refresh_token)
  expect(refreshed.body.user.id).toBe(id)
  expect((await refresh(server, session.refresh_token)).body.error_code).toBe(
    'refresh_token_already_used',
  )
  const body = { email }
  expect((await server.call({ method: 'POST', path: '/recover', body })).status).toBe(200)
  const bearer = await server.serviceToken()
  expect((await server.call({ path: '/admin/audit', bearer })).body.length).toBeGreaterThan(2)
  const { rows } = await server.database.pool.query('select count(*)::int as users from users')
  expect(rows).toEqual([{ users: 0 }])
  await server.close()
})

it('answers 503 while the database is away', async () => {
  const server = await startServer({ databaseUrl: 'postgres://app@127.0.0.1:1/nowhere' })
  const body = { email: newEmail(), password: PASSWORD }
  for (const path of ['/signup', '/recover', '/token?grant_type=password', '/otp']) {
    const answer = await server.call({ method: 'POST', path, body })
    expect(answer.body, path).toMatchObject({ code: 503, error_code: 'service_unavailable' })
    expect(answer.headers['retry-after']).toBe('1')
  }
  await server.close()
})

it('answers 504 when a request takes too long', async () => {
  const verified = Promise.withResolvers<void>()
  const server = await startServer({
    env: {
      AUTH_API_MAX_REQUEST_DURATION: '50ms',
      AUTH_SECURITY_CAPTCHA_ENABLED: 'true',
      AUTH_SECURITY_CAPTCHA_SECRET: 'secret',
    },
    captcha: { verify: () => verified.promise },
  })
  const body = {
    email: newEmail(),
    password: PASSWORD,
    gotrue_meta_security: { captcha_token: 'token' },
  }
  const answer = await server.call({ method: 'POST', path: '/signup', body })
  expect(answer.body).toMatchObject({ code: 504, error_code: 'request_timeout' })
  verified.resolve()
  const { pool } = server.database
  await expect.poll(() => pool.totalCount - pool.idleCount).toBe(0)
  await server.close()
})

function recordingLog(): { log: Logger; lines: string[] } {
  const lines: string[] = []
  const note = (fields: object, message: string): void => {
    lines.push(JSON.stringify([fields, message]))
  }
  const log: Logger = {
    fatal: note,
    error: note,
    warn: note,
    info: note,
    debug: note,
    child: () => log,
  }
  return { log, lines }
}

it('logs why a mail could not be sent, without its recipient', async ({ mail }) => {
  const { log, lines } = recordingLog()
  const server = await startServer({ log, mailServer: mail })
  const email = newEmail('somebody')
  const body = { email, password: PASSWORD }
  mail.refuseAll(true)
  expect((await server.call({ method: 'POST', path: '/signup', body })).status).toBe(200)
  mail.refuseAll(false)
  const text = lines.join('\n')
  expect(text).toMatch(/"outbox.deliver".*"lastError":"E[A-Z]+ \d{3}"/)
  expect(text).not.toContain(email)
  expect(text).not.toContain('somebody')
  await server.close()
})

it('writes neither secrets nor addresses to the log on any failure', async () => {
  const { log, lines } = recordingLog()
  const server = await startServer({ log })
  const { email } = await createUser(server)
  const session = await signIn(server, email)
  await refresh(server, session.refresh_token)
  await refresh(server, session.refresh_token)
  await server.call({ method: 'POST', path: '/recover', body: { email } })
  const { token, tokenHash } = server.lastMail(email).variables
  await server.call({ path: `/verify?type=recovery&token=${tokenHash}` })
  // A table that is gone makes every query with these values fail.
  await server.database.pool.query('drop table refresh_tokens cascade')
  const body = { email, password: PASSWORD }
  const broken = await server.call({ method: 'POST', path: '/token?grant_type=password', body })
  expect(broken.body).toMatchObject({ code: 500, error_code: 'unexpected_failure' })
  expect(JSON.stringify(broken.body)).not.toMatch(/refresh_tokens|at .*\.ts/)
  const text = lines.join('\n')
  expect(text).toContain('request failed')
  for (const secret of [email, PASSWORD, session.access_token, session.refresh_token, tokenHash]) {
    expect(text).not.toContain(secret)
  }
  expect(text).not.toMatch(new RegExp(`\\b${token}\\b`))
  await server.close()
})
