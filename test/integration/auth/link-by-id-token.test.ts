import { afterAll, beforeAll, expect, it } from 'vitest'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { createUser, newEmail, PASSWORD, signedInUser } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

const providers = fakeProviders()
const env = {
  AUTH_EXTERNAL_ANONYMOUS_USERS_ENABLED: 'true',
  AUTH_EXTERNAL_PHONE_ENABLED: 'true',
  AUTH_SECURITY_MANUAL_LINKING_ENABLED: 'true',
}
let server: TestServer

beforeAll(async () => {
  server = await startServer({ providers, env })
})
afterAll(() => server.close())

// The request of the client's linkIdentity() with a token instead of a redirect.
function link(bearer: string | undefined, from = server): Promise<CallResult> {
  const body = { provider: 'google', id_token: 'token', link_identity: true }
  const request = { method: 'POST', path: '/token?grant_type=id_token', body } as const
  return from.call({ ...request, ...(bearer !== undefined && { bearer }) })
}

it('adds the identity to the signed-in user instead of signing in another user', async () => {
  const { access_token: bearer, user } = await signedInUser(server)
  providers.visitors.set('token', visitor('g-1', newEmail()))
  const { status, body } = await link(bearer)
  expect(status).toBe(200)
  expect(body.user).toMatchObject({ id: user.id, email: user.email })
  expect(body.user.app_metadata.providers).toEqual(['email', 'google'])
  expect((await server.call({ path: '/user', bearer: body.access_token })).status).toBe(200)
  expect((await link(bearer)).body.error_code).toBe('identity_already_exists')
  const stranger = await signedInUser(server)
  expect((await link(stranger.access_token)).body).toMatchObject({
    error_code: 'identity_already_exists',
    msg: 'Identity is already linked to another user',
  })
})

it('gives an anonymous user a name, unless another user has it', async () => {
  const { body: anonymous } = await server.call({ method: 'POST', path: '/signup', body: {} })
  const { email: taken } = await createUser(server)
  providers.visitors.set('token', visitor('g-2', taken))
  expect((await link(anonymous.access_token)).body.error_code).toBe('email_exists')
  const email = newEmail()
  providers.visitors.set('token', visitor('g-2', email))
  const { user } = (await link(anonymous.access_token)).body
  expect(user).toMatchObject({ id: anonymous.user.id, email, is_anonymous: false })
})

it('gives a user with a number the address of the identity', async () => {
  const phone = '41790001122'
  const { id } = await createUser(server, { email: undefined, phone, phone_confirm: true })
  const body = { phone, password: PASSWORD }
  const path = '/token?grant_type=password'
  const { access_token: bearer } = (await server.call({ method: 'POST', path, body })).body
  const email = newEmail()
  providers.visitors.set('token', visitor('g-4', email))
  expect((await link(bearer)).body.user).toMatchObject({ id, phone, email })
})

it('asks who the user is, and whether linking is allowed', async () => {
  providers.visitors.set('token', visitor('g-3', newEmail()))
  expect((await link(undefined)).body.error_code).toBe('no_authorization')
  expect((await link('no token')).body.error_code).toBe('no_authorization')
  expect((await link('a.b.c')).body.error_code).toBe('bad_jwt')
  const strict = await startServer({ providers })
  const { access_token: bearer } = await signedInUser(strict)
  expect((await link(bearer, strict)).body.error_code).toBe('manual_linking_disabled')
  const { rows } = await strict.database.pool.query('select count(*)::int as users from users')
  expect(rows).toEqual([{ users: 1 }])
  await strict.close()
})
