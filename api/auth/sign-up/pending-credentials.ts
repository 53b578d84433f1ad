import { and, eq, isNull, sql } from 'drizzle-orm'

import type { Store } from '#api/auth/store.ts'
import type { Contact } from '#api/auth/users/contact.ts'
import { prepared } from '#shared/db/client.ts'
import type { OneTimeTokenRow, UserRow } from '#shared/db/schema/auth.ts'

/** A user and the password hash that a sign-in is compared with. */
interface SignInCandidate {
  readonly user: UserRow
  readonly passwordHash: string | undefined
}

/**
 * The user of an email address or phone number in an audience. The password of an unconfirmed
 * sign-up is read in the same statement, so that unconfirmed users take as long as others.
 */
export async function findSignInCandidate(
  store: Store,
  candidate: { readonly contact: Contact; readonly audience: string },
): Promise<SignInCandidate | undefined> {
  const { users, oneTimeTokens } = store.tables
  const { contact, audience } = candidate
  const { kind } = contact
  const tokenKind = TOKEN_KINDS[kind]
  const statement = prepared(store.db, `find_sign_in_by_${kind}`, (name) =>
    store.db
      .select({ user: users, pendingHash: oneTimeTokens.passwordHash })
      .from(users)
      .leftJoin(
        oneTimeTokens,
        and(
          eq(oneTimeTokens.userId, users.id),
          eq(oneTimeTokens.kind, tokenKind),
          isNull(users.emailConfirmedAt),
          isNull(users.phoneConfirmedAt),
        ),
      )
      .where(
        and(
          eq(users[kind], sql.placeholder('value')),
          eq(users.aud, sql.placeholder('audience')),
          isNull(users.deletedAt),
        ),
      )
      .limit(1)
      .prepare(name),
  )
  const value = kind === 'email' ? contact.email : contact.phone
  const [row] = await statement.execute({ value, audience })
  if (row === undefined) return undefined
  const { user, pendingHash } = row
  return { user, passwordHash: user.passwordHash ?? pendingHash ?? undefined }
}

/** The token with the credentials of an unconfirmed sign-up. */
export async function findPendingCredentials(
  store: Store,
  userId: string,
  kind: Contact['kind'],
): Promise<OneTimeTokenRow | undefined> {
  const { oneTimeTokens } = store.tables
  const [token] = await store.db
    .select()
    .from(oneTimeTokens)
    .where(and(eq(oneTimeTokens.userId, userId), eq(oneTimeTokens.kind, TOKEN_KINDS[kind])))
  return token
}

const TOKEN_KINDS = { email: 'confirmation', phone: 'phone_confirmation' } as const
