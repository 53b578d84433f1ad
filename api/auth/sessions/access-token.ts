import { createHmac, createSecretKey, type KeyObject } from 'node:crypto'

import { errors, importJWK, type JWK, type JWTPayload, jwtVerify, SignJWT } from 'jose'

import { authFailure } from '#api/auth/errors.ts'
import type { Clock } from '#shared/clock.ts'
import type { JwtConfig, PrivateJwk, SigningAlgorithm } from '#shared/config/auth-jwt.ts'
import type { AmrEntry, Metadata, SessionRow, UserRow } from '#shared/db/schema/auth.ts'

/** The claims of an access token. */
export interface AccessTokenClaims extends JWTPayload {
  readonly role?: string
  readonly email?: string
  readonly phone?: string
  readonly app_metadata?: Metadata
  readonly user_metadata?: Metadata
  readonly aal?: string
  readonly amr?: readonly AmrEntry[]
  readonly session_id?: string
  readonly is_anonymous?: boolean
}

/** The times of an access token, in Unix seconds. */
interface TimeClaims {
  readonly iat: number
  readonly exp: number
}

/** Signs and checks access tokens with the configured keys. */
export interface AccessTokens {
  /** The claims of an access token that is issued now. */
  describe(user: UserRow, session: SessionRow): AccessTokenClaims & TimeClaims
  sign(claims: AccessTokenClaims): Promise<string>
  /**
   * Throws `bad_jwt` unless the access token is from this server, unmodified and within its
   * validity.
   */
  verify(accessToken: string): Promise<AccessTokenClaims>
  /** The public halves of the asymmetric keys. */
  jwks(): readonly JWK[]
}

type KeyMaterial = Awaited<ReturnType<typeof importJWK>>

interface Key {
  readonly kid: string | undefined
  readonly alg: SigningAlgorithm
  /** Undefined for keys that only verify earlier signatures. */
  readonly signing: KeyMaterial | undefined
  readonly verifying: KeyMaterial
  readonly publicJwk: JWK | undefined
  /** The shared secret itself, for keys that sign with it. */
  readonly secret?: KeyObject
}

/** Imports the keys once. A key that cannot be used prevents the start. */
export async function createAccessTokens(config: JwtConfig, clock: Clock): Promise<AccessTokens> {
  const secretKey = await importSecret(config)
  const keys = config.keys.length > 0 ? await Promise.all(config.keys.map(importKey)) : [secretKey]
  const signer = keys.find((key) => key.signing !== undefined) ?? secretKey
  await tryOut(signer, keys, secretKey)
  return {
    describe(user, session) {
      const issuedAt = Math.floor(clock.now() / 1000)
      const expiresAt = issuedAt + Math.floor(config.ttlSeconds)
      const claims = { ...claimsOf(user, session), iat: issuedAt, exp: expiresAt }
      return config.issuer === '' ? claims : { iss: config.issuer, ...claims }
    },
    sign: (claims) => sign(claims, signer),
    verify: (accessToken) => verify(accessToken, { keys, secretKey, now: clock.now() }),
    jwks: () => keys.flatMap((key) => (key.publicJwk === undefined ? [] : [key.publicJwk])),
  }
}

// A key that cannot sign, or whose signatures do not verify, is reported at start.
async function tryOut(signer: Key, keys: readonly Key[], secretKey: Key): Promise<void> {
  try {
    await verify(await sign({ sub: '' }, signer), { keys, secretKey, now: 0 })
  } catch (error) {
    const name =
      signer === secretKey ? 'AUTH_JWT_SECRET' : `the key "${signer.kid}" of AUTH_JWT_KEYS`
    throw new Error(`${name} cannot sign access tokens`, { cause: error })
  }
}

async function sign(
  payload: AccessTokenClaims,
  { alg, kid, signing, secret }: Key,
): Promise<string> {
  const header = { alg, typ: 'JWT', ...(kid !== undefined && { kid }) }
  if (secret === undefined) {
    return new SignJWT(payload).setProtectedHeader(header).sign(signing as KeyMaterial)
  }
  // Synchronous: Web Crypto would send even this to another thread and back, at twenty times the
  // cost.
  const signed = `${base64url(header)}.${base64url(payload)}`
  return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`
}

function base64url(part: object): string {
  return Buffer.from(JSON.stringify(part)).toString('base64url')
}

async function verify(
  accessToken: string,
  context: { readonly keys: readonly Key[]; readonly secretKey: Key; readonly now: number },
): Promise<AccessTokenClaims> {
  try {
    const { payload } = await jwtVerify(
      accessToken,
      (header) => keyFor(header, context).verifying,
      { algorithms: ALGORITHMS, currentDate: new Date(context.now) },
    )
    const isText = (name: string) =>
      ['string', 'undefined'].includes(typeof (payload[name] ?? undefined))
    if (!TEXT_CLAIMS.every(isText)) throw new errors.JWTInvalid('a claim is no text')
    return payload as AccessTokenClaims
  } catch (error) {
    // The reason helps legitimate clients and reveals nothing about the key.
    const reason = error instanceof errors.JOSEError ? REASONS[error.code] : undefined
    throw authFailure('bad_jwt', {
      message: `invalid JWT: unable to parse or verify signature, ${reason ?? 'token is malformed'}`,
      cause: error,
    })
  }
}

// Other services may sign tokens with the same key.
const TEXT_CLAIMS = ['sub', 'role', 'email', 'phone', 'aal', 'session_id']

const ALGORITHMS: SigningAlgorithm[] = ['HS256', 'RS256', 'ES256', 'EdDSA']

const REASONS: Readonly<Record<string, string>> = {
  ERR_JWT_EXPIRED: 'token has invalid claims: token is expired',
  ERR_JWT_CLAIM_VALIDATION_FAILED: 'token has invalid claims',
  ERR_JWS_SIGNATURE_VERIFICATION_FAILED: 'token signature is invalid: signature is invalid',
  ERR_JOSE_ALG_NOT_ALLOWED: 'token signature is invalid: signing method is invalid',
  ERR_JOSE_NOT_SUPPORTED: 'token is unverifiable: signing method is invalid',
  ERR_JWKS_NO_MATCHING_KEY: 'token is unverifiable: unrecognized JWT kid for algorithm',
}

/**
 * The key named by a header. The algorithm belongs to the key, never to the header, so that a
 * public key cannot be used as a shared secret. Without `kid` only the shared secret is tried.
 */
function keyFor(
  header: { readonly alg?: string; readonly kid?: string },
  context: { readonly keys: readonly Key[]; readonly secretKey: Key },
): Key {
  const { keys, secretKey } = context
  const named = keys.find((key) => key.kid !== undefined && key.kid === header.kid)
  const key = named ?? (header.alg === 'HS256' ? secretKey : undefined)
  if (key === undefined || key.alg !== header.alg) throw new errors.JWKSNoMatchingKey()
  return key
}

async function importSecret(config: JwtConfig): Promise<Key> {
  const k = Buffer.from(config.secret).toString('base64url')
  const material = await importJWK({ kty: 'oct', k }, 'HS256')
  const kid = config.keyId === '' ? undefined : config.keyId
  const secret = createSecretKey(Buffer.from(config.secret))
  return { kid, alg: 'HS256', signing: material, verifying: material, publicJwk: undefined, secret }
}

async function importKey(jwk: PrivateJwk): Promise<Key> {
  try {
    return await readKey(jwk)
  } catch (error) {
    // The message of the library does not quote the key.
    const { message } = error as Error
    throw new Error(`the key "${jwk.kid}" of AUTH_JWT_KEYS is not usable: ${message}`, {
      cause: error,
    })
  }
}

async function readKey(jwk: PrivateJwk): Promise<Key> {
  const { key_ops, use: _use, ...material } = jwk
  const canSign = key_ops?.includes('sign') === true
  const { kid, alg } = jwk
  if (jwk.kty === 'oct') {
    const imported = await importJWK(material, alg)
    return {
      kid,
      alg,
      verifying: imported,
      publicJwk: undefined,
      signing: canSign ? imported : undefined,
      ...(canSign && { secret: createSecretKey(Buffer.from(String(jwk.k), 'base64url')) }),
    }
  }
  const publicMaterial = publicHalf(material as JWK)
  return {
    kid,
    alg,
    signing: canSign ? await importJWK(material, alg) : undefined,
    verifying: await importJWK(publicMaterial, alg),
    publicJwk: { ...publicMaterial, use: 'sig', key_ops: ['verify'] },
  }
}

// An allow list, so that an unknown private field is never published.
function publicHalf(jwk: JWK): JWK {
  const names = ['kty', 'kid', 'alg', 'crv', 'x', 'y', 'n', 'e'] as const
  return Object.fromEntries(
    names.flatMap((name) => (jwk[name] === undefined ? [] : [[name, jwk[name]]])),
  ) as unknown as JWK
}

function claimsOf(user: UserRow, session: SessionRow): AccessTokenClaims {
  return {
    sub: user.id,
    aud: user.aud,
    email: user.email ?? '',
    phone: user.phone ?? '',
    app_metadata: user.appMetadata,
    user_metadata: user.userMetadata,
    role: user.role,
    aal: session.aal,
    // The newest proof first.
    amr: session.amr.toReversed(),
    session_id: session.id,
    is_anonymous: user.isAnonymous,
  }
}
