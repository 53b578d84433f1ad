import { TOTP } from 'otpauth'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { type Authenticator, createAuthenticator } from './support/authenticator.ts'
import { newEmail, PASSWORD, signedInUser } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

const ORIGIN = 'http://localhost:3000'

let server: TestServer
let admin: string

beforeAll(async () => {
  server = await startServer({
    isFrozen: true,
    env: { AUTH_PASSKEY_ENABLED: 'true', AUTH_PASSKEY_MAX_PASSKEYS_PER_USER: '2' },
  })
  admin = await server.serviceToken()
})
afterAll(() => server.close())

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

const call = (method: Method, path: string, bearer?: string, body?: object): Promise<CallResult> =>
  server.call({ method, path, ...(bearer && { bearer }), ...(body && { body }) })

async function register(
  bearer: string,
  authenticator: Authenticator,
  tampering = {},
): Promise<CallResult> {
  const begun = await call('POST', '/passkeys/registration/options', bearer, {})
  if (begun.status !== 200) return begun
  const { challenge_id, options } = begun.body
  const credential = authenticator.create(options, tampering)
  return call('POST', '/passkeys/registration/verify', bearer, { challenge_id, credential })
}

async function begin(): Promise<{
  challenge_id: string
  options: Parameters<Authenticator['get']>[0]
}> {
  const { status, body } = await call('POST', '/passkeys/authentication/options', undefined, {
    gotrue_meta_security: {},
  })
  expect(status).toBe(200)
  return body
}

async function signInWith(authenticator: Authenticator, tampering = {}): Promise<CallResult> {
  const { challenge_id, options } = await begin()
  const credential = authenticator.get(options, tampering)
  return call('POST', '/passkeys/authentication/verify', undefined, { challenge_id, credential })
}

/** A user with a passkey. */
async function withPasskey() {
  const { access_token: bearer, user } = await signedInUser(server)
  const authenticator = createAuthenticator(ORIGIN)
  const { status, body } = await register(bearer, authenticator)
  expect([status, body.friendly_name]).toEqual([200, 'Passkey'])
  return { bearer, user, authenticator, passkeyId: body.id as string }
}

describe('a passkey', () => {
  it('signs its owner in without a name', async () => {
    const { user, authenticator, passkeyId } = await withPasskey()
    const flags = 'select is_backup_eligible, is_backed_up from webauthn_credentials where id = $1'
    const { rows } = await server.database.pool.query(flags, [passkeyId])
    expect(rows).toEqual([{ is_backup_eligible: false, is_backed_up: false }])
    const { options } = await begin()
    expect(options).toMatchObject({ rpId: 'localhost', userVerification: 'preferred' })
    expect(options).not.toHaveProperty('allowCredentials')
    const session = await signInWith(authenticator)
    expect(session.body).toMatchObject({ token_type: 'bearer', user: { id: user.id } })
    const [, payload] = session.body.access_token.split('.')
    const claims = JSON.parse(Buffer.from(payload, 'base64url').toString())
    expect(claims).toMatchObject({ aal: 'aal1', amr: [{ method: 'passkey' }] })
    const { body } = await call('GET', '/admin/audit?per_page=50', admin)
    const entry = { action: 'login', actor_id: user.id, traits: { passkey_id: passkeyId } }
    expect(body).toContainEqual(
      expect.objectContaining({ payload: expect.objectContaining(entry) }),
    )
    expect((await call('GET', '/settings')).body.passkeys_enabled).toBe(true)
  })

  it('can be listed, renamed and deleted only by its owner', async () => {
    const { bearer, authenticator, passkeyId } = await withPasskey()
    const { access_token: stranger } = await signedInUser(server)
    const path = `/passkeys/${passkeyId}`
    const name = { friendly_name: 'Laptop' }
    expect((await call('PATCH', path, stranger, name)).status).toBe(404)
    expect((await call('DELETE', path, stranger)).status).toBe(404)
    expect((await call('PATCH', path, bearer, { friendly_name: '' })).body.msg).toBe(
      'friendly_name is required',
    )
    expect((await call('PATCH', path, bearer, { friendly_name: 'x'.repeat(121) })).status).toBe(400)
    expect((await call('PATCH', path, bearer, name)).body).toMatchObject(name)
    expect((await call('GET', '/passkeys', stranger)).body).toEqual([])
    expect((await call('GET', '/passkeys', bearer)).body).toMatchObject([
      { id: passkeyId, ...name },
    ])
    expect((await call('DELETE', path, bearer)).status).toBe(204)
    expect((await signInWith(authenticator)).body.error_code).toBe('webauthn_verification_failed')
  })

  it('is shown to administrators, who may delete it', async () => {
    const { user, authenticator, passkeyId } = await withPasskey()
    const path = `/admin/users/${user.id}/passkeys`
    expect((await call('GET', path, admin)).body).toMatchObject([{ id: passkeyId }])
    expect((await call('DELETE', `${path}/${passkeyId}`, admin)).status).toBe(204)
    expect((await call('DELETE', `${path}/${passkeyId}`, admin)).status).toBe(404)
    expect((await signInWith(authenticator)).status).toBe(400)
  })

  it('is registered once, and at most two per user', async () => {
    const { bearer, authenticator } = await withPasskey()
    const { access_token: other } = await signedInUser(server)
    expect((await register(other, authenticator)).body.error_code).toBe(
      'webauthn_credential_exists',
    )
    const more = await Promise.all(
      [1, 2, 3].map(() => register(bearer, createAuthenticator(ORIGIN))),
    )
    expect(more.map(({ status }) => status).sort()).toEqual([200, 422, 422])
    expect((await register(bearer, createAuthenticator(ORIGIN))).body.error_code).toBe(
      'too_many_passkeys',
    )
  })

  it.each([
    ['a foreign origin', { origin: 'https://evil.test' }],
    ['another domain', { rpId: 'evil.test' }],
    ['another challenge', { challenge: 'AAAA' }],
    ['nobody at the device', { isUserPresent: false }],
  ])('is refused with %s', async (_name, tampering) => {
    const { access_token: bearer } = await signedInUser(server)
    const authenticator = createAuthenticator(ORIGIN)
    const refused = { status: 400, body: { error_code: 'webauthn_verification_failed' } }
    expect(await register(bearer, authenticator, tampering)).toMatchObject(refused)
    expect((await register(bearer, authenticator)).status).toBe(200)
    expect(await signInWith(authenticator, tampering)).toMatchObject(refused)
  })

  it('is refused if its counter went back, and for another user', async () => {
    const { authenticator } = await withPasskey()
    const { user: victim } = await signedInUser(server)
    expect((await signInWith(authenticator)).status).toBe(200)
    expect((await signInWith(authenticator, { counter: 2 })).status).toBe(400)
    const userHandle = Buffer.from(victim.id).toString('base64url')
    expect((await signInWith(authenticator, { userHandle })).status).toBe(400)
  })

  it('answers only its own challenge, once, in time, even with several requests at once', async () => {
    const { bearer, authenticator } = await withPasskey()
    const { challenge_id, options } = await begin()
    const body = { challenge_id, credential: authenticator.get(options) }
    const path = '/passkeys/authentication/verify'
    const answers = await Promise.all([1, 2, 3].map(() => call('POST', path, undefined, body)))
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 400])
    const replayed = await call('POST', path, undefined, body)
    expect(replayed.body.error_code).toBe('webauthn_challenge_not_found')
    const begun = await call('POST', '/passkeys/registration/options', bearer, {})
    const credential = authenticator.get(begun.body.options)
    const crossed = { challenge_id: begun.body.challenge_id, credential }
    expect((await call('POST', path, undefined, crossed)).body.error_code).toBe(
      'webauthn_challenge_not_found',
    )
    const late = await begin()
    server.clock.advance(301)
    const tooLate = { challenge_id: late.challenge_id, credential: authenticator.get(late.options) }
    expect((await call('POST', path, undefined, tooLate)).body.error_code).toBe(
      'webauthn_challenge_expired',
    )
    for (const [given, msg] of [
      [{}, 'challenge_id is required'],
      [{ challenge_id: 'x' }, 'challenge_id must be a valid UUID'],
    ] as const) {
      const answer = await call('POST', path, undefined, { ...given, credential })
      expect(answer.body).toMatchObject({ code: 400, msg })
    }
  })

  it('signs no banned user in', async () => {
    const { user, authenticator } = await withPasskey()
    await call('PUT', `/admin/users/${user.id}`, admin, { ban_duration: '1h' })
    expect((await signInWith(authenticator)).body.error_code).toBe('user_banned')
  })

  it('needs the second factor of a user who has one to be added or deleted', async () => {
    const { bearer, passkeyId } = await withPasskey()
    const factor = (await call('POST', '/factors', bearer, { factor_type: 'totp' })).body
    const asked = (await call('POST', `/factors/${factor.id}/challenge`, bearer)).body
    const code = new TOTP({ secret: factor.totp.secret }).generate({
      timestamp: server.clock.now(),
    })
    const proven = await call('POST', `/factors/${factor.id}/verify`, bearer, {
      challenge_id: asked.id,
      code,
    })
    const { email } = proven.body.user
    const weak = await call('POST', '/token?grant_type=password', undefined, {
      email,
      password: PASSWORD,
    })
    const { access_token: low } = weak.body
    for (const answer of [
      await call('POST', '/passkeys/registration/options', low, {}),
      await call('DELETE', `/passkeys/${passkeyId}`, low),
    ]) {
      expect([answer.status, answer.body.error_code]).toEqual([403, 'insufficient_aal'])
    }
    expect((await call('DELETE', `/passkeys/${passkeyId}`, proven.body.access_token)).status).toBe(
      204,
    )
  })

  it('that an attacker registered does not survive the confirmation of the address', async () => {
    const email = newEmail()
    const made = await call('POST', '/admin/users', admin, { email, password: PASSWORD })
    // A session from before the address was confirmed.
    const { users } = server.services.store.tables
    await server.services.store.db.update(users).set({ emailConfirmedAt: new Date() })
    const signedIn = await call('POST', '/token?grant_type=password', undefined, {
      email,
      password: PASSWORD,
    })
    const authenticator = createAuthenticator(ORIGIN)
    await register(signedIn.body.access_token, authenticator)
    await server.services.store.db.update(users).set({ emailConfirmedAt: null })
    expect((await signInWith(authenticator)).body.error_code).toBe('email_not_confirmed')
    await call('POST', '/invite', admin, { email })
    const path = `/admin/users/${made.body.id}/passkeys`
    expect((await call('GET', path, admin)).body).toEqual([])
  })
})

it('answers as switched off by default', async () => {
  const plain = await startServer()
  const answer = await plain.call({
    method: 'POST',
    path: '/passkeys/authentication/options',
    body: {},
  })
  expect(answer).toMatchObject({ status: 404, body: { error_code: 'passkey_disabled' } })
  expect((await plain.call({ path: '/settings' })).body.passkeys_enabled).toBe(false)
  await plain.close()
})
