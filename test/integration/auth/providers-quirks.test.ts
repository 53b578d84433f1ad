import { createHmac } from 'node:crypto'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createProviders } from '#api/auth/external/providers.ts'
import type { ExternalProfile } from '#api/auth/ports.ts'
import { systemClock } from '#shared/clock.ts'
import { readExternalConfig } from '#shared/config/auth-external.ts'
import { EnvReader } from '#shared/config/env-reader.ts'
import type { ProviderId } from '#shared/config/provider-ids.ts'
import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'
import type { PeerReply, PeerRequest } from '#test/support/http-peers.ts'
import { PROVIDER_CASES, type ProviderCase } from '#test/support/provider-peers.ts'

import { type Incident, type ProviderWorld, startProviderWorld } from './support/provider-world.ts'

const rowOf = (id: ProviderId) => PROVIDER_CASES.find((row) => row.id === id) as ProviderCase

let world: ProviderWorld
beforeAll(async () => {
  world = await startProviderWorld(rowOf('github'))
})
afterAll(() => world.stop())

function providersOf(id: ProviderId, env: Record<string, string> = {}) {
  const prefix = `AUTH_EXTERNAL_${id.toUpperCase()}`
  const settings = {
    [`${prefix}_ENABLED`]: 'true',
    [`${prefix}_CLIENT_ID`]: 'client,mobile',
    [`${prefix}_SECRET`]: 'secret',
    [`${prefix}_REDIRECT_URI`]: 'https://auth.test/callback',
    [`${prefix}_URL`]: world.url,
    ...env,
  }
  return createProviders({
    external: readExternalConfig(new EnvReader(settings)),
    fetch: createGuardedFetch({ timeoutMs: 5_000, allowsPrivateAddresses: true }),
    clock: systemClock,
  }).get(id)
}

/** A visitor who agrees at the provider and comes back. */
async function exchange(
  id: ProviderId,
  incident: Incident = {},
  extra: Record<string, string> = {},
): Promise<ExternalProfile> {
  world.become(rowOf(id), { ...incident, claims: { nonce: undefined, ...incident.claims } })
  const provider = providersOf(id)
  const url = await provider.authorizationUrl({ state: 'state', scopes: '', query: {} })
  const page = await fetch(url, { redirect: 'manual' })
  const html = await page.text()
  const back = page.headers.get('location')
  const code = back
    ? new URL(back).searchParams.get('code')
    : /name="code" value="(.*?)"/.exec(html)?.[1]
  return provider.exchange({ code: code ?? '', query: { state: 'state', ...extra } })
}

const lastTo = (path: string) =>
  world.requests.findLast((request) => request.path === path) as PeerRequest

describe('the request of a provider besides the token', () => {
  it('is a proof of the secret at Facebook', async () => {
    await exchange('facebook')
    expect(lastTo('/me').query).toEqual({
      fields: 'email,first_name,last_name,name,picture',
      appsecret_proof: createHmac('sha256', 'secret').update('provider-access').digest('hex'),
    })
  })

  it.each([
    ['twitch', '/helix/users', { 'client-id': 'client' }],
    ['notion', '/v1/users/me', { 'notion-version': '2021-08-16' }],
    ['github', '/login/oauth/access_token', { accept: 'application/json' }],
  ] as const)('is a header at %s', async (id, path, headers) => {
    await exchange(id)
    expect(lastTo(path).headers).toMatchObject(headers)
  })
})

describe('the way to a provider', () => {
  const addressOf = async (id: ProviderId, query: Record<string, string>, env = {}) =>
    new URL(
      await providersOf(id, env).authorizationUrl({
        state: 'state',
        scopes: 'one,two three',
        pkceChallenge: 'challenge',
        query,
      }),
    )

  it.each([
    [
      'workos',
      { workos_provider: 'GoogleOAuth', connection: 'c1' },
      { provider: 'GoogleOAuth', connection: 'c1' },
    ],
    ['apple', {}, { response_mode: 'form_post' }],
    ['notion', {}, { owner: 'user' }],
    ['google', { access_type: 'offline' }, { access_type: 'offline', code_challenge: 'challenge' }],
    ['github', { code_challenge: 'evil', nonce: 'evil' }, { code_challenge: 'challenge' }],
    ['google', { nonce: 'evil' }, { nonce: expect.stringMatching(/^[\w-]{43}$/) }],
  ] as [ProviderId, Record<string, string>, Record<string, string>][])(
    'at %s has %o as %o',
    async (id, query, expected) => {
      const { searchParams } = await addressOf(id, query)
      expect(Object.fromEntries(searchParams)).toMatchObject(expected)
    },
  )

  it('leads to the public hosts unless the settings name another', async () => {
    const publicHosts = {
      azure: 'https://login.microsoftonline.com/common/oauth2/v2.0/authorize',
      discord: 'https://discord.com/api/oauth2/authorize',
      github: 'https://github.com/login/oauth/authorize',
      gitlab: 'https://gitlab.com/oauth/authorize',
    }
    for (const [id, address] of Object.entries(publicHosts)) {
      const env = { [`AUTH_EXTERNAL_${id.toUpperCase()}_URL`]: '' }
      const { origin, pathname } = await addressOf(id as ProviderId, {}, env)
      expect(origin + pathname).toBe(address)
    }
    const own = { AUTH_EXTERNAL_GITLAB_URL: 'https://git.example.com/lab/' }
    expect((await addressOf('gitlab', {}, own)).href).toMatch(
      /^https:\/\/git\.example\.com\/lab\/oauth\/authorize\?/,
    )
  })
})

describe('the profile that a provider returns', () => {
  const emails = (profile: ExternalProfile) =>
    profile.emails.map(({ email, isVerified }) => [email, isVerified])

  it('contains a name from Apple only at the first sign-in', async () => {
    const user = JSON.stringify({
      name: { firstName: 'Ada', lastName: 'L.' },
      email: 'x@evil.test',
    })
    const first = await exchange('apple', { claims: { name: undefined } }, { user })
    expect(first.metadata).toMatchObject({ full_name: 'Ada L.', email: 'o@test.dev' })
    for (const extra of [{}, { user: '{' }, { user: `"${'x'.repeat(3_000)}"` }]) {
      const again = await exchange(
        'apple',
        { claims: { name: undefined } },
        extra as Record<string, string>,
      )
      expect(again.metadata).not.toHaveProperty('full_name')
    }
  })

  it.each([
    ['apple', { email_verified: 'false' }, true],
    ['azure', {}, true],
    ['azure', { xms_edov: true }, true],
    ['azure', { xms_edov: '1' }, true],
    ['azure', { xms_edov: false }, false],
    ['azure', { xms_edov: '0' }, false],
    ['google', { email_verified: 'true' }, true],
    ['google', { email_verified: false }, false],
    ['google', { email_verified: undefined }, false],
    ['slack_oidc', { email_verified: 1 }, false],
    ['oidc', { email_verified: 'yes' }, false],
  ] as [ProviderId, Record<string, unknown>, boolean][])(
    'is believed of %s with %o: %s',
    async (id, claims, isVerified) => {
      expect(emails(await exchange(id, { claims }))).toEqual([['o@test.dev', isVerified]])
    },
  )

  it.each([
    ['discord', '/api/users/@me', { id: '7', email: 'd@test.dev', verified: false }, false],
    ['zoom', '/v2/users/me', { id: 'z', email: 'd@test.dev', verified: 1 }, true],
    ['gitlab', '/api/v4/user', { id: 5, email: 'd@test.dev', confirmed_at: null }, false],
  ] as [ProviderId, string, Record<string, unknown>, boolean][])(
    'is believed of %s as its profile says',
    async (id, path, body, isVerified) => {
      const reply: PeerReply = { body }
      const found = emails(await exchange(id, { profile: { [path]: reply } }))
      expect(found[0]).toEqual(['d@test.dev', isVerified])
    },
  )

  it('comes from the profile when Google sends no id token', async () => {
    const row = rowOf('google')
    const user = { id: 'g1', name: 'Gil', email: 'gil@test.dev', verified_email: true }
    const tokens = { body: { access_token: 'provider-access' } }
    world.become(row, { tokenReply: tokens, profile: { '/userinfo/v2/me': { body: user } } })
    const profile = await providersOf('google').exchange({ code: 'c', query: {} })
    expect(profile).toMatchObject({ subject: 'g1', metadata: { full_name: 'Gil' } })
    expect(emails(profile)).toEqual([['gil@test.dev', true]])
  })

  it('keeps further claims apart', async () => {
    const claims = { hd: 'test.dev', groups: ['a'], exp_time: 1 }
    expect((await exchange('google', { claims })).metadata.custom_claims).toEqual({
      hd: 'test.dev',
    })
    expect((await exchange('oidc', { claims })).metadata.custom_claims).toMatchObject({
      groups: ['a'],
    })
  })
})
