import { createHash } from 'node:crypto'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { ExternalProfile } from '#api/auth/ports.ts'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { createUser, newEmail, PASSWORD, signedInUser, signIn } from './support/people.ts'
import { type CallResult, startServer, type TestServer } from './support/server.ts'

const providers = fakeProviders()
let server: TestServer

beforeAll(async () => {
  server = await startServer({
    isFrozen: true,
    providers,
    env: {
      AUTH_SECURITY_MANUAL_LINKING_ENABLED: 'true',
      AUTH_SMTP_MAX_FREQUENCY: '0',
      AUTH_EXTERNAL_PHONE_ENABLED: 'true',
    },
  })
})

afterAll(() => server.close())

describe('signing in with a provider', () => {
  it('makes a user and brings the session back in the fragment', async () => {
    const email = newEmail()
    const { parameters, fragment } = await dance(visitor('gh-1', email))
    expect(parameters.get('redirect')).toBe('http://localhost:3000/after')
    expect(Object.fromEntries(fragment)).toMatchObject({
      provider: 'github',
      provider_token: 'access-gh-1',
      provider_refresh_token: 'refresh-gh-1',
      token_type: 'bearer',
      expires_in: '3600',
    })
    const user = await userOf(fragment)
    expect(user).toMatchObject({
      email,
      email_confirmed_at: expect.any(String),
      app_metadata: { provider: 'github', providers: ['github'] },
      user_metadata: { full_name: 'Visitor', sub: 'gh-1' },
      identities: [{ provider: 'github', id: 'gh-1' }],
    })
    const again = await dance(visitor('gh-1', email, { name: 'Renamed' }))
    const same = await userOf(again.fragment)
    expect(same.id).toBe(user.id)
    expect(same.user_metadata.full_name).toBe('Renamed')
  })

  it('links the user who owns the verified address, and keeps the password', async () => {
    const existing = await createUser(server)
    const { fragment } = await dance(visitor('gh-2', existing.email.toUpperCase()))
    const user = await userOf(fragment)
    expect(user.id).toBe(existing.id)
    expect(user.app_metadata).toEqual({ provider: 'email', providers: ['email', 'github'] })
    expect((await signIn(server, existing.email)).user.id).toBe(existing.id)
  })

  it('does not link by an address that the provider has not verified', async () => {
    const existing = await createUser(server)
    const { fragment } = await dance(visitor('gh-3', existing.email, { isVerified: false }))
    expect(Object.fromEntries(fragment)).toMatchObject({
      error_code: 'provider_email_needs_verification',
      error_description:
        'Unverified email with github. Verify the email with github in order to sign in',
    })
    const bearer = await server.serviceToken()
    const { body } = await server.call({ path: `/admin/users/${existing.id}`, bearer })
    expect(body.identities.map((one: { provider: string }) => one.provider)).toEqual(['email'])
  })

  it('does not link by an address that the visitor only claims', async () => {
    const email = newEmail('victim')
    const data = { email, email_verified: true }
    const phone = { phone: '+41791000001', password: PASSWORD, data }
    expect((await server.call({ method: 'POST', path: '/signup', body: phone })).status).toBe(200)
    const { fragment } = await dance(visitor('gh-22', email))
    expect(await userOf(fragment)).toMatchObject({ email, phone: '' })
  })

  it('asks a new user to confirm an unverified address', async () => {
    const email = newEmail()
    const first = await dance(visitor('gh-4', email, { isVerified: false }))
    expect(Object.fromEntries(first.fragment)).toMatchObject({
      error: 'access_denied',
      error_code: 'provider_email_needs_verification',
    })
    const { tokenHash } = server.lastMail(email).variables
    await server.call({ path: `/verify?type=signup&token=${tokenHash}` })
    const second = await dance(visitor('gh-4', email, { isVerified: false }))
    expect((await userOf(second.fragment)).email).toBe(email)
  })

  it('removes the credentials of an account that was created in advance', async () => {
    const email = newEmail()
    await server.call({ method: 'POST', path: '/signup', body: { email, password: PASSWORD } })
    const { fragment } = await dance(visitor('gh-5', email))
    const user = await userOf(fragment)
    expect(user.identities.map(({ provider }: { provider: string }) => provider)).toEqual([
      'github',
    ])
    const body = { email, password: PASSWORD }
    const path = '/token?grant_type=password'
    expect((await server.call({ method: 'POST', path, body })).status).toBe(400)
  })

  it('refuses visitors without an address, and banned users', async () => {
    const { fragment } = await dance(visitor('gh-6', undefined))
    expect(fragment.get('error_description')).toBe(
      'Error getting user email from external provider',
    )
    const banned = await createUser(server, { ban_duration: '24h' })
    const refused = await dance(visitor('gh-7', banned.email))
    expect(refused.fragment.get('error_code')).toBe('user_banned')
    expect(refused.fragment.get('error')).toBe('access_denied')
  })

  it('ends in a code for PKCE, and the exchange returns the tokens', async () => {
    const verifier = 'v'.repeat(43)
    const challenge = createHash('sha256').update(verifier).digest('base64url')
    const query = `&code_challenge=${challenge}&code_challenge_method=s256`
    const { parameters } = await dance(visitor('gh-8', newEmail()), query)
    const exchange = (code_verifier: string) =>
      server.call({
        method: 'POST',
        path: '/token?grant_type=pkce',
        body: { auth_code: parameters.get('code'), code_verifier },
      })
    expect((await exchange('w'.repeat(43))).body.error_code).toBe('bad_code_verifier')
    const tries = await Promise.all([exchange(verifier), exchange(verifier), exchange(verifier)])
    expect(tries.map((answer) => answer.status).sort()).toEqual([200, 404, 404])
    const { body } = tries.find((answer) => answer.status === 200) as { body: object }
    expect(body).toMatchObject({ provider_token: 'access-gh-8', user: { identities: [{}] } })
  })

  it('passes scopes and foreign parameters on, and keeps its own', async () => {
    await server.call({
      path: '/authorize?provider=GitHub&scopes=repo,gist&login_hint=me&redirect_uri=x&state=y',
    })
    const { scopes, query } = providers.seen.at(-1) as (typeof providers.seen)[number]
    expect(scopes).toBe('repo,gist')
    expect(query).toEqual({ login_hint: 'me' })
  })

  it('refuses unknown providers with 400', async () => {
    const answer = await server.call({ path: '/authorize?provider=gitlab' })
    expect(answer.body).toMatchObject({
      code: 400,
      error_code: 'validation_failed',
      msg: 'Unsupported provider: provider is not enabled',
    })
  })
})

describe('a state', () => {
  const refusedWith = async (query: string): Promise<string> => {
    const { status, location } = await server.call({ path: `/callback?${query}` })
    expect(status).toBe(303)
    expect(location).toMatch(/^http:\/\/localhost:3000\?/)
    return new URL(location).searchParams.get('error_code') as string
  }

  it('must be there, and be one that was given out', async () => {
    expect(await refusedWith('code=x')).toBe('bad_oauth_callback')
    expect(await refusedWith('code=x&state=forged')).toBe('bad_oauth_state')
  })

  it('is valid once, and for five minutes', async () => {
    const used = await begin()
    providers.visitors.set('once', visitor('gh-10', newEmail()))
    await server.call({ path: `/callback?code=once&state=${used}` })
    expect(await refusedWith(`code=once&state=${used}`)).toBe('bad_oauth_state')
    const late = await begin()
    server.clock.advance(301)
    expect(await refusedWith(`code=once&state=${late}`)).toBe('bad_oauth_state')
  })

  it('brings the provider’s refusal back to the application', async () => {
    const state = await begin()
    const query = `error=access_denied&error_description=No+thanks&state=${state}`
    const { location } = await server.call({ path: `/callback?${query}` })
    const url = new URL(location)
    expect(url.searchParams.get('error_description')).toBe('No thanks')
    expect(url.hash).toBe(
      '#error=access_denied&error_code=access_denied&error_description=No+thanks',
    )
  })

  it('is read from form data too, and hides the reason for a failure at the provider', async () => {
    const state = await begin()
    const body = new URLSearchParams({ state, code: 'unknown' }).toString()
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    const answer = await server.call({ method: 'POST', path: '/callback', body, headers })
    expect(answer.status).toBe(302)
    const { searchParams } = new URL(answer.location)
    expect(searchParams.get('error')).toBe('server_error')
    expect(searchParams.get('error_description')).toBe('Unable to exchange external code: unknown')
  })
})

describe('linking by hand', () => {
  it('adds an identity, refuses one that belongs to another user, and removes it again', async () => {
    const session = await signedInUser(server)
    const { access_token: bearer } = session
    const linked = await link(bearer, visitor('g-1', newEmail()))
    expect(linked.get('access_token')).toEqual(expect.any(String))
    const again = await link(bearer, visitor('g-1', newEmail()))
    expect(again.get('error_code')).toBe('identity_already_exists')
    const id = await identityOf(bearer, 'google')
    expect((await unlink(bearer, id)).status).toBe(200)
    expect((await unlink(bearer, id)).body.error_code).toBe('single_identity_not_deletable')
    expect((await unlink(bearer, 'x')).status).toBe(404)
    const user = await server.call({ path: '/user', bearer })
    expect(user.body.app_metadata).toEqual({ provider: 'email', providers: ['email'] })
    expect(user.body.user_metadata).toEqual(session.user.user_metadata)
  })

  it.each([
    ['with PKCE, without the verifier of the linking client', undefined],
    ['without PKCE, in a browser that did not begin the flow', ''],
  ])('links nothing when a victim opens the URL %s', async (_title, pkce) => {
    const { access_token: attacker } = await signedInUser(server)
    const profile = visitor(`g-victim-${pkce === ''}`, newEmail('victim'))
    const { location } = await returnFromLinking(attacker, profile, pkce)
    const code = new URL(location).searchParams.get('code')
    if (code !== null) expect((await exchange(code, 'w'.repeat(43))).status).toBe(400)
    else expect(location).toContain('error_code=bad_oauth_state')
    const { body } = await server.call({ path: '/user/identities', bearer: attacker })
    expect(body.identities.map((one: { provider: string }) => one.provider)).toEqual(['email'])
  })

  it('ends with the sessions of the user: a flow that was begun before links nothing', async () => {
    const { access_token: bearer, user } = await signedInUser(server)
    const profile = visitor('g-late', newEmail())
    const begun = await returnFromLinking(bearer, profile)
    const { email } = user as { email: string }
    const own = await server.call({
      method: 'POST',
      path: '/token?grant_type=password',
      body: { email, password: PASSWORD },
    })
    await server.call({ method: 'POST', path: '/logout', bearer: own.body.access_token })
    const code = new URL(begun.location).searchParams.get('code') ?? ''
    expect((await exchange(code, VERIFIER)).body.error_code).toBe('flow_state_not_found')
    const late = await server.call({
      path: `/user/identities/authorize?provider=google&code_challenge=${CHALLENGE}`,
      bearer,
    })
    expect(late.body.error_code).toBe('session_not_found')
    expect(
      (await link((await signedInUser(server)).access_token, profile)).has('access_token'),
    ).toBe(true)
  })

  it('makes no user the owner of an address that the provider has not verified', async () => {
    const { access_token: bearer, user: other } = await signedInUser(server)
    const email = newEmail('victim')
    await link(bearer, visitor('g-20', email, { isVerified: false }))
    const owner = await userOf((await dance(visitor('gh-20', email))).fragment)
    expect(owner).toMatchObject({ email, identities: [{ id: 'gh-20' }] })
    expect(owner.id).not.toBe(other.id)
    const { access_token: third, user: losing } = await signedInUser(server)
    await link(third, visitor('g-21', newEmail('claimed'), { isVerified: false }))
    const recover = { email: (losing as { email: string }).email }
    await server.call({ method: 'POST', path: '/recover', body: recover })
    const { tokenHash } = server.lastMail(recover.email).variables
    expect((await unlink(third, await identityOf(third, 'email'))).status).toBe(200)
    const late = await server.call({ path: `/verify?type=recovery&token=${tokenHash}` })
    expect(late.location).toContain('error_code=otp_expired')
    const { body } = await server.call({ path: '/user', bearer: third })
    expect(body).toMatchObject({ email: '', identities: [{ id: 'g-21' }] })
    expect(body).not.toHaveProperty('email_confirmed_at')
  })
})

/** Links as a client with PKCE does; resolves with the tokens, or the error of the callback. */
async function link(bearer: string, profile: ExternalProfile): Promise<URLSearchParams> {
  const { location } = await returnFromLinking(bearer, profile)
  const code = new URL(location).searchParams.get('code')
  if (code === null) return new URLSearchParams(new URL(location).hash.slice(1))
  const { body } = await exchange(code, VERIFIER)
  return new URLSearchParams(body)
}

const VERIFIER = 'v'.repeat(43)
const CHALLENGE = createHash('sha256').update(VERIFIER).digest('base64url')

/** Asks for the URL of a linking flow, and returns from the provider to the callback. */
async function returnFromLinking(
  bearer: string,
  profile: ExternalProfile,
  pkce = `&code_challenge=${CHALLENGE}&code_challenge_method=s256`,
): Promise<CallResult> {
  const path = `/user/identities/authorize?provider=google&skip_http_redirect=true${pkce}`
  const { body } = await server.call({ path, bearer })
  const state = new URL(body.url).searchParams.get('state')
  providers.visitors.set('link', profile)
  return server.call({ path: `/callback?code=link&state=${state}` })
}

function exchange(code: string, verifier: string): Promise<CallResult> {
  return server.call({
    method: 'POST',
    path: '/token?grant_type=pkce',
    body: { auth_code: code, code_verifier: verifier },
  })
}

async function identityOf(bearer: string, provider: string): Promise<string> {
  const { body } = await server.call({ path: '/user/identities', bearer })
  return body.identities.find((one: { provider: string }) => one.provider === provider).identity_id
}

const unlink = (bearer: string, id: string): Promise<CallResult> =>
  server.call({ method: 'DELETE', path: `/user/identities/${id}`, bearer })

describe('an id token', () => {
  it('signs in like the redirect does', async () => {
    const email = newEmail()
    providers.visitors.set('id-token', visitor('g-9', email))
    const sign = (body: object) =>
      server.call({ method: 'POST', path: '/token?grant_type=id_token', body })
    const { body } = await sign({ provider: 'google', id_token: 'id-token' })
    expect(body.user).toMatchObject({ email, app_metadata: { provider: 'google' } })
    expect((await sign({ provider: 'google' })).body.error_description).toBe('id_token required')
    expect((await sign({ id_token: 'x' })).body).toMatchObject({
      error: 'invalid request',
      error_description: 'provider or client_id and issuer required',
    })
    const foreign = { id_token: 'x', client_id: 'c', issuer: 'http://169.254.169.254' }
    expect((await sign(foreign)).body.msg).toBe(
      'Custom OIDC provider "http://169.254.169.254" not allowed',
    )
  })
})

async function begin(query = ''): Promise<string> {
  const redirectTo = encodeURIComponent('http://localhost:3000/after')
  const path = `/authorize?provider=github&redirect_to=${redirectTo}${query}`
  const { status, location } = await server.call({ path })
  expect(status).toBe(302)
  return new URL(location).searchParams.get('state') as string
}

async function dance(
  profile: ExternalProfile,
  query = '',
): Promise<{ parameters: URLSearchParams; fragment: URLSearchParams }> {
  const state = await begin(query)
  providers.visitors.set('code', profile)
  const { location } = await server.call({ path: `/callback?code=code&state=${state}` })
  const url = new URL(location)
  url.searchParams.set('redirect', url.origin + url.pathname)
  return { parameters: url.searchParams, fragment: new URLSearchParams(url.hash.slice(1)) }
}

// biome-ignore lint/suspicious/noExplicitAny: tests read answers of any shape.
async function userOf(fragment: URLSearchParams): Promise<any> {
  const bearer = fragment.get('access_token')
  expect(bearer, fragment.toString()).not.toBeNull()
  return (await server.call({ path: '/user', bearer: bearer as string })).body
}
