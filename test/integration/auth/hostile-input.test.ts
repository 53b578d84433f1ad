import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, newEmail, PASSWORD, signedInUser } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let server: TestServer

beforeAll(async () => {
  server = await startServer({
    env: { AUTH_MAILER_AUTOCONFIRM: 'true', AUTH_JWT_DEFAULT_GROUP_NAME: 'authenticated' },
  })
})

afterAll(() => server.close())

const post = (path: string, body: unknown): Promise<CallResult> =>
  server.call({ method: 'POST', path, body })

describe('bodies that make no sense', () => {
  it('are refused with a code and the field at fault', async () => {
    const TOO_LONG = expect.stringContaining('phone must not have more than 64 characters')
    const cases: readonly (readonly [path: string, body: unknown, expected: object])[] = [
      ['/signup', '{', { code: 400, error_code: 'bad_json' }],
      ['/signup', '', { code: 400, error_code: 'bad_json' }],
      ['/signup', 'null', { code: 400, error_code: 'bad_json' }],
      ['/signup', '[]', { code: 400, error_code: 'bad_json' }],
      ['/signup', '"text"', { code: 400, error_code: 'bad_json' }],
      ['/signup', { email: 3, password: PASSWORD }, { msg: expect.stringContaining('email') }],
      ['/signup', { email: 'a@b.c', data: 'x' }, { msg: expect.stringContaining('data') }],
      [
        '/otp',
        { email: 'a@b.c', create_user: 'no' },
        { msg: expect.stringContaining('create_user must be boolean') },
      ],
      ['/otp', { phone: '+'.repeat(65) }, { msg: TOO_LONG }],
      [
        '/passkeys/authentication/verify',
        { credential: { id: '!', type: 'public-key' } },
        {
          msg: expect.stringContaining('credential must have required properties rawId, response'),
        },
      ],
      ['/signup', { email: 'a@b.c' }, { msg: 'Signup requires a valid password' }],
      [
        '/signup',
        { email: 'a@b.c', phone: '+41791234567', password: PASSWORD },
        { msg: 'Only an email address or phone number should be provided on signup.' },
      ],
      ['/token?grant_type=password', { password: 'x' }, { msg: 'missing email or phone' }],
      ['/token?grant_type=magic', {}, { msg: 'unsupported_grant_type' }],
      ['/token?grant_type=__proto__', {}, { msg: 'unsupported_grant_type' }],
      ['/recover', {}, { msg: 'Password recovery requires an email' }],
      ['/resend', { type: 'x', email: 'a@b.c' }, { msg: expect.stringMatching(/^Missing one of/) }],
      ['/resend', { type: 'signup' }, { msg: 'Missing email address or phone number' }],
      ['/magiclink', {}, { code: 422, msg: 'Password recovery requires an email' }],
      ['/otp', {}, { msg: 'One of email or phone must be set' }],
      ['/sso', {}, { code: 404, msg: 'SAML 2.0 is disabled' }],
    ]
    for (const [path, body, expected] of cases) {
      const answer = await post(path, body)
      expect(answer.body, `${path} ${JSON.stringify(body)}`).toMatchObject(expected)
      expect(answer.status).toBe(answer.body.code)
    }
  })

  it('are refused when the database could not hold them', async () => {
    const email = newEmail()
    const bodies = [
      `{"email":"${email}","password":"${PASSWORD}","data":{"a":"\\u0000"}}`,
      `{"email":"${email}","password":"${PASSWORD}","data":{"a":"\\ud800"}}`,
      `{"email":"${email}","password":"${PASSWORD}","data":{"\\u0000":1}}`,
      `{"email":"${email}","password":"${PASSWORD}","data":{"__proto__":{"x":1}}}`,
      `{"email":"${email}","password":"${PASSWORD}","data":{"a":1e400}}`,
      `{"email":"${email}","password":"${PASSWORD}","data":${'{"a":'.repeat(100)}1${'}'.repeat(100)}}`,
    ]
    for (const body of bodies) {
      expect((await post('/signup', body)).body).toMatchObject({
        code: 400,
        error_code: 'bad_json',
      })
    }
    const huge = { email, password: PASSWORD, data: { a: 'x'.repeat(1_100_000) } }
    expect((await post('/signup', huge)).status).toBe(413)
    expect(await count(email)).toBe(0)
  })

  it('are read as JSON under any content type, and as form data if the type says so', async () => {
    const { email } = await createUser(server)
    const body = JSON.stringify({ email, password: PASSWORD })
    const ofForms = 'application/x-www-form-urlencoded'
    const types = ['text/plain', 'application/json;charset=UTF-8', 'application/xml', ofForms]
    for (const type of types) {
      const headers = { 'content-type': type }
      const path = '/token?grant_type=password'
      const answer = await server.call({ method: 'POST', path, body, headers })
      expect(answer.status).toBe(200)
    }
    const form = new URLSearchParams({ grant_type: 'password', email, password: PASSWORD })
    const headers = { 'content-type': ofForms }
    const call = { method: 'POST', path: '/token', body: form.toString(), headers } as const
    expect((await server.call(call)).status).toBe(200)
  })
})

describe('addresses and numbers', () => {
  const BAD_EMAILS = [
    'x',
    'a@',
    '@b.c',
    'a b@c.d',
    'a@b..c',
    'a@-b.c',
    'a@b.c\r\nBcc: x@y.z',
    'a@b,c',
  ]

  it('that are invalid are refused with the words that clients look for', async () => {
    for (const email of BAD_EMAILS) {
      const { body } = await post('/signup', { email, password: PASSWORD })
      expect(body).toEqual({
        code: 400,
        error_code: 'validation_failed',
        msg: 'Unable to validate email address: invalid format',
      })
    }
  })

  it('are text and never part of a statement', async () => {
    const tricks = ["'; drop table users; --", '%', '_', "x' or '1'='1"]
    const bearer = await server.serviceToken()
    for (const trick of tricks) {
      const filter = encodeURIComponent(trick)
      const list = await server.call({ path: `/admin/users?filter=${filter}`, bearer })
      expect(list).toMatchObject({ status: 200, body: { users: [] } })
    }
    expect((await server.call({ path: '/admin/users', bearer })).status).toBe(200)
  })
})

describe('fields that are not the user’s to set', () => {
  it('change nothing at sign-up', async () => {
    const email = newEmail()
    const { status, body } = await post('/signup', {
      email,
      password: PASSWORD,
      role: 'service_role',
      aud: 'admin',
      app_metadata: { admin: true },
      id: '11111111-1111-4111-8111-111111111111',
      is_anonymous: true,
      banned_until: '2099-01-01',
      data: { role: 'service_role' },
    })
    expect(status).toBe(200)
    expect(body.user).toMatchObject({
      role: 'authenticated',
      aud: 'authenticated',
      app_metadata: { provider: 'email', providers: ['email'] },
      is_anonymous: false,
    })
    expect(body.user.id).not.toMatch(/^11111111/)
  })

  it('are refused or change nothing at an update', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const put = (body: object) => server.call({ method: 'PUT', path: '/user', bearer, body })
    expect((await put({ app_metadata: { admin: true } })).body).toMatchObject({
      code: 403,
      error_code: 'not_admin',
    })
    const { body } = await put({ role: 'service_role', aud: 'x', data: { a: 1 } })
    expect(body).toMatchObject({
      role: 'authenticated',
      aud: 'authenticated',
      user_metadata: { a: 1 },
    })
  })

  it('cannot take another user’s address or number', async () => {
    const other = await createUser(server)
    const { access_token: bearer } = await signedInUser(server)
    const body = { email: other.email.toUpperCase() }
    expect((await server.call({ method: 'PUT', path: '/user', bearer, body })).body).toMatchObject({
      code: 422,
      error_code: 'email_exists',
    })
  })
})

describe('passwords', () => {
  it('must be long enough and not longer than can be hashed', async () => {
    const sign = (password: string) => post('/signup', { email: newEmail(), password })
    expect((await sign('12345')).body).toEqual({
      code: 422,
      error_code: 'weak_password',
      msg: 'Password should be at least 6 characters.',
      weak_password: { reasons: ['length'] },
    })
    expect((await sign('x'.repeat(73))).body).toMatchObject({ code: 400 })
    expect((await sign('ä'.repeat(37))).body).toMatchObject({ code: 400 })
    expect((await sign('x'.repeat(72))).status).toBe(200)
  })

  it('must differ from the one before', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const body = { password: PASSWORD }
    expect((await server.call({ method: 'PUT', path: '/user', bearer, body })).body).toMatchObject({
      code: 422,
      error_code: 'same_password',
    })
  })
})

describe('errors', () => {
  it('carry a textual code for clients that request it, and return the version', async () => {
    const ask = (version: string) =>
      server.call({
        method: 'POST',
        path: '/token?grant_type=password',
        body: { email: newEmail(), password: 'x' },
        headers: { 'x-supabase-api-version': version },
      })
    const fresh = await ask('2024-01-01')
    expect(fresh.body).toEqual({
      code: 'invalid_credentials',
      message: 'Invalid login credentials',
    })
    expect(fresh.headers['x-supabase-api-version']).toBe('2024-01-01')
    for (const old of ['2023-12-31', 'yesterday', '2024-13-99']) {
      expect((await ask(old)).body.code).toBe(400)
    }
    expect(fresh.headers['x-sb-error-code']).toBe('invalid_credentials')
  })
})

async function count(email: string): Promise<number> {
  const { rows } = await server.database.pool.query('select 1 from users where email = $1', [email])
  return rows.length
}
