import { randomUUID } from 'node:crypto'

import { and, asc, eq, isNotNull, isNull, lt, or } from 'drizzle-orm'

import type { Store } from '#api/auth/store.ts'
import type { WebAuthnCredentialRow } from '#shared/db/schema/auth.ts'

import type { CredentialUse, NewCredential } from './ceremonies.ts'

/** Adds a credential; undefined when any user has registered it already. */
export async function insertCredential(
  store: Store,
  fields: NewCredential & Pick<WebAuthnCredentialRow, 'userId' | 'factorId' | 'friendlyName'>,
): Promise<WebAuthnCredentialRow | undefined> {
  const now = store.now()
  const [credential] = await store.db
    .insert(store.tables.webauthnCredentials)
    .values({ id: randomUUID(), ...fields, createdAt: now, updatedAt: now })
    .onConflictDoNothing()
    .returning()
  return credential
}

/** The credentials of a user's second factors, oldest first. */
export async function listFactorCredentials(
  store: Store,
  userId: string,
): Promise<WebAuthnCredentialRow[]> {
  const { webauthnCredentials: credentials } = store.tables
  return store.db
    .select()
    .from(credentials)
    .where(and(eq(credentials.userId, userId), isNotNull(credentials.factorId)))
    .orderBy(asc(credentials.createdAt), asc(credentials.id))
}

/** The passkeys of a user, oldest first. */
export async function listPasskeys(store: Store, userId: string): Promise<WebAuthnCredentialRow[]> {
  const { webauthnCredentials: credentials } = store.tables
  return store.db
    .select()
    .from(credentials)
    .where(and(eq(credentials.userId, userId), isNull(credentials.factorId)))
    .orderBy(asc(credentials.createdAt), asc(credentials.id))
}

/** The passkey of an assertion, of any user. */
export async function findPasskeyByCredentialId(
  store: Store,
  credentialId: string,
): Promise<WebAuthnCredentialRow | undefined> {
  const { webauthnCredentials: credentials } = store.tables
  const [credential] = await store.db
    .select()
    .from(credentials)
    .where(
      and(
        eq(credentials.credentialId, Buffer.from(credentialId, 'base64url')),
        isNull(credentials.factorId),
      ),
    )
  return credential
}

/**
 * Records a use of a credential. False when it was deleted, or when its counter has already passed
 * this use: then two authenticators have the same key.
 */
export async function useCredential(
  store: Store,
  id: string,
  { signCount, isBackedUp }: CredentialUse,
): Promise<boolean> {
  const { webauthnCredentials: credentials } = store.tables
  const now = store.now()
  const used = await store.db
    .update(credentials)
    .set({ signCount, isBackedUp, lastUsedAt: now, updatedAt: now })
    .where(
      and(
        eq(credentials.id, id),
        // Authenticators without a counter always report 0.
        or(
          lt(credentials.signCount, signCount),
          signCount === 0 ? eq(credentials.signCount, 0) : undefined,
        ),
      ),
    )
    .returning({ id: credentials.id })
  return used.length > 0
}

/** Renames a user's own passkey; undefined when there is none. */
export async function renamePasskey(
  store: Store,
  passkey: { readonly id: string; readonly userId: string },
  friendlyName: string,
): Promise<WebAuthnCredentialRow | undefined> {
  const { webauthnCredentials } = store.tables
  const [renamed] = await store.db
    .update(webauthnCredentials)
    .set({ friendlyName, updatedAt: store.now() })
    .where(isPasskey(store, passkey))
    .returning()
  return renamed
}

/** Deletes a user's passkey; false when there is none. */
export async function deletePasskey(
  store: Store,
  passkey: { readonly id: string; readonly userId: string },
): Promise<boolean> {
  const { webauthnCredentials } = store.tables
  const deleted = await store.db
    .delete(webauthnCredentials)
    .where(isPasskey(store, passkey))
    .returning({ id: webauthnCredentials.id })
  return deleted.length > 0
}

function isPasskey(store: Store, { id, userId }: { readonly id: string; readonly userId: string }) {
  const { webauthnCredentials: credentials } = store.tables
  return and(eq(credentials.id, id), eq(credentials.userId, userId), isNull(credentials.factorId))
}
