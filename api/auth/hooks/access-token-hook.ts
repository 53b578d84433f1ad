import type { AuthServices } from '#api/auth/services.ts'
import type { AccessTokenClaims } from '#api/auth/sessions/access-token.ts'
import { findRefreshable } from '#api/auth/sessions/refresh-tokens.ts'
import { addProof, assuranceLevel } from '#api/auth/sessions/sessions.ts'
import { maySignIn } from '#api/auth/users/user-store.ts'
import type { SessionRow, UserRow } from '#shared/db/schema/auth.ts'
import { failure } from '#shared/errors.ts'

interface Issue {
  readonly user: UserRow
  readonly session: SessionRow
  /** The method with which the user has just authenticated. */
  readonly method: string
}

/** The claims of an access token after the hook, if one is enabled. */
export async function describeAccessToken(
  services: AuthServices,
  { user, session, method }: Issue,
): Promise<AccessTokenClaims> {
  const claims = services.accessTokens.describe(user, session)
  if (!services.hooks.isEnabled('customAccessToken')) return claims
  const answer = await services.hooks.invoke('customAccessToken', {
    user_id: user.id,
    claims,
    authentication_method: method,
  })
  return requireClaims(answer.claims)
}

/**
 * The claims for a refresh token, requested before it is exchanged, so that a failing hook leaves
 * the refresh token valid. Undefined without a hook, and for tokens that will be refused or were
 * exchanged before.
 */
export async function describeRefresh(
  services: AuthServices,
  presented: string,
): Promise<AccessTokenClaims | undefined> {
  if (!services.hooks.isEnabled('customAccessToken')) return undefined
  const found = await findRefreshable(services.store, presented)
  if (found === undefined || !maySignIn(found.user, services.store.now())) return undefined
  return describeAccessToken(services, { ...found, method: 'token_refresh' })
}

/** The claims after a second factor, requested before the session is raised. */
export async function describeRaised(
  services: AuthServices,
  { user, session, method }: Issue,
): Promise<AccessTokenClaims | undefined> {
  if (!services.hooks.isEnabled('customAccessToken')) return undefined
  const amr = addProof(session.amr, { method }, services.store.now())
  const raised = { ...session, amr, aal: assuranceLevel(amr) }
  return describeAccessToken(services, { user, session: raised, method })
}

type ClaimType = 'string' | 'integer' | 'object' | 'array' | 'number' | 'boolean' | 'null'

// Every reader of access tokens relies on these claims.
const CLAIM_TYPES: Readonly<Record<string, readonly ClaimType[]>> = {
  aud: ['string', 'array'],
  exp: ['integer'],
  jti: ['string'],
  iat: ['integer'],
  iss: ['string'],
  nbf: ['integer'],
  sub: ['string'],
  email: ['string'],
  phone: ['string'],
  app_metadata: ['object'],
  user_metadata: ['object'],
  role: ['string'],
  aal: ['string'],
  amr: ['array'],
  session_id: ['string'],
}
const REQUIRED_CLAIMS = [
  ...['aud', 'exp', 'iat', 'sub', 'email', 'phone', 'role', 'aal', 'session_id', 'is_anonymous'],
]

function requireClaims(claims: unknown): AccessTokenClaims {
  if (claims === undefined) throw unusable('output claims field is missing')
  if (typeOf(claims) !== 'object') throw unusable('Error unmarshaling JSON output.')
  const given = claims as Readonly<Record<string, unknown>>
  const missing = REQUIRED_CLAIMS.filter((name) => !Object.hasOwn(given, name))
  const mistyped = Object.entries(CLAIM_TYPES).filter(
    ([name, types]) => Object.hasOwn(given, name) && !types.includes(typeOf(given[name])),
  )
  const problems = [
    ...missing.map((name) => `- (root): ${name} is required\n`),
    ...mistyped.map(
      ([name, types]) =>
        `- ${name}: Invalid type. Expected: ${types.join('/')}, given: ${typeOf(given[name])}\n`,
    ),
  ]
  if (problems.length > 0) {
    throw unusable(`output claims do not conform to the expected schema: \n${problems.join('')}`)
  }
  return given as AccessTokenClaims
}

function typeOf(value: unknown): ClaimType {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number'
  return typeof value === 'string' || typeof value === 'boolean'
    ? (typeof value as 'string')
    : 'object'
}

function unusable(message: string): Error {
  return failure.internal(message, { code: 'unexpected_failure' })
}
