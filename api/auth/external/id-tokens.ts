import { createHash, timingSafeEqual } from 'node:crypto'

import { createLocalJWKSet, decodeJwt, errors, type JSONWebKeySet, jwtVerify } from 'jose'

import type { Clock } from '#shared/clock.ts'
import { textAt } from '#shared/json.ts'
import type { GuardedFetch } from '#shared/net/guarded-fetch.ts'

import { ProviderReplyError } from './profile.ts'
import { getJson } from './token-request.ts'

/** The discovery document of an issuer. */
interface Discovery {
  readonly issuer: string
  readonly authorizationEndpoint: string
  readonly tokenEndpoint: string
  readonly jwksUri: string
}

/** Checks id tokens with the keys that their issuers publish. */
export interface IdTokens {
  discover(issuer: string): Promise<Discovery>
  verify(
    idToken: string,
    expected: {
      readonly issuer: string
      issuerOf?(pattern: string, claims: Readonly<Record<string, unknown>>): string
      readonly audiences: readonly string[]
    },
  ): Promise<Readonly<Record<string, unknown>>>
}

const DISCOVERY_TTL_MS = 3_600_000
const KEYS_TTL_MS = 600_000
const KEYS_REFRESH_GAP_MS = 30_000 // An unknown key id triggers a fetch, but not with every forged token.
const ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'EdDSA']
const CLOCK_SKEW_SECONDS = 60

/** Caches discovery documents and key sets for a while; their number is that of the providers. */
export function createIdTokens(options: {
  readonly fetch: GuardedFetch
  readonly clock: Clock
}): IdTokens {
  const { fetch, clock } = options
  const discoveries = new Map<string, Kept<Discovery>>()
  const keySets = new Map<string, Kept<JSONWebKeySet>>()
  const discover = (issuer: string) =>
    keep(discoveries, issuer, {
      clock,
      ttlMs: DISCOVERY_TTL_MS,
      load: () => loadDiscovery(fetch, issuer),
    })
  const keysAt = (uri: string, ttlMs: number) =>
    keep(keySets, uri, { clock, ttlMs, load: () => loadKeys(fetch, uri) })
  return {
    discover,
    async verify(idToken, expected) {
      // Malformed tokens are refused before any keys are fetched.
      const claims = decodeJwt(idToken)
      const discovery = await discover(expected.issuer)
      const issuer = expected.issuerOf?.(discovery.issuer, claims) ?? discovery.issuer
      const check = async (ttlMs: number) => {
        const keys = createLocalJWKSet(await keysAt(discovery.jwksUri, ttlMs))
        return jwtVerify(idToken, keys, {
          issuer: issuersOf(issuer),
          audience: [...expected.audiences],
          algorithms: ALGORITHMS,
          requiredClaims: ['sub', 'exp', 'iat'],
          clockTolerance: CLOCK_SKEW_SECONDS,
          currentDate: new Date(clock.now()),
        })
      }
      try {
        return (await check(KEYS_TTL_MS)).payload
      } catch (error) {
        if (!(error instanceof errors.JWKSNoMatchingKey)) throw error
        return (await check(KEYS_REFRESH_GAP_MS)).payload
      }
    },
  }
}

/** Whether `at_hash` matches the access token; true when the id token has none. */
export function isAccessTokenBound(
  claims: Readonly<Record<string, unknown>>,
  accessToken: string,
): boolean {
  const hash = textAt(claims, 'at_hash')
  if (hash === '') return true
  // The hash of the signature's algorithm is used, and only its first half.
  return ['sha256', 'sha384', 'sha512'].some((name) => {
    const digest = createHash(name).update(accessToken).digest()
    const expected = Buffer.from(digest.subarray(0, digest.length / 2).toString('base64url'))
    const given = Buffer.from(hash)
    return given.length === expected.length && timingSafeEqual(given, expected)
  })
}

// Google's tokens may omit the scheme; Apple has two names.
const ISSUERS_OF_TWO_NAMES = [
  ['https://accounts.google.com', 'accounts.google.com'],
  ['https://appleid.apple.com', 'https://account.apple.com'],
]

function issuersOf(issuer: string): string[] {
  return ISSUERS_OF_TWO_NAMES.find((names) => names.includes(issuer)) ?? [issuer]
}

interface Kept<T> {
  readonly value: Promise<T>
  readonly sinceMs: number
}

function keep<T>(
  kept: Map<string, Kept<T>>,
  key: string,
  options: { readonly clock: Clock; readonly ttlMs: number; readonly load: () => Promise<T> },
): Promise<T> {
  const found = kept.get(key)
  const now = options.clock.now()
  if (found !== undefined && now - found.sinceMs < options.ttlMs) return found.value
  const entry = { value: options.load(), sinceMs: now }
  kept.set(key, entry)
  entry.value.catch(() => {
    // A failure is not cached; the caller receives it.
    if (kept.get(key) === entry) kept.delete(key)
  })
  return entry.value
}

async function loadDiscovery(fetch: GuardedFetch, issuer: string): Promise<Discovery> {
  const found = await getJson(fetch, {
    url: `${issuer.replace(/\/+$/, '')}/.well-known/openid-configuration`,
  })
  const discovery = {
    issuer: textAt(found, 'issuer'),
    authorizationEndpoint: textAt(found, 'authorization_endpoint'),
    tokenEndpoint: textAt(found, 'token_endpoint'),
    jwksUri: textAt(found, 'jwks_uri'),
  }
  if (discovery.issuer === '' || discovery.jwksUri === '') {
    throw new ProviderReplyError('the discovery document is incomplete')
  }
  return discovery
}

async function loadKeys(fetch: GuardedFetch, url: string): Promise<JSONWebKeySet> {
  const found = await getJson(fetch, { url })
  if (!Array.isArray((found as { keys?: unknown }).keys)) {
    throw new ProviderReplyError('the key set is not one')
  }
  return found as JSONWebKeySet
}
