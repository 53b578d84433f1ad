import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createProviders } from '#api/auth/external/providers.ts'
import { systemClock } from '#shared/clock.ts'

import { createUser, newEmail, PASSWORD } from './support/people.ts'
import { type CallResult, readConfig, startServer, type TestServer } from './support/server.ts'

const SETTINGS = {
  AUTH_SITE_URL: 'http://localhost:3000',
  AUTH_API_EXTERNAL_URL: 'http://localhost:9999',
  AUTH_JWT_SECRET: '37c304f8-51aa-419a-a1af-06154e63707a',
  ...enabled('GOOGLE'),
  ...enabled('APPLE'),
}

function enabled(id: string): Record<string, string> {
  const prefix = `AUTH_EXTERNAL_${id}`
  return {
    [`${prefix}_ENABLED`]: 'true',
    [`${prefix}_CLIENT_ID`]: 'client',
    [`${prefix}_SECRET`]: 'secret',
    [`${prefix}_REDIRECT_URI`]: 'http://localhost:9999/callback',
  }
}

let server: TestServer

beforeAll(async () => {
  const { external } = readConfig(SETTINGS)
  // Nothing outside can be reached.
  const fetch = async (): Promise<never> => {
    throw new Error('there is no network')
  }
  const providers = createProviders({ external, fetch, clock: systemClock })
  server = await startServer({ providers, env: SETTINGS })
})
afterAll(() => server.close())

const post = (path: string, body: object): Promise<CallResult> =>
  server.call({ method: 'POST', path, body })

describe('a path of the table', () => {
  it.each([
    ['GET', '/signup', 'POST'],
    ['DELETE', '/token', 'POST'],
    ['HEAD', '/verify', 'POST, GET'],
    ['POST', '/user', 'GET, PUT'],
    ['DELETE', '/auth/v1/settings', 'GET'],
    ['DELETE', '/admin/users/', 'GET, POST'],
    ['TRACE', '/token', 'POST'],
    ['QUERY', '/signup', 'POST'],
  ] as const)('refuses %s %s with 405 and says what it allows', async (method, path, allowed) => {
    const answer = await server.call({ method, path, body: method === 'HEAD' ? undefined : '{' })
    expect(answer).toMatchObject({ status: 405, body: '', headers: { allow: allowed } })
  })

  it('of newer servers is refused as JSON to clients that name their version', async () => {
    const headers = { 'x-supabase-api-version': '2024-01-01' }
    for (const [path, status, code] of [
      ['/auth/v1/passkeys/registration/other', 404, 'not_found'],
      ['/auth/v1/oauth/authorizations/1', 404, 'feature_disabled'],
      ['/auth/v1/factors/recovery-codes', 405, 'method_not_allowed'],
    ] as const) {
      const answer = await server.call({ path, headers })
      expect(answer, path).toMatchObject({ status, body: { code, message: expect.any(String) } })
      expect(answer.headers['x-supabase-api-version']).toBe('2024-01-01')
    }
  })

  it.each([
    ['POST', '/sso', 404, 'saml_provider_disabled'],
    ['GET', '/sso/saml/metadata?download=true', 404, 'saml_provider_disabled'],
    ['POST', '/sso/saml/acs', 404, 'saml_provider_disabled'],
    ['POST', '/admin/sso/providers', 404, 'saml_provider_disabled'],
    ['GET', '/admin/sso/providers/not-a-uuid', 404, 'sso_provider_not_found'],
    ['DELETE', '/admin/sso/providers/1', 404, 'sso_provider_not_found'],
    ['POST', '/token?grant_type=web3', 422, 'web3_provider_disabled'],
    ['GET', '/admin/oauth/clients', 404, 'feature_disabled'],
    ['POST', '/admin/oauth/clients/1/regenerate_secret', 404, 'feature_disabled'],
    ['GET', '/.well-known/oauth-authorization-server', 404, 'feature_disabled'],
    ['POST', '/oauth/token', 404, 'feature_disabled'],
  ] as const)(
    'of an absent feature answers %s %s as switched off',
    async (method, path, status, code) => {
      const bearer = await server.serviceToken()
      const body = method === 'POST' ? {} : undefined
      const answer = await server.call({ method, path, bearer, body })
      expect([answer.status, answer.body.error_code]).toEqual([status, code])
      const stranger = await server.call({ method, path, body })
      const isOpen = !path.startsWith('/admin/')
      expect(stranger.status).toBe(isOpen ? status : 401)
    },
  )

  it('of the SAML providers answers an empty list', async () => {
    const bearer = await server.serviceToken()
    const { body } = await server.call({ path: '/auth/v1/admin/sso/providers', bearer })
    expect(body).toEqual({ items: null })
  })

  it('may end in a slash', async () => {
    const { email } = await createUser(server)
    const body = { email, password: PASSWORD }
    const session = await post('/auth/v1/token/?grant_type=password', body)
    expect(session.status).toBe(200)
    const bearer = session.body.access_token
    expect((await server.call({ path: '/user/', bearer })).body).toMatchObject({ email })
  })
})

describe('fields that a client was not given', () => {
  // The Python and Dart clients write them as null, those of `gotrue_meta_security` too.
  const absent = { data: null, channel: null, gotrue_meta_security: { captcha_token: null } }

  it.each(['/signup', '/otp', '/recover', '/resend', '/token?grant_type=password'])(
    'count as absent when they are null: %s',
    async (path) => {
      const { email } = await createUser(server)
      const who = path === '/signup' ? newEmail() : email
      const type = path === '/resend' ? { type: 'signup' } : {}
      const answer = await post(path, { email: who, password: PASSWORD, ...type, ...absent })
      expect(answer.status).toBe(200)
    },
  )
})

describe('the way to a provider', () => {
  it.each([
    ['google', 'https://accounts.google.com/o/oauth2/v2/auth'],
    ['apple', 'https://appleid.apple.com/auth/authorize'],
  ])('to %s is known without asking anybody', async (id, address) => {
    const { status, location } = await server.call({ path: `/authorize?provider=${id}` })
    expect(status).toBe(302)
    const url = new URL(location)
    expect(url.origin + url.pathname).toBe(address)
    expect(url.searchParams.get('client_id')).toBe('client')
  })
})

describe('a grant that is switched off', () => {
  it.each([
    [
      { provider: 'azure' },
      'provider_disabled',
      'Provider (issuer "https://login.microsoftonline.com/common/v2.0") is not enabled',
    ],
    [
      { provider: 'facebook' },
      'provider_disabled',
      'Provider (issuer "https://www.facebook.com") is not enabled',
    ],
    [{ provider: 'github' }, 'validation_failed', 'Custom OIDC provider "github" not allowed'],
    [
      { client_id: 'x', issuer: 'https://evil.test' },
      'validation_failed',
      'Custom OIDC provider "https://evil.test" not allowed',
    ],
  ])('of id tokens is named: %j', async (fields, code, msg) => {
    const answer = await post('/token?grant_type=id_token', { id_token: 'a.b.c', ...fields })
    expect(answer.body).toEqual({ code: 400, error_code: code, msg })
  })

  it('of wallets has its own error code', async () => {
    const body = { chain: 'solana', message: 'hello', signature: 'AQID' }
    expect((await post('/token?grant_type=web3', body)).body).toEqual({
      code: 422,
      error_code: 'web3_provider_disabled',
      msg: 'Web3 provider is disabled',
    })
  })
})

describe('administrators see', () => {
  it('sign-ins that failed, of accounts that exist and of those that do not', async () => {
    const known = await createUser(server)
    const banned = await createUser(server, { ban_duration: '1h' })
    const waiting = await createUser(server, { email_confirm: false })
    const stranger = newEmail()
    for (const email of [known.email, stranger]) {
      await post('/token?grant_type=password', { email, password: 'not the password' })
    }
    for (const email of [banned.email, waiting.email]) {
      await post('/token?grant_type=password', { email, password: PASSWORD })
    }
    const path = '/admin/audit?query=action:login_failed&per_page=4'
    const { body } = await server.call({ path, bearer: await server.serviceToken() })
    const entry = (email: string, id: string, reason: string) => ({
      payload: {
        actor_id: id,
        actor_username: email,
        actor_via_sso: false,
        action: 'login_failed',
        log_type: 'account',
        traits: { provider: 'email', reason },
      },
      ip_address: '127.0.0.1',
    })
    const missing = '00000000-0000-0000-0000-000000000000'
    expect(body).toMatchObject([
      entry(waiting.email, waiting.id, 'email_not_confirmed'),
      entry(banned.email, banned.id, 'user_banned'),
      entry(stranger, missing, 'invalid_credentials'),
      entry(known.email, known.id, 'invalid_credentials'),
    ])
  })

  it('users who were deleted softly, and can delete them for good', async () => {
    const { id, email } = await createUser(server)
    const bearer = await server.serviceToken()
    const admin = (method: 'GET' | 'DELETE', body?: object) =>
      server.call({ method, path: `/admin/users/${id}`, bearer, body })
    expect((await admin('DELETE', { should_soft_delete: true })).status).toBe(200)
    const seen = await admin('GET')
    expect(seen.body).toMatchObject({ id, deleted_at: expect.any(String), user_metadata: {} })
    expect(seen.body.email).not.toBe(email)
    expect((await admin('DELETE')).status).toBe(200)
    expect((await admin('GET')).status).toBe(404)
  })
})
