import { randomUUID } from 'node:crypto'

import { and, asc, eq, inArray, ne } from 'drizzle-orm'

import type { Store } from '#api/auth/store.ts'
import { hasFields, mergedWithProposed } from '#shared/db/expressions.ts'
import type { IdentityRow, Metadata } from '#shared/db/schema/auth.ts'

/** An identity that a user signs in with. */
interface NewIdentity {
  readonly userId: string
  readonly provider: string
  readonly providerId: string
  readonly identityData: Metadata
  readonly lastSignInAt?: Date
}

/** Adds an identity; undefined when a user already has it. */
export async function insertIdentity(
  store: Store,
  fields: NewIdentity,
): Promise<IdentityRow | undefined> {
  const now = store.now()
  const [identity] = await store.db
    .insert(store.tables.identities)
    .values({ id: randomUUID(), lastSignInAt: now, ...fields, createdAt: now, updatedAt: now })
    .onConflictDoNothing()
    .returning()
  return identity
}

/** Creates or updates the identity of the user's own address or number. */
export async function saveContactIdentity(
  store: Store,
  contact: {
    readonly userId: string
    readonly provider: 'email' | 'phone'
    readonly identityData: Metadata
  },
): Promise<void> {
  const { identities } = store.tables
  const now = store.now()
  await store.db
    .insert(identities)
    .values({
      id: randomUUID(),
      ...contact,
      // Clients of typed languages expect both fields in every identity.
      identityData: { email_verified: false, phone_verified: false, ...contact.identityData },
      providerId: contact.userId,
      lastSignInAt: now,
      createdAt: now,
      updatedAt: now,
    })
    .onConflictDoUpdate({
      target: [identities.provider, identities.providerId],
      set: {
        identityData: mergedWithProposed(identities.identityData),
        updatedAt: now,
      },
    })
}

/** The identity of a provider's user. */
export async function findIdentity(
  store: Store,
  provider: string,
  providerId: string,
): Promise<IdentityRow | undefined> {
  const { identities } = store.tables
  const [identity] = await store.db
    .select()
    .from(identities)
    .where(and(eq(identities.provider, provider), eq(identities.providerId, providerId)))
  return identity
}

/** The identities of a user, oldest first. */
export async function listIdentities(store: Store, userId: string): Promise<IdentityRow[]> {
  const { identities } = store.tables
  return store.db
    .select()
    .from(identities)
    .where(eq(identities.userId, userId))
    .orderBy(asc(identities.createdAt), asc(identities.id))
}

/**
 * Ids of the users that own one of these email addresses, by account or by an identity whose
 * provider verified it. Unverified claims do not count, because they must not lead the owner into
 * another account.
 */
export async function findOwnersOfEmails(
  store: Store,
  emails: readonly string[],
): Promise<string[]> {
  if (emails.length === 0) return []
  const { identities, users } = store.tables
  const [byIdentity, byAccount] = await Promise.all([
    store.db
      .selectDistinct({ id: identities.userId })
      .from(identities)
      .where(
        and(
          inArray(identities.email, [...emails]),
          hasFields(identities.identityData, { email_verified: true }),
        ),
      ),
    store.db
      .select({ id: users.id })
      .from(users)
      .where(inArray(users.email, [...emails])),
  ])
  return [...new Set([...byIdentity, ...byAccount].map((row) => row.id))]
}

/** Updates the data that the provider returns about the user. */
export async function updateIdentityData(
  store: Store,
  id: string,
  identityData: Metadata,
): Promise<void> {
  const { identities } = store.tables
  const now = store.now()
  await store.db
    .update(identities)
    .set({ identityData, lastSignInAt: now, updatedAt: now })
    .where(eq(identities.id, id))
}

/** Deletes an identity of a user. */
export async function deleteIdentity(store: Store, id: string): Promise<void> {
  const { identities } = store.tables
  await store.db.delete(identities).where(eq(identities.id, id))
}

/** Removes every identity of the user but one. */
export async function deleteOtherIdentities(
  store: Store,
  userId: string,
  keptId: string,
): Promise<void> {
  const { identities } = store.tables
  await store.db
    .delete(identities)
    .where(and(eq(identities.userId, userId), ne(identities.id, keptId)))
}
