import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'

import { createProviders } from '#api/auth/external/providers.ts'
import { systemClock } from '#shared/clock.ts'
import { readExternalConfig } from '#shared/config/auth-external.ts'
import { EnvReader } from '#shared/config/env-reader.ts'
import { PROVIDER_IDS, type ProviderId } from '#shared/config/provider-ids.ts'
import { defined } from '#shared/json.ts'
import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'
import { type HttpPeer, type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'
import { ID_TOKEN_CLAIMS, PROVIDER_CASES } from '#test/support/provider-peers.ts'

const KEY_ID = 'k1'
const keys = await generateKeyPair('RS256')
let peer: HttpPeer
let answers: Record<string, PeerReply> = {}

beforeAll(async () => {
  const jwk = { ...(await exportJWK(keys.publicKey)), kid: KEY_ID, alg: 'RS256' }
  peer = await startHttpPeer((request) => {
    const own = answers[request.path]
    if (own !== undefined) return own
    if (request.path.endsWith('/.well-known/openid-configuration')) {
      return {
        body: {
          issuer: peer.url,
          authorization_endpoint: `${peer.url}/authorize`,
          token_endpoint: `${peer.url}/token`,
          jwks_uri: `${peer.url}/keys`,
        },
      }
    }
    if (request.path === '/keys') return { body: { keys: [jwk] } }
    return { status: 404, body: {} }
  })
})
beforeEach(() => {
  answers = {}
})
afterAll(() => peer.stop())

function provider(id: ProviderId, settings: { timeoutMs?: number } = {}) {
  const prefix = `AUTH_EXTERNAL_${id.toUpperCase()}`
  const external = readExternalConfig(
    new EnvReader({
      [`${prefix}_ENABLED`]: 'true',
      [`${prefix}_CLIENT_ID`]: 'client',
      [`${prefix}_SECRET`]: 'secret',
      [`${prefix}_REDIRECT_URI`]: 'https://auth.test/callback',
      [`${prefix}_URL`]: peer.url,
    }),
  )
  const fetch = createGuardedFetch({
    timeoutMs: settings.timeoutMs ?? 5000,
    bodyBytesMax: 100_000,
    allowsPrivateAddresses: true,
  })
  return createProviders({ external, fetch, clock: systemClock })
}

function idToken(claims: Record<string, unknown>, privateKey = keys.privateKey) {
  return new SignJWT({ iss: peer.url, aud: 'client', ...claims })
    .setProtectedHeader({ alg: 'RS256', kid: KEY_ID })
    .setIssuedAt()
    .setExpirationTime('5m')
    .sign(privateKey)
}

describe.each(PROVIDER_CASES)('$id', (row) => {
  const exchange = async () => {
    answers = { ...row.profile }
    answers[row.tokenPath] = {
      body: {
        access_token: 'at',
        refresh_token: 'rt',
        ...row.tokenReply,
        ...(row.claims && { id_token: await idToken(row.claims) }),
      },
    }
    return provider(row.id)
      .get(row.id)
      .exchange({ code: 'c0de', query: {}, codeVerifier: 'v'.repeat(43) })
  }

  it('sends the visitor there with state, scopes and client', async () => {
    const url = new URL(
      await provider(row.id)
        .get(row.id)
        .authorizationUrl({
          state: 'st',
          scopes: 'extra:one,extra:two',
          pkceChallenge: 'ch',
          query: { client_id: 'evil', redirect_uri: 'https://evil', prompt: 'consent' },
        }),
    )
    expect(Object.fromEntries(url.searchParams)).toMatchObject({
      state: 'st',
      client_id: 'client',
      redirect_uri: 'https://auth.test/callback',
      response_type: 'code',
      prompt: 'consent',
      scope: [...row.scopes, 'extra:one', 'extra:two'].join(' '),
    })
  })

  it('trades the code for the profile', async () => {
    const profile = await exchange()
    expect(profile).toMatchObject({
      subject: row.expected.subject,
      emails: row.expected.emails,
      metadata: row.expected.metadata ?? {},
      providerAccessToken: 'at',
      providerRefreshToken: 'rt',
    })
    const sent = peer.requests.filter((request) => request.path === row.tokenPath).at(-1)
    expect(sent?.form).toMatchObject({ grant_type: 'authorization_code', code: 'c0de' })
    const basic = `Basic ${Buffer.from('client:secret').toString('base64')}`
    expect(sent?.headers.authorization ?? sent?.form.client_secret).toBe(
      row.isBasic ? basic : 'secret',
    )
  })

  it.each([
    ['a refused code', { status: 400, body: { error: 'invalid_grant' } }],
    ['an error with status 200', { body: { error: 'bad_verification_code' } }],
    ['a page instead of JSON', { body: '<html>sorry</html>' }],
    ['an endless answer', { body: 'x'.repeat(200_000) }],
  ] as [string, PeerReply][])('fails on %s', async (_name, reply) => {
    answers = { [row.tokenPath]: reply }
    const failing = provider(row.id).get(row.id).exchange({ code: 'c', query: {} })
    await expect(failing).rejects.toThrow(/token request failed|no JSON|over 100000 bytes/)
  })
})

describe('every provider', () => {
  it('has a case here; Twitter has a separate file', () => {
    const covered = [...PROVIDER_CASES.map((row) => row.id), 'twitter']
    expect(covered.toSorted()).toEqual([...PROVIDER_IDS].toSorted())
  })

  it('abandons one that does not answer', async () => {
    answers = { '/login/oauth/access_token': 'hang' }
    const waiting = provider('github', { timeoutMs: 100 }).get('github')
    await expect(waiting.exchange({ code: 'c', query: {} })).rejects.toThrow('in time')
  })

  it('is refused by name when unknown or not enabled', () => {
    const providers = provider('github')
    expect(providers.enabledIds()).toEqual(['github'])
    expect(() => providers.get('google')).toThrow('provider is not enabled')
    expect(() => providers.get('__proto__')).toThrow('could not be found')
  })
})

describe('id tokens', () => {
  const verify = async (
    token: string,
    nonce?: string,
    own: { clientId?: string; issuer?: string } = {},
  ) =>
    defined(provider('google').get('google').verifyIdToken)(token, {
      ...(nonce !== undefined && { nonce }),
      ...own,
    })

  it('are accepted from the issuer for this client', async () => {
    const profile = await verify(await idToken(ID_TOKEN_CLAIMS))
    expect(profile).toMatchObject({ subject: 'oidc-1', metadata: { email: 'o@test.dev' } })
  })

  it('are compared with the hash of the nonce', async () => {
    // SHA-256 of "abc", FIPS 180-2 appendix B.1.
    const nonce = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'
    const token = await idToken({ ...ID_TOKEN_CLAIMS, nonce })
    await expect(verify(token, 'abc')).resolves.toMatchObject({ subject: 'oidc-1' })
    await expect(verify(token, 'abd')).rejects.toThrow('Nonces mismatch')
    await expect(verify(token)).rejects.toThrow('should either both exist or not')
  })

  it('of Facebook carry the nonce as its library received it, or a nonce of the library', async () => {
    const facebook = provider('facebook').get('facebook')
    const token = await idToken({ ...ID_TOKEN_CLAIMS, nonce: 'abc' })
    for (const expected of [{}, { nonce: 'abc' }]) {
      expect(await facebook.verifyIdToken?.(token, expected)).toMatchObject({ subject: 'oidc-1' })
    }
    await expect(facebook.verifyIdToken?.(token, { nonce: 'abd' })).rejects.toThrow('mismatch')
  })

  it('are not called invalid if the keys of the issuer cannot be fetched', async () => {
    answers['/keys'] = { status: 503, body: {} }
    const answer = verify(await idToken(ID_TOKEN_CLAIMS))
    await expect(answer).rejects.toMatchObject({ kind: 'internal', code: 'unexpected_failure' })
  })

  it('are refused if the client names a different audience or issuer', async () => {
    const token = await idToken(ID_TOKEN_CLAIMS)
    const own = { clientId: 'client', issuer: peer.url }
    await expect(verify(token, undefined, own)).resolves.toMatchObject({ subject: 'oidc-1' })
    await expect(verify(token, undefined, { clientId: 'other' })).rejects.toThrow('audience')
    await expect(verify(token, undefined, { issuer: 'https://other.test' })).rejects.toThrow('Bad')
  })

  it.each(['apple', 'azure', 'facebook', 'google', 'kakao', 'keycloak'] as const)(
    'of %s are taken from devices',
    async (id) => {
      const token = await idToken(ID_TOKEN_CLAIMS)
      const profile = await provider(id).get(id).verifyIdToken?.(token, {})
      expect(profile).toMatchObject({ subject: 'oidc-1', emails: [{ email: 'o@test.dev' }] })
    },
  )

  it('are refused when forged, foreign, expired or unsigned', async () => {
    const stranger = (await generateKeyPair('RS256')).privateKey
    const now = Math.floor(Date.now() / 1000)
    const old = new SignJWT({ ...ID_TOKEN_CLAIMS, iss: peer.url, aud: 'client', exp: now - 900 })
    const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.e30.`
    const bad = [
      await idToken(ID_TOKEN_CLAIMS, stranger),
      await idToken({ ...ID_TOKEN_CLAIMS, iss: 'https://evil.test' }),
      await old
        .setIssuedAt(now - 999)
        .setProtectedHeader({ alg: 'RS256', kid: KEY_ID })
        .sign(keys.privateKey),
      unsigned,
      'garbage',
      await idToken({ ...ID_TOKEN_CLAIMS, sub: '' }),
      await idToken({ ...ID_TOKEN_CLAIMS, sub: 'a\u0000b' }),
    ]
    for (const token of bad) await expect(verify(token)).rejects.toThrow('Bad ID token')
    const foreign = await idToken({ ...ID_TOKEN_CLAIMS, aud: 'other' })
    await expect(verify(foreign)).rejects.toThrow('Unacceptable audience')
  })
})
