import type { EnvReader } from './env-reader.ts'

/** Signature and content of access tokens. */
export interface JwtConfig {
  readonly secret: string
  /** The weakness of the secret, logged at start; undefined for a strong one. */
  readonly secretWeakness: string | undefined
  readonly ttlSeconds: number
  readonly audience: string
  readonly issuer: string
  /** `kid` of the shared secret; empty for none. */
  readonly keyId: string
  /**
   * Private JWKs; the one with `sign` among its key_ops signs, all verify. Empty: the secret signs.
   */
  readonly keys: readonly PrivateJwk[]
  /** Role of new users. */
  readonly defaultGroupName: string
  /** Roles that may use the admin endpoints. */
  readonly adminRoles: readonly string[]
}

/** A JSON Web Key as `AUTH_JWT_KEYS` holds it. */
export interface PrivateJwk {
  readonly kty: string
  readonly alg: SigningAlgorithm
  readonly kid?: string
  readonly key_ops?: readonly string[]
  readonly [field: string]: unknown
}

/** An algorithm that access tokens can be signed with. */
export type SigningAlgorithm = (typeof SIGNING_ALGORITHMS)[number]

const SIGNING_ALGORITHMS = ['HS256', 'RS256', 'ES256', 'EdDSA'] as const
const SECRET_CHARACTERS_MIN = 16
// Secrets from public examples offer no protection.
const PUBLIC_SECRETS = [
  'super-secret-jwt-token-with-at-least-32-characters-long',
  'your-super-secret-jwt-token-with-at-least-32-characters-long',
  'your-super-secret-and-long-operator-token',
]

/** Reads the settings of access tokens. */
export function readJwtConfig(env: EnvReader): JwtConfig {
  env.section('User server: access tokens')
  const secret = readSecret(env)
  return {
    secret,
    secretWeakness: findWeakness(secret),
    ttlSeconds: readLifetime(env),
    audience: env.string('AUTH_JWT_AUD', {
      about: 'default audience; under /v1, tokens with another audience are refused',
      fallback: 'authenticated',
    }),
    issuer: env.string('AUTH_JWT_ISSUER', { about: 'the iss claim; none if unset' }),
    keyId: env.string('AUTH_JWT_KEY_ID', {
      about: 'key id (kid) of the shared secret; none if unset',
    }),
    keys: readKeys(env),
    defaultGroupName: env.string('AUTH_JWT_DEFAULT_GROUP_NAME', {
      about: 'role of new users',
      fallback: 'authenticated',
    }),
    adminRoles: env.list('AUTH_JWT_ADMIN_ROLES', {
      about: 'role claims that may use the admin endpoints',
      fallback: ['service_role', 'supabase_admin'],
    }),
  }
}

function readSecret(env: EnvReader): string {
  return env.required('AUTH_JWT_SECRET', {
    about: 'secret that signs access tokens; `millrace up` makes one if unset',
    isSecret: true,
  })
}

function readLifetime(env: EnvReader): number {
  const seconds = env.seconds('AUTH_JWT_EXP', {
    about: 'lifetime of access tokens',
    fallback: 3600,
  })
  if (seconds < 1) env.problem('AUTH_JWT_EXP must be at least one second: no token would be valid')
  return seconds
}

/**
 * Whether a secret appears in public examples, so that attackers can sign access tokens with it.
 */
export function isPublicSecret(secret: string): boolean {
  return PUBLIC_SECRETS.includes(secret)
}

// Not refused, because examples and local test set-ups use such secrets and must start.
function findWeakness(secret: string): string | undefined {
  if (isPublicSecret(secret)) {
    return 'AUTH_JWT_SECRET is a published example: anybody can sign access tokens with it'
  }
  if (secret.length >= SECRET_CHARACTERS_MIN) return undefined
  return `AUTH_JWT_SECRET has less than ${SECRET_CHARACTERS_MIN} characters: it can be guessed`
}

function readKeys(env: EnvReader): readonly PrivateJwk[] {
  const text = env.optional('AUTH_JWT_KEYS', {
    about: 'JSON array of private JWKs (HS256, RS256, ES256, EdDSA); exactly one may sign',
    isSecret: true,
  })
  if (text === undefined) return []
  try {
    const keys: unknown = JSON.parse(text)
    if (!Array.isArray(keys) || keys.length === 0) throw new Error('it is not a JSON array of keys')
    for (const key of keys) checkKey(key)
    if (new Set(keys.map((key: PrivateJwk) => key.kid)).size < keys.length) {
      throw new Error('two keys have the same kid')
    }
    const signers = keys.filter((key: PrivateJwk) => key.key_ops?.includes('sign'))
    if (signers.length !== 1) throw new Error('exactly one key must have "sign" in its key_ops')
    return keys as PrivateJwk[]
  } catch (error) {
    // The message of a parser may quote the key, so it is not repeated.
    const reason = error instanceof SyntaxError ? 'it is not JSON' : (error as Error).message
    env.problem(`AUTH_JWT_KEYS is not usable: ${reason}`)
    return []
  }
}

function checkKey(key: unknown): void {
  if (typeof key !== 'object' || key === null) throw new Error('a key is not an object')
  const { kty, alg, kid } = key as Record<string, unknown>
  if (typeof kty !== 'string') throw new Error('a key lacks kty')
  if (!SIGNING_ALGORITHMS.some((known) => known === alg)) {
    throw new Error(`alg of every key must be one of ${SIGNING_ALGORITHMS.join(', ')}`)
  }
  if (typeof kid !== 'string' || kid === '') throw new Error('a key lacks kid')
}
