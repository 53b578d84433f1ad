import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { startServer, type TestServer } from './support/server.ts'

let server: TestServer

beforeAll(async () => {
  server = await startServer({ env: { AUTH_SMTP_MAX_FREQUENCY: '0' } })
})

afterAll(() => server.close())

describe('a user who signs up by email', () => {
  const email = 'ada@example.com'
  const password = 'correct horse'
  let session: { access_token: string; refresh_token: string }

  it('gets a user without a session and a mail with a link', async () => {
    const { status, body } = await server.call({
      method: 'POST',
      path: '/signup?redirect_to=http://localhost:3000/welcome',
      body: { email: 'Ada@Example.com', password, data: { name: 'Ada' } },
    })
    expect(status).toBe(200)
    expect(body).toMatchObject({
      email,
      phone: '',
      aud: 'authenticated',
      role: 'authenticated',
      is_anonymous: false,
    })
    expect(body.user_metadata).toMatchObject({ name: 'Ada', email, email_verified: false })
    expect(body.identities).toHaveLength(1)
    expect(body).not.toHaveProperty('email_confirmed_at')
    expect(body.confirmation_sent_at).toMatch(/^\d{4}-\d\d-\d\dT/)
    const { variables } = server.lastMail(email)
    expect(variables.confirmationUrl).toBe(
      `http://localhost:9999/verify?token=${variables.tokenHash}&type=signup&redirect_to=http://localhost:3000/welcome`,
    )
    expect(variables.token).toMatch(/^\d{6}$/)
  })

  it('cannot sign in before the address is confirmed', async () => {
    const { status, body } = await server.call({
      method: 'POST',
      path: '/token?grant_type=password',
      body: { email, password },
    })
    expect(status).toBe(400)
    expect(body).toEqual({
      code: 400,
      error_code: 'email_not_confirmed',
      msg: 'Email not confirmed',
    })
  })

  it('is signed in by the link, once', async () => {
    const link = new URL(server.lastMail(email).variables.confirmationUrl)
    const head = await server.call({ method: 'HEAD', path: link.pathname + link.search })
    expect(head.status).toBe(405)
    const first = await server.call({ path: link.pathname + link.search })
    expect(first.status).toBe(303)
    expect(first.location).toMatch(/^http:\/\/localhost:3000\/welcome#access_token=/)
    const fragment = new URLSearchParams(new URL(first.location).hash.slice(1))
    expect([...fragment.keys()]).toEqual([
      'access_token',
      'expires_at',
      'expires_in',
      'refresh_token',
      'token_type',
      'type',
    ])
    const second = await server.call({ path: link.pathname + link.search })
    expect(second.location).toBe(
      'http://localhost:3000/welcome#error=access_denied&error_code=otp_expired&error_description=Email+link+is+invalid+or+has+expired',
    )
  })

  it('signs in with the password and reads the own user', async () => {
    const { status, body } = await server.call({
      method: 'POST',
      path: '/auth/v1/token?grant_type=password',
      body: { email, password },
    })
    expect(status).toBe(200)
    expect(body).toMatchObject({ token_type: 'bearer', expires_in: 3600 })
    session = body
    const user = await server.call({ path: '/user', bearer: body.access_token })
    expect(user.status).toBe(200)
    expect(user.body).toMatchObject({ email, user_metadata: { email_verified: true } })
  })

  it('changes metadata and password, and then signs in with the new one', async () => {
    const updated = await server.call({
      method: 'PUT',
      path: '/user',
      bearer: session.access_token,
      body: { password: 'battery staple', data: { name: null, theme: 'dark' } },
    })
    expect(updated.status).toBe(200)
    expect(updated.body.user_metadata).toMatchObject({ theme: 'dark' })
    expect(updated.body.user_metadata).not.toHaveProperty('name')
    const old = await server.call({
      method: 'POST',
      path: '/token?grant_type=password',
      body: { email, password },
    })
    expect(old.body).toMatchObject({ error_code: 'invalid_credentials', code: 400 })
  })

  it('refreshes the session and ends it', async () => {
    const refreshed = await server.call({
      method: 'POST',
      path: '/token?grant_type=refresh_token',
      body: { refresh_token: session.refresh_token },
    })
    expect(refreshed.status).toBe(200)
    expect(refreshed.body.refresh_token).not.toBe(session.refresh_token)
    const bearer = refreshed.body.access_token
    expect((await server.call({ method: 'POST', path: '/logout', bearer })).status).toBe(204)
    const after = await server.call({ path: '/user', bearer })
    expect(after.body).toMatchObject({ code: 403, error_code: 'session_not_found' })
  })

  it('recovers a lost password by the code of the mail', async () => {
    const asked = await server.call({ method: 'POST', path: '/recover', body: { email } })
    expect(asked).toMatchObject({ status: 200, body: {} })
    const { token } = server.lastMail(email).variables
    const { status, body } = await server.call({
      method: 'POST',
      path: '/verify',
      body: { type: 'recovery', email, token },
    })
    expect(status).toBe(200)
    expect(body.user.email).toBe(email)
  })
})
