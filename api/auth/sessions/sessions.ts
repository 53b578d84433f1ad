import { and, eq, gte, isNull, ne, notInArray, or, type SQL } from 'drizzle-orm'
import type { PgColumn } from 'drizzle-orm/pg-core'

import { authFailure } from '#api/auth/errors.ts'
import { hasVerifiedFactor } from '#api/auth/factors/factors.ts'
import { clearOtherFlows } from '#api/auth/sign-in/flow-states.ts'
import { inTransaction, type Store } from '#api/auth/store.ts'
import { lockUser, withdrawContactChanges } from '#api/auth/users/user-store.ts'
import type { SessionsConfig } from '#shared/config/auth-policies.ts'
import { firstOf, isRowBeyond } from '#shared/db/expressions.ts'
import type { AmrEntry, FactorRow, SessionRow } from '#shared/db/schema/auth.ts'

// Proofs that raise a session to the second assurance level.
const SECOND_FACTORS = ['totp', 'mfa/phone', 'mfa/webauthn']

/** Maximum sessions of a user. A further sign-in ends the one that was used least recently. */
export const SESSIONS_MAX = 1000

/** Longer user agents are cut. */
export const USER_AGENT_CHARACTERS_MAX = 512

/** The proofs with another one added; a repeated proof updates its time. Oldest first. */
export function addProof(
  amr: readonly AmrEntry[],
  proof: { readonly method: string; readonly provider?: string },
  now: Date,
): AmrEntry[] {
  const others = amr.filter((entry) => entry.method !== proof.method)
  return [...others, { ...proof, timestamp: Math.floor(now.getTime() / 1000) }]
}

/** The assurance level of the given proofs. */
export function assuranceLevel(amr: readonly AmrEntry[]): 'aal1' | 'aal2' {
  return amr.some((entry) => SECOND_FACTORS.includes(entry.method)) ? 'aal2' : 'aal1'
}

/** A session that has not ended. */
export async function findSession(store: Store, id: string): Promise<SessionRow | undefined> {
  const { sessions } = store.tables
  const [session] = await store.db.select().from(sessions).where(eq(sessions.id, id))
  return session
}

/**
 * Throws unless the session of a request has not ended since it was authenticated. The caller holds
 * the lock on the user.
 */
export async function requireLiveSession(
  store: Store,
  session: SessionRow | undefined,
): Promise<void> {
  if (session === undefined || (await findSession(store, session.id)) !== undefined) return
  throw authFailure('session_not_found')
}

/** Adds a second factor's proof to a session. */
export async function raiseSession(
  store: Store,
  session: SessionRow,
  proof: { readonly method: string; readonly factorId: string },
): Promise<SessionRow> {
  const { sessions } = store.tables
  const now = store.now()
  const amr = addProof(session.amr, { method: proof.method }, now)
  const [raised] = await store.db
    .update(sessions)
    .set({ amr, aal: assuranceLevel(amr), factorId: proof.factorId, updatedAt: now })
    .where(eq(sessions.id, session.id))
    .returning()
  return raised as SessionRow
}

/** Sessions that depended on a removed factor fall back to the first level. */
export async function lowerSessionsOfFactor(
  store: Store,
  factor: Pick<FactorRow, 'id' | 'userId'>,
): Promise<void> {
  const { sessions } = store.tables
  const rows = await store.db
    .select()
    .from(sessions)
    // Restricted to the user's sessions, which an index finds.
    .where(and(eq(sessions.userId, factor.userId), eq(sessions.factorId, factor.id)))
  for (const session of rows) {
    const amr = session.amr.filter((entry) => !SECOND_FACTORS.includes(entry.method))
    await store.db
      .update(sessions)
      .set({ amr, aal: 'aal1', factorId: null, updatedAt: store.now() })
      .where(eq(sessions.id, session.id))
  }
}

/** Which sessions of a user to end. */
export type LogoutScope = 'global' | 'local' | 'others'

/** Which sessions of which user end. */
interface Ending {
  readonly userId: string
  readonly scope: LogoutScope
  readonly sessionId?: string | undefined
  /** The flow of the redeemed token, which continues. */
  readonly keptFlowId?: string | null
}

/**
 * Ends sessions and deletes their refresh tokens. Unless a single session ends, also ends the flows
 * and changes of contact that one of the others may have started: these could start a session, link
 * an identity or admit another person by a new address or number.
 */
export async function endSessions(store: Store, which: Ending): Promise<void> {
  await inTransaction(store, async (tx) => {
    // A request that holds the lock may be starting such a flow or change in one of the sessions.
    await lockUser(tx, which.userId)
    await endLocked(tx, which)
  })
}

async function endLocked(store: Store, which: Ending): Promise<void> {
  const { sessions } = store.tables
  const { scope, sessionId } = which
  // An access token without a session ends all sessions of its user.
  const restriction =
    scope === 'global' || sessionId === undefined
      ? undefined
      : scope === 'local'
        ? eq(sessions.id, sessionId)
        : ne(sessions.id, sessionId)
  await store.db.delete(sessions).where(and(eq(sessions.userId, which.userId), restriction))
  const isSingle = scope === 'local' && sessionId !== undefined
  if (isSingle) return
  await clearOtherFlows(store, which.userId, which.keptFlowId ?? null)
  await withdrawContactChanges(store, which.userId)
}

/**
 * Ends the sessions of a user without a second factor, and the flows that one of them may have
 * started.
 */
export async function endSessionsBelowAal2(
  store: Store,
  userId: string,
  exceptSessionId: string,
): Promise<void> {
  const { sessions } = store.tables
  await store.db
    .delete(sessions)
    .where(
      and(eq(sessions.userId, userId), eq(sessions.aal, 'aal1'), ne(sessions.id, exceptSessionId)),
    )
  await clearOtherFlows(store, userId, null)
}

/**
 * The reason why a session has ended, as the suffix of the error message; undefined while it is
 * valid.
 */
export async function findSessionEnd(
  store: Store,
  session: SessionRow,
  rules: SessionsConfig,
): Promise<string | undefined> {
  const ageSeconds = (since: Date): number => (store.now().getTime() - since.getTime()) / 1000
  if (rules.timeboxSeconds > 0 && ageSeconds(session.createdAt) > rules.timeboxSeconds) return ''
  const lastUse = session.refreshedAt ?? session.createdAt
  const { inactivityTimeoutSeconds } = rules
  if (inactivityTimeoutSeconds > 0 && ageSeconds(lastUse) > inactivityTimeoutSeconds) {
    return ' (Inactivity)'
  }
  const { lowAalSeconds } = rules
  const needsProof = lowAalSeconds > 0 && (await hasVerifiedFactor(store, session.userId))
  if (needsProof && session.aal === 'aal1' && ageSeconds(session.createdAt) > lowAalSeconds) {
    return ' (Low AAL: User Needs MFA Verification)'
  }
  if (rules.isSinglePerUser && (await hasNewerSession(store, session, { rules, needsProof }))) {
    return ' (Revoked by Newer Login)'
  }
  return undefined
}

/** Whether another valid session of the same tag was used since this one. */
async function hasNewerSession(
  { db, tables, now }: Store,
  session: SessionRow,
  { rules, needsProof }: { readonly rules: SessionsConfig; readonly needsProof: boolean },
): Promise<boolean> {
  const { sessions } = tables
  const since = (seconds: number): Date => new Date(now().getTime() - seconds * 1000)
  const lastUse = firstOf<Date>(sessions.refreshedAt, sessions.createdAt)
  const { timeboxSeconds, inactivityTimeoutSeconds, lowAalSeconds, tags } = rules
  const [newer] = await db
    .select({ id: sessions.id })
    .from(sessions)
    .where(
      and(
        eq(sessions.userId, session.userId),
        ne(sessions.id, session.id),
        isRowBeyond([lastUse, sessions.id], '>', [
          session.refreshedAt ?? session.createdAt,
          session.id,
        ]),
        timeboxSeconds > 0 ? gte(sessions.createdAt, since(timeboxSeconds)) : undefined,
        inactivityTimeoutSeconds > 0 ? gte(lastUse, since(inactivityTimeoutSeconds)) : undefined,
        needsProof
          ? or(eq(sessions.aal, 'aal2'), gte(sessions.createdAt, since(lowAalSeconds)))
          : undefined,
        hasTag(sessions.tag, session.tag, tags),
      ),
    )
    .limit(1)
  return newer !== undefined
}

// Sessions without a tag, or with a tag that is not configured, have the first tag.
function hasTag(column: PgColumn, tag: string | null, tags: readonly string[]): SQL | undefined {
  if (tags.length === 0) return undefined
  const isFirst = tag === null || tags.indexOf(tag) <= 0
  if (!isFirst) return eq(column, tag)
  return or(isNull(column), notInArray(column, tags.slice(1)))
}
