import { randomBytes } from 'node:crypto'

import { and, desc, eq, isNull } from 'drizzle-orm'

import { type AuthErrorCode, authFailure } from '#api/auth/errors.ts'
import { randomSecret, sha256 } from '#api/auth/secrets.ts'
import type { Store } from '#api/auth/store.ts'
import { maySignIn } from '#api/auth/users/user-store.ts'
import type { SecurityConfig, SessionsConfig } from '#shared/config/auth-policies.ts'
import { limitTransaction } from '#shared/db/expressions.ts'
import type { RefreshTokenRow, SessionRow, UserRow } from '#shared/db/schema/auth.ts'

import {
  deriveChild,
  type Rotated,
  type RotationOrigin,
  rotateValidToken,
  SEED_BYTES,
  secondsToRotation,
} from './rotation-store.ts'
import { findSessionEnd } from './sessions.ts'

/** The outcome of presenting a refresh token. The flow throws refusals after the commit. */
export type RotationOutcome =
  | ({ readonly kind: 'rotated' } & Rotated)
  | {
      /** The child that was issued before is returned again. */
      readonly kind: 'repeated'
      readonly user: UserRow
      readonly session: SessionRow
      readonly refreshToken: string
    }
  | {
      readonly kind: 'refused'
      readonly code: AuthErrorCode
      readonly message: string
      /** The user whose refresh token was reused. */
      readonly reusedOf?: UserRow
    }

/** Rules and circumstances of a rotation. */
export interface RotationOptions extends RotationOrigin {
  readonly security: SecurityConfig
  readonly sessions: SessionsConfig
}

/** Issues the first refresh token of a session. */
async function issueRefreshToken(store: Store, sessionId: string): Promise<string> {
  const refreshToken = randomSecret()
  await store.db.insert(store.tables.refreshTokens).values({
    sessionId,
    tokenSha256: sha256(refreshToken),
    seed: randomBytes(SEED_BYTES),
    createdAt: store.now(),
  })
  return refreshToken
}

/**
 * Exchanges a refresh token for its child, inside a transaction of the caller.
 *
 * | state   | presented                                    | next    | answer                         |
 * |---------|----------------------------------------------|---------|--------------------------------|
 * | valid   |                                              | revoked | a new child                    |
 * | revoked | parent of the valid one, within the interval | revoked | the same child again           |
 * | revoked | otherwise, rotation enabled                  | revoked | refused; the family is revoked |
 * | revoked | parent of the valid one, rotation disabled   | revoked | the same child again           |
 * | revoked | otherwise, rotation disabled                 | revoked | refused; the family stays      |
 *
 * The first row is `rotateValidToken`; without rules of sessions it needs no transaction and comes
 * first. The family of a refresh token is its session. The row of the session is locked first, so
 * that of many concurrent requests one rotates and the others see the result. The child is a
 * function of its parent and of a seed in the child's row: it can be handed out again although only
 * hashes are stored.
 */
export async function presentRefreshToken(
  store: Store,
  presented: string,
  options: RotationOptions,
): Promise<RotationOutcome> {
  const tokenSha256 = sha256(presented)
  const session = await lockSessionOf(store, tokenSha256)
  const found = session && (await findToken(store, tokenSha256))
  if (session === undefined || found === undefined) return refused('refresh_token_not_found')
  const { token, user } = found
  if (!maySignIn(user, store.now())) {
    return refused('user_banned', 'Invalid Refresh Token: User Banned')
  }
  const ending = await findSessionEnd(store, session, options.sessions)
  if (ending !== undefined) {
    return refused('session_expired', `Invalid Refresh Token: Session Expired${ending}`)
  }
  if (token.revokedAt !== null) return reuse(store, { token, presented, user, session, options })
  const retryAfterSeconds = await secondsToRotation(store, session.id, options.perHourMax)
  if (retryAfterSeconds > 0) throw authFailure('over_request_rate_limit', { retryAfterSeconds })
  const rotated = await rotateValidToken(store, presented, options)
  return rotated === undefined
    ? refused('refresh_token_not_found')
    : { kind: 'rotated', ...rotated }
}

/** Whether sessions end by rules that require other rows before a rotation. */
export function hasSessionRules(sessions: SessionsConfig): boolean {
  return (
    sessions.isSinglePerUser ||
    sessions.timeboxSeconds > 0 ||
    sessions.inactivityTimeoutSeconds > 0 ||
    sessions.lowAalSeconds > 0
  )
}

/** The user and session of a refresh token that has not been exchanged yet. */
export async function findRefreshable(
  store: Store,
  presented: string,
): Promise<{ user: UserRow; session: SessionRow } | undefined> {
  const found = await findToken(store, sha256(presented))
  return found?.token.revokedAt === null ? found : undefined
}

/** Revokes every valid refresh token of a session. */
async function revokeFamily(store: Store, sessionId: string): Promise<void> {
  const { refreshTokens } = store.tables
  await store.db
    .update(refreshTokens)
    .set({ revokedAt: store.now() })
    .where(and(eq(refreshTokens.sessionId, sessionId), isNull(refreshTokens.revokedAt)))
}

/**
 * Replaces the valid refresh token of a session, for instance after a second factor was proven.
 * Throws `session_not_found` when the session has since ended.
 */
export async function replaceRefreshToken(store: Store, sessionId: string): Promise<string> {
  const { sessions } = store.tables
  const found = store.db.select({ id: sessions.id }).from(sessions)
  const [locked] = await found.where(eq(sessions.id, sessionId)).for('update')
  if (locked === undefined) throw authFailure('session_not_found')
  await revokeFamily(store, sessionId)
  return issueRefreshToken(store, sessionId)
}

interface Reuse {
  readonly token: RefreshTokenRow
  readonly presented: string
  readonly user: UserRow
  readonly session: SessionRow
  readonly options: RotationOptions
}

async function reuse(store: Store, attempt: Reuse): Promise<RotationOutcome> {
  const { token, presented, user, session, options } = attempt
  const { isRefreshTokenRotationEnabled, refreshTokenReuseIntervalSeconds } = options.security
  const valid = await findValidToken(store, session.id)
  const isParentOfValid = valid !== undefined && valid.parentId === token.id
  const age = store.now().getTime() - (token.revokedAt as Date).getTime()
  const isInInterval =
    refreshTokenReuseIntervalSeconds > 0 && age <= refreshTokenReuseIntervalSeconds * 1000
  if (isParentOfValid && (isInInterval || !isRefreshTokenRotationEnabled)) {
    const refreshToken = deriveChild(presented, valid.seed)
    return { kind: 'repeated', user, session, refreshToken }
  }
  // Reuse must be assumed to be theft, so the family is revoked before the refusal is sent.
  if (isRefreshTokenRotationEnabled) await revokeFamily(store, session.id)
  return { kind: 'refused', code: 'refresh_token_already_used', message: '', reusedOf: user }
}

function refused(code: AuthErrorCode, message?: string): RotationOutcome {
  return { kind: 'refused', code, message: message ?? '' }
}

async function lockSessionOf(store: Store, tokenSha256: Buffer): Promise<SessionRow | undefined> {
  const { sessions, refreshTokens } = store.tables
  await limitTransaction(store.db, 'lock_timeout', LOCK_TIMEOUT_MS)
  const ofToken = store.db.select({ id: refreshTokens.sessionId }).from(refreshTokens)
  const [session] = await store.db
    .select()
    .from(sessions)
    .where(eq(sessions.id, ofToken.where(eq(refreshTokens.tokenSha256, tokenSha256))))
    .for('update')
  return session
}

// The longest wait for concurrent requests of the same session; then the request is refused as
// retryable.
const LOCK_TIMEOUT_MS = 5000

async function findToken(
  store: Store,
  tokenSha256: Buffer,
): Promise<{ token: RefreshTokenRow; user: UserRow; session: SessionRow } | undefined> {
  const { sessions, refreshTokens, users } = store.tables
  const [row] = await store.db
    .select({ token: refreshTokens, user: users, session: sessions })
    .from(refreshTokens)
    .innerJoin(sessions, eq(sessions.id, refreshTokens.sessionId))
    .innerJoin(users, eq(users.id, sessions.userId))
    .where(eq(refreshTokens.tokenSha256, tokenSha256))
  return row
}

async function findValidToken(
  store: Store,
  sessionId: string,
): Promise<RefreshTokenRow | undefined> {
  const { refreshTokens } = store.tables
  const [token] = await store.db
    .select()
    .from(refreshTokens)
    .where(and(eq(refreshTokens.sessionId, sessionId), isNull(refreshTokens.revokedAt)))
    .orderBy(desc(refreshTokens.id))
    .limit(1)
  return token
}
