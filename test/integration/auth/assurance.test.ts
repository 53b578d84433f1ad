import { TOTP } from 'otpauth'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'

import type { ExternalProfile } from '#api/auth/ports.ts'

import { fakeProviders, visitor } from './support/fake-provider.ts'
import { whileWaiting } from './support/held-user.ts'
import { createUser, newEmail, signIn } from './support/people.ts'
import {
  type CallOptions,
  type CallResult,
  startServer,
  type TestServer,
} from './support/server.ts'

const VERIFIER = 'v'.repeat(43)
const PKCE = `&code_challenge=${VERIFIER}&code_challenge_method=plain`
const LINKING = '/user/identities/authorize?provider=github&skip_http_redirect=true'
const HOST = 'localhost:9999'
const providers = fakeProviders()
let server: TestServer

beforeAll(async () => {
  server = await startServer({
    isFrozen: true,
    providers,
    env: {
      AUTH_SECURITY_MANUAL_LINKING_ENABLED: 'true',
      AUTH_EXTERNAL_GITHUB_REDIRECT_URI: `http://${HOST}/callback`,
    },
  })
})
afterAll(() => server.close())

const call = (
  method: NonNullable<CallOptions['method']>,
  path: string,
  bearer?: string,
  body?: object,
) => server.call({ method, path, ...(bearer && { bearer }), ...(body && { body }) })

const linkByIdToken = (bearer: string): Promise<CallResult> => {
  const body = { provider: 'google', id_token: 'token', link_identity: true }
  return call('POST', '/token?grant_type=id_token', bearer, body)
}

/** Adds a second factor; returns the token of the session that it lifts. */
async function addFactor(bearer: string): Promise<string> {
  const { id, totp } = (await call('POST', '/factors', bearer, { factor_type: 'totp' })).body
  const { body: challenge } = await call('POST', `/factors/${id}/challenge`, bearer)
  const code = new TOTP({ secret: totp.secret }).generate({ timestamp: server.clock.now() })
  const proof = { challenge_id: challenge.id, code }
  const proven = await call('POST', `/factors/${id}/verify`, bearer, proof)
  expect(proven.status).toBe(200)
  return proven.body.access_token
}

async function providersOf(bearer: string): Promise<string[]> {
  const { body } = await call('GET', '/user', bearer)
  return body.app_metadata.providers
}

describe('the identities of a user with a second factor', () => {
  it('can be linked and unlinked only by a session that used it', async () => {
    const { email } = await createUser(server)
    const strong = await addFactor((await signIn(server, email)).access_token)
    const { access_token: weak } = await signIn(server, email)
    providers.visitors.set('token', visitor('g-1', newEmail()))
    const own = (await call('GET', '/user/identities', weak)).body.identities[0].identity_id
    for (const { status, body } of [
      await call('GET', LINKING + PKCE, weak),
      await linkByIdToken(weak),
      await call('DELETE', `/user/identities/${own}`, weak),
    ]) {
      expect([status, body.error_code]).toEqual([403, 'insufficient_aal'])
    }
    expect((await linkByIdToken(strong)).status).toBe(200)
    expect((await call('DELETE', `/user/identities/${own}`, strong)).status).toBe(200)
  })

  it('cannot be linked by a flow that began before the factor existed', async () => {
    const { email } = await createUser(server)
    const { access_token: stranger } = await signIn(server, email)
    const begun = await call('GET', LINKING + PKCE, stranger)
    providers.visitors.set('early', visitor('gh-early', newEmail()))
    const state = new URL(begun.body.url).searchParams.get('state')
    const { location } = await server.call({ path: `/callback?code=early&state=${state}` })
    const strong = await addFactor((await signIn(server, email)).access_token)
    const code = new URL(location).searchParams.get('code')
    const exchange = { auth_code: code, code_verifier: VERIFIER }
    const { body } = await call('POST', '/token?grant_type=pkce', undefined, exchange)
    expect(body.error_code).toBe('flow_state_not_found')
    expect(await providersOf(strong)).toEqual(['email'])
  })
})

it('writes app_metadata of an administrator only in a session that used the second factor', async () => {
  const { email } = await createUser(server, { role: 'admin' })
  const strong = await addFactor((await signIn(server, email)).access_token)
  const { access_token: weak } = await signIn(server, email)
  const change = (bearer: string) =>
    call('PUT', '/user', bearer, { app_metadata: { plan: 'unlimited' } })
  expect((await change(weak)).body.error_code).toBe('insufficient_aal')
  expect((await change(strong)).body.app_metadata.plan).toBe('unlimited')
})

it('links no identity when the sessions of its user end while the provider answers', async () => {
  const { email } = await createUser(server)
  const { access_token: bearer } = await signIn(server, email)
  const { headers, body } = await server.call({ path: LINKING, bearer, headers: { host: HOST } })
  const cookie = headers['set-cookie']?.split(';')[0] ?? ''
  const state = new URL(body.url).searchParams.get('state')
  const { promise: profile, resolve: answer } = Promise.withResolvers<ExternalProfile>()
  const asked = vi.spyOn(providers.visitors, 'get').mockReturnValueOnce(profile as never)
  const path = `/callback?code=slow&state=${state}`
  const late = server.call({ path, headers: { host: HOST, cookie } })
  await expect.poll(() => asked.mock.calls.length).toBeGreaterThan(0)
  const owner = await signIn(server, email)
  expect((await call('POST', '/logout', owner.access_token)).status).toBe(204)
  answer(visitor('gh-late', newEmail()))
  expect((await late).location).toContain('error_code=flow_state_not_found')
  expect(await providersOf((await signIn(server, email)).access_token)).toEqual(['email'])
})

it('keeps a factor that is verified while a session of the first level removes it', async () => {
  const { id: userId, email } = await createUser(server)
  const { access_token: bearer } = await signIn(server, email)
  const { id } = (await call('POST', '/factors', bearer, { factor_type: 'totp' })).body
  const { body } = await whileWaiting(server, userId, {
    request: () => call('DELETE', `/factors/${id}`, bearer),
    // As the verification by another session does it.
    async change(client) {
      await client.query(`update mfa_factors set status = 'verified' where id = $1`, [id])
      await client.query('delete from sessions where user_id = $1', [userId])
    },
  })
  expect(body.error_code).toBe('session_not_found')
  const { factors } = (await call('GET', '/user', (await signIn(server, email)).access_token)).body
  expect(factors).toMatchObject([{ id, status: 'verified' }])
})
