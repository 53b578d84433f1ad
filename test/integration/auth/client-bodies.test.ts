import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, newEmail, PASSWORD, signedInUser } from './support/people.ts'
import { startServer, type TestServer } from './support/server.ts'

let server: TestServer
let phones = 0
const newPhone = (): string => `4930${1_000_000 + ++phones}`

beforeAll(async () => {
  server = await startServer({
    env: {
      AUTH_MAILER_AUTOCONFIRM: 'true',
      AUTH_SMS_AUTOCONFIRM: 'true',
      AUTH_EXTERNAL_PHONE_ENABLED: 'true',
      AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true',
      AUTH_SMTP_MAX_FREQUENCY: '0',
    },
  })
})
afterAll(() => server.close())

// Clients of typed languages send every field of a request: unset fields are empty or null.
describe('a field that is', () => {
  const UNSET = [
    ['empty', ''],
    ['null', null],
  ] as const

  it.each(UNSET)('%s counts as absent in requests from users', async (_name, unset) => {
    const { access_token: bearer, user } = await signedInUser(server)
    const pkce = { code_challenge: unset, code_challenge_method: unset }
    const bodies: readonly [method: 'POST' | 'PUT', path: string, body: object][] = [
      ['POST', '/signup', { email: newEmail(), phone: unset, password: PASSWORD, data: null }],
      ['POST', '/signup', { email: unset, phone: newPhone(), password: PASSWORD, channel: unset }],
      ['POST', '/signup', { email: unset, phone: unset, password: unset, data: null }],
      [
        'POST',
        '/token?grant_type=password',
        { email: user.email, phone: unset, password: PASSWORD },
      ],
      ['POST', '/otp', { email: user.email, phone: unset, channel: unset, data: null, ...pkce }],
      ['POST', '/recover', { email: user.email, gotrue_meta_security: null, ...pkce }],
      ['POST', '/resend', { type: 'signup', email: newEmail(), phone: unset, ...pkce }],
      // An empty password is no absent one: it is refused as too weak.
      ['PUT', '/user', { email: unset, phone: unset, password: null, nonce: unset, data: null }],
      ['POST', '/factors', { factor_type: 'totp', friendly_name: unset, issuer: unset }],
    ]
    for (const [method, path, body] of bodies) {
      const answer = await server.call({ method, path, body, bearer })
      expect(answer.status, `${path} ${JSON.stringify(answer.body)}`).toBe(200)
    }
  })

  it.each(UNSET)('%s counts as absent in requests from administrators', async (_name, unset) => {
    const bearer = await server.serviceToken()
    const texts = { aud: unset, role: unset, phone: unset, password: unset, ban_duration: unset }
    const others = { email_confirm: false, user_metadata: null, app_metadata: null }
    const call = (method: 'POST' | 'PUT' | 'DELETE', path: string, body: unknown) =>
      server.call({ method, path, body, bearer })
    const made = await call('POST', '/admin/users', { ...texts, ...others, email: newEmail() })
    expect(made.body).toMatchObject({ aud: 'authenticated', role: 'authenticated' })
    const { id, email } = made.body
    const change = { ...texts, ...others, email: unset, password: null }
    const kept = await call('PUT', `/admin/users/${id}`, change)
    expect(kept.body).toMatchObject({ id, email, phone: '' })
    const link = { type: 'recovery', email, new_email: unset, password: unset, data: null }
    const answer = await call('POST', '/admin/generate_link', { ...link, redirect_to: unset })
    expect(answer.body).toMatchObject({ redirect_to: 'http://localhost:3000' })
    expect((await call('DELETE', `/admin/users/${id}`, unset === null ? 'null' : '')).body).toEqual(
      {},
    )
  })
})

it('a byte order mark before a body is passed over', async () => {
  const { email } = await createUser(server)
  const body = `\ufeff${JSON.stringify({ email, password: PASSWORD })}`
  const headers = { 'content-type': 'application/json' }
  const path = '/token?grant_type=password'
  expect((await server.call({ method: 'POST', path, body, headers })).status).toBe(200)
})

describe('an unexpected body', () => {
  it.each(['"Global"', 'null', '[1]', '{', 'scope'])('is not read: %s', async (body) => {
    const { access_token: bearer } = await signedInUser(server)
    const enrolled = await server.call({
      method: 'POST',
      path: '/factors',
      bearer,
      body: { factor_type: 'totp' },
    })
    const removed = await server.call({
      method: 'DELETE',
      path: `/factors/${enrolled.body.id}`,
      bearer,
      body,
    })
    expect(removed.status).toBe(200)
    expect((await server.call({ method: 'POST', path: '/logout', bearer, body })).status).toBe(204)
  })
})

describe('an identity says of both contacts whether they are verified', () => {
  const put = async (bearer: string, body: object) =>
    (await server.call({ method: 'PUT', path: '/user', bearer, body })).body.identities
  const both = (email_verified: boolean, phone_verified: boolean) => ({
    identity_data: { email_verified, phone_verified },
  })

  it('when a number is added', async () => {
    const { access_token } = await signedInUser(server)
    const identities = await put(access_token, { phone: newPhone() })
    expect(identities).toMatchObject([both(true, false), both(false, true)])
  })

  it('when an anonymous user gets an address', async () => {
    const visitor = await server.call({ method: 'POST', path: '/signup', body: {} })
    const identities = await put(visitor.body.access_token, { email: newEmail() })
    expect(identities).toMatchObject([both(true, false)])
  })

  it('when an administrator adds a number', async () => {
    const { id } = await createUser(server)
    const bearer = await server.serviceToken()
    const request = { method: 'PUT', path: `/admin/users/${id}`, bearer } as const
    const { body } = await server.call({ ...request, body: { phone: newPhone() } })
    expect(body.identities).toMatchObject([both(true, false), both(false, false)])
  })
})
