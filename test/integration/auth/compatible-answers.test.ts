import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createUser, newEmail, PASSWORD, refresh, signedInUser } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

let server: TestServer
let admin: string

beforeAll(async () => {
  server = await startServer({
    env: { AUTH_SMTP_MAX_FREQUENCY: '0s', AUTH_SMS_MAX_FREQUENCY: '0s' },
  })
  admin = await server.serviceToken()
})
afterAll(() => server.close())

const post = (path: string, body: object, bearer?: string): Promise<CallResult> =>
  server.call({ method: 'POST', path, body, ...(bearer && { bearer }) })

const follow = (address: string): Promise<CallResult> => {
  const { pathname, search } = new URL(address)
  return server.call({ path: pathname + search })
}

async function actionsOf(actorId: string): Promise<string[]> {
  const { body } = await server.call({ path: '/admin/audit?per_page=50', bearer: admin })
  const entries = body as { payload: { action: string; actor_id: string } }[]
  return entries.flatMap(({ payload }) => (payload.actor_id === actorId ? [payload.action] : []))
}

describe('with phones switched off', () => {
  it.each([
    [
      '/token?grant_type=password',
      { email: 'no address', password: 'x' },
      400,
      'invalid_credentials',
    ],
    ['/otp', { email: 'no address', create_user: false }, 422, 'otp_disabled'],
    ['/otp', { phone: 'no number', create_user: false }, 422, 'otp_disabled'],
    ['/otp', { phone: '4915100000000', create_user: false }, 422, 'otp_disabled'],
    ['/otp', { phone: '4915100000000' }, 400, 'phone_provider_disabled'],
    ['/verify', { type: 'signup', token: '123456', email: 'no address' }, 422, 'validation_failed'],
    ['/verify', { type: 'sms', token: '123456', phone: 'no number' }, 400, 'validation_failed'],
    ['/resend', { type: 'sms', phone: '4915100000000' }, 400, 'phone_provider_disabled'],
    ['/resend', { type: 'sms', email: 'someone@example.com' }, 400, 'validation_failed'],
    ['/resend', { type: 'phone_change', email: 'someone@example.com' }, 200, undefined],
  ] as const)('answers POST %s %j with %d %s', async (path, body, status, code) => {
    const answer = await post(path, body)
    expect([answer.status, answer.body.error_code]).toEqual([status, code])
  })

  it('accepts a number for the account', async () => {
    const { access_token: bearer } = await signedInUser(server)
    const body = { phone: '4915100000001' }
    const answer = await server.call({ method: 'PUT', path: '/user', body, bearer })
    expect(answer).toMatchObject({ status: 200, body: { new_phone: '4915100000001' } })
  })
})

describe('the link of a sign-up from an administrator', () => {
  it('needs no password for an unconfirmed user, and keeps theirs', async () => {
    const [email, password] = [newEmail(), 'first password']
    await post('/signup', { email, password, data: { a: 1 } })
    const link = await post(
      '/admin/generate_link',
      { type: 'signup', email, data: { b: 2 } },
      admin,
    )
    expect(link.body).toMatchObject({ verification_type: 'signup', user_metadata: { a: 1, b: 2 } })
    await follow(link.body.action_link)
    const session = await post('/token?grant_type=password', { email, password })
    expect(session.body.user.user_metadata).toMatchObject({ a: 1, b: 2 })
    expect((await actionsOf(session.body.user.id)).toReversed()).toEqual([
      ...['user_confirmation_requested', 'user_signedup', 'login'],
    ])
  })
})

describe('the audit log', () => {
  it('names the revoked token of a refresh, and the name of a deleted user', async () => {
    const { user, refresh_token } = await signedInUser(server)
    await refresh(server, refresh_token)
    expect(await actionsOf(user.id)).toEqual(
      expect.arrayContaining(['login', 'token_refreshed', 'token_revoked']),
    )
    await server.call({ method: 'DELETE', path: `/admin/users/${user.id}`, bearer: admin })
    const { body } = await server.call({ path: '/admin/audit?per_page=1', bearer: admin })
    const traits = { user_id: user.id, user_email: user.email, user_phone: '' }
    expect(body[0].payload).toMatchObject({ action: 'user_deleted', traits })
  })
})

describe('metadata', () => {
  it('keeps the first address when the address changes', async () => {
    const [first, second] = [newEmail(), newEmail()]
    await post('/signup', { email: first, password: PASSWORD, data: { phone: 'an old one' } })
    await follow(server.lastMail(first).variables.confirmationUrl)
    const session = await post('/token?grant_type=password', { email: first, password: PASSWORD })
    // A field of the client's own makes no identity.
    expect(session.body.user.identities).toMatchObject([{ provider: 'email' }])
    const bearer = session.body.access_token
    await server.call({ method: 'PUT', path: '/user', body: { email: second }, bearer })
    for (const to of [first, second]) await follow(server.lastMail(to).variables.confirmationUrl)
    const { body } = await server.call({ path: '/user', bearer })
    expect(body).toMatchObject({ email: second, user_metadata: { email: first } })
  })
})

describe('a factor', () => {
  it('is not found by a verification that names no challenge', async () => {
    const { email } = await createUser(server)
    const session = await post('/token?grant_type=password', { email, password: PASSWORD })
    const bearer = session.body.access_token
    const factor = await post('/factors', { factor_type: 'totp' }, bearer)
    const answer = await post(`/factors/${factor.body.id}/verify`, { code: '123456' }, bearer)
    expect(answer).toMatchObject({ status: 422, body: { error_code: 'mfa_factor_not_found' } })
  })
})
