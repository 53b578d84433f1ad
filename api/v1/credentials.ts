import type { GuessLimiter } from '#api/limits/guess-limiter.ts'
import type { Clock } from '#shared/clock.ts'
import { type ApiKeyStore, hashSecret, type StoredApiKey } from '#shared/db/api-keys.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import { hasLimits } from './key-limits.ts'
import type { Caller } from './request-context.ts'
import { MEMBER_SCOPES } from './scopes.ts'

/** A revoked key must stop within a second, so no result is trusted for longer. */
export const TRUST_MS = 900
// While the database is unavailable, recently seen keys stay valid.
const TRUST_WITHOUT_DATABASE_MS = 10 * 60_000
// A database that does not answer within this time counts as unavailable.
const PATIENCE_MS = 1000
const CACHED_KEYS_MAX = 10_000
const TOUCH_INTERVAL_MS = 60_000
const SECRET_LENGTH_MAX = 512
// The part of a key that lists show.
const PREFIX_CHARACTERS = 10

/** The identity that a user's access token proves. */
export interface UserAccess {
  readonly userId: string
  readonly isAnonymous?: boolean
  /** The user's organizations, the default one first. */
  readonly organizations: readonly {
    readonly id: string
    readonly role: 'owner' | 'admin' | 'member'
  }[]
}

/** The dependencies of authentication. */
export interface CredentialServices {
  readonly apiKeys: ApiKeyStore
  /** `outlasts` means that the result of the request is valid for longer than the access token. */
  readonly verifyAccessToken?: (
    accessToken: string,
    outlasts: boolean,
  ) => Promise<UserAccess | undefined>
  /** Delays clients that guess keys; without it they are not delayed. */
  readonly guesses?: GuessLimiter
  readonly clock: Clock
  readonly log: Logger
}

/** The credentials of a request, its organization and purpose. */
interface CredentialHeaders {
  readonly authorization?: string | undefined
  /** The network of the client, by which wrong keys are counted. */
  readonly network?: string
  readonly organization?: string | undefined
  /** Whether the result of the request may outlast the credential, like keys and memberships. */
  readonly outlasts?: boolean
}

/** Returns the caller of a request's credential. Throws `unauthenticated`. */
export type Authenticate = (headers: CredentialHeaders) => Promise<Caller>

/** Reads API keys (as bearer or as the password of a blank user) and users' access tokens. */
export function createAuthenticate(services: CredentialServices): Authenticate {
  const keys = new KnownKeys(services)
  return async ({ authorization, organization, network = '', outlasts = false }) => {
    const secret = readSecret(authorization)
    const { verifyAccessToken } = services
    if (verifyAccessToken !== undefined && looksLikeAccessToken(secret)) {
      const access = await verifyAccessToken(secret, outlasts)
      if (access === undefined) throw wrongKey(secret)
      return callerOfUser(access, organization)
    }
    const key = await keys.find(secret, network)
    if (key === undefined) throw wrongKey(secret)
    return callerOfKey(key)
  }
}

const NO_KEY =
  "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY), or as the password field (with blank username) if you're accessing the API from your browser and are prompted for a username and password. You can create an API key with `millrace keys create`."

function readSecret(authorization: string | undefined): string {
  if (authorization === undefined || authorization.trim() === '') {
    throw failure.unauthenticated(NO_KEY)
  }
  const [scheme = '', value = ''] = authorization.trim().split(/\s+/, 2)
  const secret = scheme.toLowerCase() === 'basic' ? passwordOf(value) : value
  const isKnownScheme = /^(bearer|basic)$/i.test(scheme)
  if (!isKnownScheme || secret === undefined) {
    throw failure.unauthenticated(
      'Invalid Authorization header. Expected `Authorization: Bearer YOUR_KEY`.',
      { code: 'invalid_api_key' },
    )
  }
  if (secret === '') throw failure.unauthenticated(NO_KEY)
  if (secret.length > SECRET_LENGTH_MAX && !looksLikeAccessToken(secret)) throw wrongKey(secret)
  return secret
}

function passwordOf(encoded: string): string | undefined {
  const [user, ...password] = Buffer.from(encoded, 'base64').toString('utf8').split(':')
  return user === '' ? password.join(':') : undefined
}

function looksLikeAccessToken(secret: string): boolean {
  return secret.startsWith('eyJ') && secret.split('.').length === 3
}

function wrongKey(secret: string): ServiceError {
  // Enough to recognize a key, too little to use it.
  const shown =
    secret.length < 16 ? '****' : `${secret.slice(0, 7)}${'*'.repeat(8)}${secret.slice(-4)}`
  return failure.unauthenticated(
    `Incorrect API key provided: ${shown}. You can see which keys exist with \`millrace keys list\`.`,
    { code: 'invalid_api_key' },
  )
}

/** A key belongs to one organization: a header that names another one has no effect. */
function callerOfKey(key: StoredApiKey): Caller {
  return {
    organizationId: key.organizationId,
    apiKeyId: key.id,
    ...(key.createdBy !== null && { madeBy: key.createdBy }),
    scopes: key.scopes,
    modelIds: key.modelIds,
    expiresAtMs: key.expiresAt?.getTime() ?? null,
    ...(hasLimits(key) && { limits: key }),
  }
}

function callerOfUser(access: UserAccess, organization: string | undefined): Caller {
  const isOnlyOne = access.organizations.length === 1
  const chosen =
    organization === undefined || isOnlyOne
      ? access.organizations[0]
      : access.organizations.find(({ id }) => id === organization)
  if (chosen === undefined && organization !== undefined) {
    throw notAMember(organization)
  }
  if (chosen === undefined) {
    throw failure.unauthenticated('You must be a member of an organization to use the API.')
  }
  return {
    organizationId: chosen.id,
    userId: access.userId,
    ...(access.isAnonymous === true && { isAnonymous: true }),
    role: chosen.role,
    scopes: chosen.role === 'member' ? MEMBER_SCOPES : null,
    modelIds: null,
    expiresAtMs: null,
  }
}

/** The user of a request is no member of the organization that it is for. */
export function notAMember(id: string): ServiceError {
  return failure.unauthenticated(`No such organization: ${id.slice(0, 64)}.`, {
    code: 'invalid_organization',
  })
}

interface CachedKey {
  readonly key: StoredApiKey
  readonly loadedAtMs: number
  touchedAtMs: number
}

/** A database lookup in flight. */
interface Lookup {
  readonly answer: Promise<StoredApiKey | undefined>
  readonly sinceMs: number
}

/** API keys by the hash of their secret, each looked up once a second at most. */
class KnownKeys {
  readonly #services: CredentialServices
  readonly #cache = new Map<string, CachedKey>()
  readonly #lookups = new Map<string, Lookup>()

  constructor(services: CredentialServices) {
    this.#services = services
  }

  async find(secret: string, network: string): Promise<StoredApiKey | undefined> {
    const sha256 = hashSecret(secret)
    const hash = sha256.toString('base64')
    const cached = this.#cache.get(hash)
    const nowMs = this.#services.clock.now()
    const isFresh = cached !== undefined && this.#ageMs(cached) < TRUST_MS
    if (isFresh) return this.#inTime(hash, cached.key, nowMs)
    const lookUp = () => this.#lookUpOnce(hash, sha256)
    const { guesses } = this.#services
    // A key that was valid a moment ago is not a guess, so its requests skip the counter.
    const isGuess = cached === undefined && guesses !== undefined
    const key = isGuess
      ? await guesses.judge(
          { kind: 'api_key', account: secret.slice(0, PREFIX_CHARACTERS), network },
          lookUp,
          (one) => one !== undefined,
        )
      : await lookUp()
    return key && this.#inTime(hash, key, nowMs)
  }

  /** Undefined for a key that has expired; otherwise records its use. */
  #inTime(hash: string, key: StoredApiKey, nowMs: number): StoredApiKey | undefined {
    if (key.expiresAt !== null && key.expiresAt.getTime() <= nowMs) return undefined
    this.#touch(hash, nowMs)
    return key
  }

  #ageMs(cached: CachedKey): number {
    return this.#services.clock.monotonic() - cached.loadedAtMs
  }

  async #lookUpOnce(hash: string, sha256: Buffer): Promise<StoredApiKey | undefined> {
    const lookup = this.#lookups.get(hash) ?? this.#begin(hash, sha256)
    const before = this.#cache.get(hash)
    if (before === undefined || this.#ageMs(before) > TRUST_WITHOUT_DATABASE_MS) {
      return lookup.answer
    }
    const waitedMs = this.#services.clock.monotonic() - lookup.sinceMs
    let timer: NodeJS.Timeout | undefined
    const silence = new Promise<StoredApiKey>((resolve) => {
      timer = setTimeout(resolve, Math.max(PATIENCE_MS - waitedMs, 0), before.key)
    })
    return Promise.race([lookup.answer, silence]).finally(() => clearTimeout(timer))
  }

  #begin(hash: string, sha256: Buffer): Lookup {
    const answer = this.#lookUp(hash, sha256).finally(() => this.#lookups.delete(hash))
    const lookup = { answer, sinceMs: this.#services.clock.monotonic() }
    this.#lookups.set(hash, lookup)
    return lookup
  }

  async #lookUp(hash: string, sha256: Buffer): Promise<StoredApiKey | undefined> {
    // The age counts from before the lookup, because the answer may be that old.
    const loadedAtMs = this.#services.clock.monotonic()
    const before = this.#cache.get(hash)
    let key: StoredApiKey | undefined
    try {
      key = await this.#services.apiKeys.findBySecretHash(sha256)
    } catch (error) {
      if (before === undefined || this.#ageMs(before) > TRUST_WITHOUT_DATABASE_MS) throw error
      return before.key
    }
    this.#cache.delete(hash)
    if (key !== undefined) {
      this.#cache.set(hash, { key, loadedAtMs, touchedAtMs: before?.touchedAtMs ?? 0 })
      const oldest = this.#cache.keys().next()
      if (this.#cache.size > CACHED_KEYS_MAX && oldest.done !== true)
        this.#cache.delete(oldest.value)
    }
    return key
  }

  #touch(hash: string, nowMs: number): void {
    const cached = this.#cache.get(hash)
    if (cached === undefined || nowMs - cached.touchedAtMs < TOUCH_INTERVAL_MS) return
    cached.touchedAtMs = nowMs
    // Not awaited: a lost update only makes the date a minute older.
    this.#services.apiKeys.touch(cached.key.id).catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error)
      this.#services.log.warn({ apiKeyId: cached.key.id, reason }, 'use of a key not recorded')
    })
  }
}
