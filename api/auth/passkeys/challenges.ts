import { randomUUID } from 'node:crypto'

import { and, eq, isNull } from 'drizzle-orm'

import type { Store } from '#api/auth/store.ts'
import type { WebAuthnChallengeRow } from '#shared/db/schema/auth.ts'

/** Stores the challenge of a registration, or of a sign-in, whose user is unknown so far. */
export async function insertPasskeyChallenge(
  store: Store,
  fields: Pick<WebAuthnChallengeRow, 'userId' | 'challenge'>,
  ttlSeconds: number,
): Promise<WebAuthnChallengeRow> {
  const now = store.now()
  const expiresAt = new Date(now.getTime() + ttlSeconds * 1000)
  const row = { id: randomUUID(), ...fields, createdAt: now, expiresAt }
  await store.db.insert(store.tables.webauthnChallenges).values(row)
  return row
}

/** Consumes a challenge: only one of several requests with the same challenge receives it. */
export async function takePasskeyChallenge(
  store: Store,
  wanted: { readonly id: string; readonly userId: string | null },
): Promise<WebAuthnChallengeRow | undefined> {
  const { webauthnChallenges: challenges } = store.tables
  const { id, userId } = wanted
  const [taken] = await store.db
    .delete(challenges)
    .where(
      and(
        eq(challenges.id, id),
        userId === null ? isNull(challenges.userId) : eq(challenges.userId, userId),
      ),
    )
    .returning()
  return taken
}
