import { randomUUID } from 'node:crypto'

import { and, asc, eq, gt, isNull, lt, lte, ne, or } from 'drizzle-orm'

import type { Store } from '#api/auth/store.ts'
import { increased } from '#shared/db/expressions.ts'
import type { ChallengeRow, FactorRow } from '#shared/db/schema/auth.ts'

/** The second factors of a user, oldest first. */
export async function listFactors(store: Store, userId: string): Promise<FactorRow[]> {
  const { factors } = store.tables
  return store.db
    .select()
    .from(factors)
    .where(eq(factors.userId, userId))
    .orderBy(asc(factors.createdAt), asc(factors.id))
}

/** A second factor, if it is the user's own. */
export async function findFactor(
  store: Store,
  userId: string,
  factorId: string,
): Promise<FactorRow | undefined> {
  const { factors } = store.tables
  const [factor] = await store.db
    .select()
    .from(factors)
    .where(and(eq(factors.id, factorId), eq(factors.userId, userId)))
  return factor
}

/** Whether the user must prove a second factor for sensitive actions. */
export async function hasVerifiedFactor(store: Store, userId: string): Promise<boolean> {
  const { factors } = store.tables
  const [factor] = await store.db
    .select({ id: factors.id })
    .from(factors)
    .where(and(eq(factors.userId, userId), eq(factors.status, 'verified')))
    .limit(1)
  return factor !== undefined
}

/** Adds an unverified factor; undefined when the name is taken. */
export async function insertFactor(
  store: Store,
  fields: Pick<FactorRow, 'userId' | 'friendlyName' | 'factorType' | 'secret' | 'phone'>,
): Promise<FactorRow | undefined> {
  const now = store.now()
  const [factor] = await store.db
    .insert(store.tables.factors)
    .values({ id: randomUUID(), ...fields, status: 'unverified', createdAt: now, updatedAt: now })
    .onConflictDoNothing()
    .returning()
  return factor
}

/**
 * Changes the fields of a factor that an administrator may change. Codes that were sent to the old
 * number are void. The caller holds the lock on the user.
 */
export async function updateFactor(
  store: Store,
  factorId: string,
  changes: Partial<Pick<FactorRow, 'friendlyName' | 'phone'>>,
): Promise<FactorRow | undefined> {
  const { factors, challenges } = store.tables
  const [factor] = await store.db
    .update(factors)
    .set({ ...changes, updatedAt: store.now() })
    .where(eq(factors.id, factorId))
    .returning()
  if (changes.phone !== undefined) {
    await store.db.delete(challenges).where(eq(challenges.factorId, factorId))
  }
  return factor
}

/** Deletes a second factor and its challenges. */
export async function deleteFactor(store: Store, factorId: string): Promise<void> {
  const { factors } = store.tables
  await store.db.delete(factors).where(eq(factors.id, factorId))
}

/** Deletes every second factor and every passkey of a user. */
export async function deleteFactorsAndPasskeys(store: Store, userId: string): Promise<void> {
  const { factors, webauthnCredentials } = store.tables
  await store.db.delete(factors).where(eq(factors.userId, userId))
  await store.db.delete(webauthnCredentials).where(eq(webauthnCredentials.userId, userId))
}

/** Deletes factors that were never verified and are older than `ttlSeconds`. */
export async function deleteStaleFactors(
  store: Store,
  userId: string,
  ttlSeconds: number,
): Promise<void> {
  const { factors } = store.tables
  const oldest = new Date(store.now().getTime() - ttlSeconds * 1000)
  await store.db
    .delete(factors)
    .where(
      and(
        eq(factors.userId, userId),
        eq(factors.status, 'unverified'),
        lt(factors.createdAt, oldest),
      ),
    )
}

/** Marks a factor as verified and deletes the user's unverified ones of its type. */
export async function markFactorVerified(store: Store, factor: FactorRow): Promise<void> {
  const { factors } = store.tables
  await store.db
    .update(factors)
    .set({ status: 'verified', updatedAt: store.now() })
    .where(eq(factors.id, factor.id))
  await store.db
    .delete(factors)
    .where(
      and(
        eq(factors.userId, factor.userId),
        eq(factors.factorType, factor.factorType),
        eq(factors.status, 'unverified'),
        ne(factors.id, factor.id),
      ),
    )
}

/** Accepts a time step once: false when this step or a later one was accepted before. */
export async function acceptTotpStep(
  store: Store,
  factorId: string,
  step: number,
): Promise<boolean> {
  const { factors } = store.tables
  const accepted = await store.db
    .update(factors)
    .set({ lastTotpStep: step })
    .where(
      and(
        eq(factors.id, factorId),
        or(isNull(factors.lastTotpStep), lt(factors.lastTotpStep, step)),
      ),
    )
    .returning({ id: factors.id })
  return accepted.length > 0
}

/**
 * Records that a challenge is requested now; undefined when another was within the gap. Returns the
 * factor as it is now.
 */
export async function claimChallenge(
  store: Store,
  factorId: string,
  gapSeconds: number,
): Promise<FactorRow | undefined> {
  const { factors } = store.tables
  const now = store.now()
  const latest = new Date(now.getTime() - gapSeconds * 1000)
  const [claimed] = await store.db
    .update(factors)
    .set({ lastChallengedAt: now })
    .where(
      and(
        eq(factors.id, factorId),
        // Without a gap, a concurrent request does not block this one.
        gapSeconds === 0
          ? undefined
          : or(isNull(factors.lastChallengedAt), lte(factors.lastChallengedAt, latest)),
      ),
    )
    .returning()
  return claimed
}

/** Adds a challenge that is valid for `ttlSeconds`. */
export async function insertChallenge(
  store: Store,
  fields: Pick<ChallengeRow, 'id' | 'factorId' | 'codeHmac' | 'webauthnChallenge' | 'ip'>,
  ttlSeconds: number,
): Promise<ChallengeRow> {
  const now = store.now()
  const expiresAt = new Date(now.getTime() + ttlSeconds * 1000)
  const [challenge] = await store.db
    .insert(store.tables.challenges)
    .values({ ...fields, createdAt: now, expiresAt })
    .returning()
  return challenge as ChallengeRow
}

/** A challenge, if it is of this factor. */
export async function findChallenge(
  store: Store,
  factorId: string,
  challengeId: string,
): Promise<ChallengeRow | undefined> {
  const { challenges } = store.tables
  const [challenge] = await store.db
    .select()
    .from(challenges)
    .where(and(eq(challenges.id, challengeId), eq(challenges.factorId, factorId)))
  return challenge
}

/** Counts an attempt at a challenge before it is checked; false when no attempts are left. */
export async function countAttempt(
  store: Store,
  challengeId: string,
  attemptsMax: number,
): Promise<boolean> {
  const { challenges } = store.tables
  const counted = await store.db
    .update(challenges)
    .set({ wrongAttempts: increased(challenges.wrongAttempts) })
    .where(
      and(
        eq(challenges.id, challengeId),
        lt(challenges.wrongAttempts, attemptsMax),
        isNull(challenges.verifiedAt),
        gt(challenges.expiresAt, store.now()),
      ),
    )
    .returning({ id: challenges.id })
  return counted.length > 0
}

/** Consumes a challenge; false when a concurrent request did so first. */
export async function consumeChallenge(store: Store, challengeId: string): Promise<boolean> {
  const { challenges } = store.tables
  const consumed = await store.db
    .update(challenges)
    .set({ verifiedAt: store.now() })
    .where(and(eq(challenges.id, challengeId), isNull(challenges.verifiedAt)))
    .returning({ id: challenges.id })
  return consumed.length > 0
}
