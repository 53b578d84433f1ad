import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { type Authenticator, createAuthenticator } from './support/authenticator.ts'
import { signedInUser, signIn } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

const ORIGIN = 'http://localhost:3000'

let server: TestServer

beforeAll(async () => {
  server = await startServer({
    isFrozen: true,
    env: {
      AUTH_MFA_WEB_AUTHN_ENROLL_ENABLED: 'true',
      AUTH_MFA_WEB_AUTHN_VERIFY_ENABLED: 'true',
      MILLRACE_FAILURES_PER_ACCOUNT: '1000',
      MILLRACE_FAILURES_PER_NETWORK: '1000',
    },
  })
})
afterAll(() => server.close())

const post = (path: string, bearer: string, body?: object): Promise<CallResult> =>
  server.call({ method: 'POST', path, bearer, ...(body && { body }) })

interface Challenge {
  readonly id: string
  readonly type: 'create' | 'request'
  readonly publicKey: Parameters<Authenticator['create']>[0]
}

async function enroll(bearer: string, friendly_name = ''): Promise<string> {
  const { status, body } = await post('/factors', bearer, {
    factor_type: 'webauthn',
    friendly_name,
  })
  expect([status, body.type]).toEqual([200, 'webauthn'])
  return body.id
}

async function challenge(bearer: string, factorId: string): Promise<Challenge> {
  const path = `/factors/${factorId}/challenge`
  const { status, body } = await post(path, bearer, { webauthn: { rpId: 'evil.test' } })
  expect(status, JSON.stringify(body)).toBe(200)
  const { type, credential_options } = body.webauthn
  return { id: body.id, type, publicKey: credential_options.publicKey }
}

function verify(
  bearer: string,
  factorId: string,
  answer: { readonly challenge: Challenge; readonly credential: object; readonly type?: string },
): Promise<CallResult> {
  const { id, type } = answer.challenge
  const webauthn = { type: answer.type ?? type, credential_response: answer.credential }
  return post(`/factors/${factorId}/verify`, bearer, { challenge_id: id, webauthn })
}

/** A user at the second level by a new authenticator. */
async function secured() {
  const { access_token: first, user } = await signedInUser(server)
  const authenticator = createAuthenticator(ORIGIN)
  const factorId = await enroll(first, 'key')
  const asked = await challenge(first, factorId)
  const credential = authenticator.create(asked.publicKey)
  const raised = await verify(first, factorId, { challenge: asked, credential })
  return { user, authenticator, factorId, asked, raised }
}

describe('a WebAuthn factor', () => {
  it('raises the level of the session when it is registered and when it is verified', async () => {
    const { user, authenticator, factorId, asked, raised } = await secured()
    expect(asked.publicKey).toMatchObject({
      rp: { id: 'localhost', name: 'localhost:3000' },
      user: { id: Buffer.from(user.id).toString('base64url'), name: user.email },
    })
    expect(raised.body).toMatchObject({
      user: { factors: [{ id: factorId, factor_type: 'webauthn', status: 'verified' }] },
    })
    const { access_token: bearer } = await signIn(server, user.email)
    const again = await challenge(bearer, factorId)
    expect([again.type, again.publicKey]).toMatchObject([
      'request',
      { rpId: 'localhost', allowCredentials: [{ id: authenticator.credentialId }] },
    ])
    const credential = authenticator.get(again.publicKey)
    const { body } = await verify(bearer, factorId, { challenge: again, credential })
    const claims = JSON.parse(Buffer.from(body.access_token.split('.')[1], 'base64url').toString())
    expect(claims).toMatchObject({
      aal: 'aal2',
      amr: [{ method: 'mfa/webauthn' }, { method: 'password' }],
    })
    const admin = await server.serviceToken()
    const listed = await server.call({ path: `/admin/users/${user.id}/factors`, bearer: admin })
    expect(listed.body).toMatchObject([{ id: factorId, factor_type: 'webauthn' }])
    expect(server.events.slice(-3)).toEqual([
      ...['challenge_created', 'verification_attempted', 'mfa_code_login'],
    ])
    const replayed = await verify(bearer, factorId, { challenge: again, credential })
    expect(replayed.body.error_code).toBe('mfa_ip_address_mismatch')
    const other = await post('/factors', body.access_token, { factor_type: 'webauthn' })
    const second = await challenge(body.access_token, other.body.id)
    expect(second.publicKey.excludeCredentials).toMatchObject([{ id: authenticator.credentialId }])
  })

  it.each([
    ['a foreign origin', { origin: 'https://evil.test' }],
    ['another domain', { rpId: 'evil.test' }],
    ['another challenge', { challenge: 'AAAA' }],
    ['nobody at the device', { isUserPresent: false }],
    ['the other ceremony', { type: 'webauthn.get' }],
  ])('refuses a registration with %s, and takes the honest one', async (_name, tampering) => {
    const { access_token: bearer } = await signedInUser(server)
    const authenticator = createAuthenticator(ORIGIN)
    const factorId = await enroll(bearer)
    const asked = await challenge(bearer, factorId)
    const forged = authenticator.create(asked.publicKey, tampering)
    expect(await verify(bearer, factorId, { challenge: asked, credential: forged })).toMatchObject({
      status: 400,
      body: { error_code: 'webauthn_verification_failed' },
    })
    // Attestation is not asked for: what a device states about itself is ignored.
    const honest = authenticator.create(asked.publicKey, { fmt: 'packed' })
    const taken = await verify(bearer, factorId, { challenge: asked, credential: honest })
    expect(taken.status).toBe(200)
  })

  it.each([
    ['a foreign origin', { origin: 'https://evil.test' }],
    ['another domain', { rpId: 'evil.test' }],
    ['another challenge', { challenge: 'AAAA' }],
    ['a counter that went back', { counter: 1 }],
    ['the other ceremony', { type: 'webauthn.create' }],
  ])('refuses an answer with %s', async (_name, tampering) => {
    const { user, authenticator, factorId } = await secured()
    const { access_token: bearer } = await signIn(server, user.email)
    const asked = await challenge(bearer, factorId)
    const credential = authenticator.get(asked.publicKey, tampering)
    const answer = await verify(bearer, factorId, { challenge: asked, credential })
    expect(answer.body.error_code).toBe('webauthn_verification_failed')
  })

  it('refuses the authenticator of another user, and late answers', async () => {
    const [victim, attacker] = [await secured(), await secured()]
    const { access_token: bearer } = await signIn(server, victim.user.email)
    const asked = await challenge(bearer, victim.factorId)
    const credential = attacker.authenticator.get(asked.publicKey)
    const strange = await verify(bearer, victim.factorId, { challenge: asked, credential })
    expect(strange.body.error_code).toBe('webauthn_verification_failed')
    const taken = await enroll(attacker.raised.body.access_token, 'copy')
    const copy = await challenge(attacker.raised.body.access_token, taken)
    const copied = victim.authenticator.create(copy.publicKey)
    const body = { challenge: copy, credential: copied }
    expect((await verify(attacker.raised.body.access_token, taken, body)).body).toMatchObject({
      code: 422,
      error_code: 'webauthn_credential_exists',
    })
    const late = await challenge(bearer, victim.factorId)
    server.clock.advance(301)
    const answer = victim.authenticator.get(late.publicKey)
    const tooLate = await verify(bearer, victim.factorId, { challenge: late, credential: answer })
    expect(tooLate.body.error_code).toBe('mfa_challenge_expired')
  })

  it('names the fault of an answer', async () => {
    const { authenticator, factorId, raised } = await secured()
    const bearer = raised.body.access_token
    const asked = await challenge(bearer, factorId)
    const path = `/factors/${factorId}/verify`
    const without = await post(path, bearer, { challenge_id: asked.id, code: '123456' })
    expect(without.body).toMatchObject({ code: 400, msg: 'WebAuthn config required' })
    const credential = authenticator.create(asked.publicKey)
    const create = await verify(bearer, factorId, { challenge: asked, credential, type: 'create' })
    expect(create.body.msg).toBe('WebAuthn type must be request for a factor that is verified')
    const garbled = { id: 'AA', rawId: 'AA', type: 'public-key', response: {} }
    const bad = await verify(bearer, factorId, { challenge: asked, credential: garbled })
    expect(bad).toMatchObject({ status: 400, body: { error_code: 'bad_json' } })
  })
})

it('is off by default', async () => {
  const plain = await startServer()
  const { access_token: bearer } = await signedInUser(plain)
  const body = { factor_type: 'webauthn' }
  const { body: refusal } = await plain.call({ method: 'POST', path: '/factors', bearer, body })
  expect(refusal).toMatchObject({ code: 422, error_code: 'mfa_webauthn_enroll_not_enabled' })
  await plain.close()
})
