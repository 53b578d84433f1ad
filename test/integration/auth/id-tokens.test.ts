import { createHash, randomUUID } from 'node:crypto'

import {
  exportJWK,
  exportSPKI,
  type GenerateKeyPairResult,
  generateKeyPair,
  type JWK,
  SignJWT,
} from 'jose'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import { createIdTokens, type IdTokens, isAccessTokenBound } from '#api/auth/external/id-tokens.ts'
import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'
import { type HttpPeer, type PeerReply, startHttpPeer } from '#test/support/http-peers.ts'

const NOW_MS = Date.parse('2026-01-15T12:00:00Z')

interface Key extends GenerateKeyPairResult {
  readonly id: string
  readonly jwk: JWK
}

let nowMs: number
let issuer: HttpPeer
let idTokens: IdTokens
let published: Key[]
let keysReply: PeerReply | undefined
const first = await newKey('first')

beforeEach(async () => {
  nowMs = NOW_MS
  published = [first]
  keysReply = undefined
  issuer = await startHttpPeer(({ path }) =>
    path === '/keys'
      ? (keysReply ?? { body: { keys: published.map(({ jwk }) => jwk) } })
      : { body: { issuer: issuer.url, jwks_uri: `${issuer.url}/keys` } },
  )
  idTokens = createIdTokens({
    fetch: createGuardedFetch({ timeoutMs: 2_000, allowsPrivateAddresses: true }),
    clock: { now: () => nowMs, monotonic: () => nowMs },
  })
})
afterEach(() => issuer.stop())

const fetched = (path: string) => issuer.requests.filter((one) => one.path === path).length
const verify = (token: string) =>
  idTokens.verify(token, { issuer: issuer.url, audiences: ['client', 'app'] })

describe('the keys of an issuer', () => {
  it('are not requested for an unreadable token', async () => {
    for (const token of ['x', 'x.y.z', '..']) await expect(verify(token)).rejects.toThrow()
    expect(issuer.requests).toEqual([])
  })

  it('are fetched once for many tokens, and again after some time', async () => {
    const token = await signed(first)
    await Promise.all([verify(token), verify(token), verify(token)])
    expect([fetched('/keys'), fetched('/.well-known/openid-configuration')]).toEqual([1, 1])
    nowMs += 600_000
    await verify(await signed(first))
    expect([fetched('/keys'), fetched('/.well-known/openid-configuration')]).toEqual([2, 1])
  })

  it('are requested again when a new one signs, but not for every forged token', async () => {
    await verify(await signed(first))
    const second = await newKey('second')
    published = [first, second]
    for (let tries = 0; tries < 5; tries += 1) {
      await expect(verify(await signed(await newKey('forged')))).rejects.toThrow()
    }
    expect(fetched('/keys')).toBe(1)
    nowMs += 30_000
    expect(await verify(await signed(second))).toMatchObject({ sub: 'u1' })
    expect(fetched('/keys')).toBe(2)
  })

  it('that could not be fetched are requested again at the next attempt', async () => {
    const replies: PeerReply[] = [
      { status: 503, body: {} },
      { body: 'no json' },
      { body: { keys: 'none' } },
    ]
    for (const reply of replies) {
      keysReply = reply
      await expect(verify(await signed(first))).rejects.toThrow()
    }
    keysReply = undefined
    expect(await verify(await signed(first))).toMatchObject({ sub: 'u1' })
  })
})

describe('a token', () => {
  it.each<[string, Record<string, unknown>]>([
    ['of another issuer', { iss: 'https://evil.test' }],
    ['for another client', { aud: 'other' }],
    ['for nobody', { aud: [] }],
    ['that expired', { exp: NOW_MS / 1000 - 61 }],
    ['that is not valid yet', { nbf: NOW_MS / 1000 + 61 }],
    ['that never expires', { exp: undefined }],
    ['of no user', { sub: undefined }],
  ])('%s is refused', async (_name, claims) => {
    await expect(verify(await signed(first, claims))).rejects.toThrow()
  })

  it.each([
    ['https://accounts.google.com', 'accounts.google.com'],
    ['https://appleid.apple.com', 'https://account.apple.com'],
    ['https://account.apple.com', 'https://appleid.apple.com'],
  ])('of %s may name it %s', async (published, named) => {
    const pages: Record<string, object> = {
      [`${published}/.well-known/openid-configuration`]: { issuer: published, jwks_uri: 'keys:' },
      'keys:': { keys: [first.jwk] },
    }
    const { verify: verifyAt } = createIdTokens({
      fetch: async ({ url }) => ({
        status: 200,
        contentType: 'application/json',
        retryAfter: '',
        text: JSON.stringify(pages[url]),
        bytes: Buffer.alloc(0),
      }),
      clock: { now: () => nowMs, monotonic: () => nowMs },
    })
    const expected = { issuer: published, audiences: ['client'] }
    for (const iss of [published, named]) {
      expect(await verifyAt(await signed(first, { iss }), expected)).toMatchObject({ sub: 'u1' })
    }
    await expect(verifyAt(await signed(first, { iss: 'apple.com' }), expected)).rejects.toThrow()
  })

  it('may be for any of the clients', async () => {
    for (const aud of ['client', 'app', ['other', 'app']]) {
      expect(await verify(await signed(first, { aud }))).toMatchObject({ sub: 'u1' })
    }
  })

  it('signed with the public key as if it were a shared secret is refused', async () => {
    const secret = new TextEncoder().encode(await exportSPKI(first.publicKey))
    const token = await new SignJWT(claimsOf({}))
      .setProtectedHeader({ alg: 'HS256', kid: first.id })
      .sign(secret)
    await expect(verify(token)).rejects.toThrow()
  })
})

describe('the hash of an access token', () => {
  it.each(['sha256', 'sha384', 'sha512'])('binds by %s', (algorithm) => {
    const digest = createHash(algorithm).update('access').digest()
    const hash = digest.subarray(0, digest.length / 2).toString('base64url')
    expect(isAccessTokenBound({ at_hash: hash }, 'access')).toBe(true)
    expect(isAccessTokenBound({ at_hash: hash }, 'another')).toBe(false)
    expect(isAccessTokenBound({}, 'another')).toBe(true)
  })

  it('is that of the example in OpenID Connect Core', () => {
    // OpenID Connect Core 1.0, appendix A.3: access token and at_hash.
    const accessToken = 'jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y'
    expect(isAccessTokenBound({ at_hash: '77QmUPtjPfzWtF2AnpK9RQ' }, accessToken)).toBe(true)
  })
})

function claimsOf(claims: Record<string, unknown>): Record<string, unknown> {
  const seconds = Math.floor(nowMs / 1000)
  const usual = { iss: issuer.url, aud: 'client', sub: 'u1', iat: seconds, exp: seconds + 300 }
  return { ...usual, ...claims }
}

function signed(key: Key, claims: Record<string, unknown> = {}): Promise<string> {
  return new SignJWT(claimsOf(claims))
    .setProtectedHeader({ alg: 'ES256', kid: key.id })
    .sign(key.privateKey)
}

async function newKey(name: string): Promise<Key> {
  const pair = await generateKeyPair('ES256')
  const id = `${name}-${randomUUID()}`
  return { ...pair, id, jwk: { ...(await exportJWK(pair.publicKey)), kid: id, alg: 'ES256' } }
}
