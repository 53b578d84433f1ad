import { createHash, randomUUID } from 'node:crypto'

import {
  and,
  asc,
  count,
  desc,
  eq,
  exists,
  inArray,
  isNotNull,
  isNull,
  lte,
  ne,
  not,
  or,
  type SQL,
  sql,
} from 'drizzle-orm'

import { authFailure } from '#api/auth/errors.ts'
import { deleteFactorsAndPasskeys } from '#api/auth/factors/factors.ts'
import { clearOneTimeTokens } from '#api/auth/sign-in/one-time-tokens.ts'
import type { Store } from '#api/auth/store.ts'
import { prepared } from '#shared/db/client.ts'
import { containsText, textOfField } from '#shared/db/expressions.ts'
import type { Metadata, UserRow } from '#shared/db/schema/auth.ts'

import type { Contact } from './contact.ts'
import type { UserWithParts } from './present-user.ts'

/** The initial columns of a new user. */
interface NewUser {
  readonly id?: string
  readonly aud: string
  readonly role: string
  readonly email?: string | undefined
  readonly phone?: string | undefined
  readonly passwordHash?: string | undefined
  readonly appMetadata?: Metadata
  readonly userMetadata?: Metadata | undefined
  readonly isAnonymous?: boolean
  readonly emailConfirmedAt?: Date
  readonly phoneConfirmedAt?: Date
  readonly invitedAt?: Date
  readonly bannedUntil?: Date | null
  readonly signedUpAt?: Date | undefined
}

/** Columns that may change after a user was created. */
export type UserChanges = Partial<Omit<UserRow, 'id' | 'createdAt' | 'updatedAt'>>

/** A user who was not deleted. */
export async function findUserById(store: Store, id: string): Promise<UserRow | undefined> {
  const { users } = store.tables
  return first(store, eq(users.id, id))
}

/** A user, including soft-deleted ones; only for administrators. */
export async function findAnyUserById(store: Store, id: string): Promise<UserRow | undefined> {
  const { users } = store.tables
  const [user] = await store.db.select().from(users).where(eq(users.id, id)).limit(1)
  return user
}

/** The user of an address or number. */
export async function findUserByContact(
  store: Store,
  contact: Contact,
): Promise<UserRow | undefined> {
  const { kind } = contact
  const value = kind === 'email' ? contact.email : contact.phone
  const { users } = store.tables
  const statement = prepared(store.db, `find_user_by_${kind}`, (name) =>
    store.db
      .select()
      .from(users)
      .where(and(eq(users[kind], sql.placeholder('value')), isNull(users.deletedAt)))
      .limit(1)
      .prepare(name),
  )
  const [user] = await statement.execute({ value })
  return user
}

/**
 * Users who asked to change to this address or number, the latest first; several may have asked.
 */
export async function findUsersChangingTo(store: Store, contact: Contact): Promise<UserRow[]> {
  const { users } = store.tables
  const [column, value, sentAt] =
    contact.kind === 'email'
      ? ([users.emailChange, contact.email, users.emailChangeSentAt] as const)
      : ([users.phoneChange, contact.phone, users.phoneChangeSentAt] as const)
  return store.db
    .select()
    .from(users)
    .where(and(eq(column, value), isNull(users.deletedAt)))
    .orderBy(sql`${sentAt} desc nulls last`)
    .limit(CHANGING_USERS_MAX)
}

// No address has more honest claimants than this.
const CHANGING_USERS_MAX = 5

/** The user with a lock on the row until the transaction ends. */
export async function lockUser(store: Store, id: string): Promise<UserRow> {
  const { users } = store.tables
  const [user] = await store.db.select().from(users).where(eq(users.id, id)).for('update')
  if (user === undefined) throw authFailure('user_not_found')
  return user
}

/** Adds a user; undefined when the id, address or number is taken. */
export async function insertUser(store: Store, fields: NewUser): Promise<UserRow | undefined> {
  const now = store.now()
  const values = { id: randomUUID(), ...fields, createdAt: now, updatedAt: now }
  const [user] = await store.db
    .insert(store.tables.users)
    .values({ ...values, userMetadata: fields.userMetadata ?? {} })
    .onConflictDoNothing()
    .returning()
  return user
}

/** Changes columns of a user. Throws `user_not_found`. */
export async function updateUser(store: Store, id: string, changes: UserChanges): Promise<UserRow> {
  const { users } = store.tables
  const [user] = await store.db
    .update(users)
    .set({ ...changes, updatedAt: store.now() })
    .where(eq(users.id, id))
    .returning()
  if (user === undefined) throw authFailure('user_not_found')
  return user
}

/**
 * Withdraws the changes of contact that need only one more confirmation: of a number, and of an
 * address that the current address need not confirm. Deleting their codes would not be enough,
 * because new ones can be requested while a change is pending.
 */
export async function withdrawContactChanges(store: Store, userId: string): Promise<void> {
  const { users, oneTimeTokens } = store.tables
  const isOwn = eq(users.id, userId)
  await clearOneTimeTokens(store, userId, ['phone_change', 'reauthentication'])
  await store.db
    .update(users)
    .set({ phoneChange: null })
    .where(and(isOwn, isNotNull(users.phoneChange)))
  const isAsked = and(
    eq(oneTimeTokens.userId, userId),
    eq(oneTimeTokens.kind, 'email_change_current'),
  )
  const presentAddress = store.db.select().from(oneTimeTokens).where(isAsked)
  const agreed = [EITHER_SIDE_AGREED, EMAIL_CHANGE_SIDES.email_change_current]
  const hasAgreed = inArray(users.emailChangeAgreed, agreed)
  const [withdrawn] = await store.db
    .update(users)
    .set({ emailChange: null, emailChangeAgreed: 0 })
    .where(and(isOwn, isNotNull(users.emailChange), not(exists(presentAddress)), not(hasAgreed)))
    .returning({ id: users.id })
  if (withdrawn !== undefined) await clearOneTimeTokens(store, userId, ['email_change_new'])
}

/**
 * The value with which a user's row records which address has agreed to a change, by the kind of
 * its token.
 */
export const EMAIL_CHANGE_SIDES = { email_change_new: 2, email_change_current: 3 } as const
/** Older versions stored this value for either address. */
const EITHER_SIDE_AGREED = 1

/**
 * Moves an unconfirmed sign-up to the audience of the newest request, whose token replaces the
 * older one: an earlier request must not choose the audience of the owner of the address.
 */
export async function adoptAudience(store: Store, userId: string, aud: string): Promise<void> {
  const { users } = store.tables
  const isUnconfirmed = and(isNull(users.emailConfirmedAt), isNull(users.phoneConfirmedAt))
  const isOther = and(isNotNull(users.signedUpAt), isNull(users.invitedAt), ne(users.aud, aud))
  await store.db
    .update(users)
    .set({ aud })
    .where(and(eq(users.id, userId), isUnconfirmed, isOther))
}

/** Hashes the same password again; false when it was changed or hashed again in between. */
export async function replacePasswordHash(
  store: Store,
  user: Pick<UserRow, 'id' | 'passwordHash'>,
  passwordHash: string,
): Promise<boolean> {
  const { users } = store.tables
  const replaced = await store.db
    .update(users)
    .set({ passwordHash, updatedAt: store.now() })
    .where(and(eq(users.id, user.id), eq(users.passwordHash, user.passwordHash ?? '')))
    .returning({ id: users.id })
  return replaced.length > 0
}

/** The columns with the time of the last message of a kind. */
export type SentColumn =
  | 'confirmationSentAt'
  | 'recoverySentAt'
  | 'emailChangeSentAt'
  | 'phoneChangeSentAt'
  | 'reauthenticationSentAt'

/**
 * Records that a message is sent now, unless another was within the gap; only one of several
 * concurrent requests succeeds. Returns the user, or the seconds to wait.
 */
export async function claimSend(
  store: Store,
  claim: {
    readonly userId: string
    readonly column: SentColumn
    readonly gapSeconds: number
    /** Changes that are stored in the same statement as the claim. */
    readonly changes?: UserChanges | undefined
  },
): Promise<{ user: UserRow } | { waitSeconds: number }> {
  const { users } = store.tables
  const now = store.now()
  const column = users[claim.column]
  const latest = new Date(now.getTime() - claim.gapSeconds * 1000)
  const [user] = await store.db
    .update(users)
    .set({ ...claim.changes, [claim.column]: now, updatedAt: now })
    .where(
      and(
        eq(users.id, claim.userId),
        // Without a gap, a concurrent request does not block this one.
        claim.gapSeconds === 0 ? undefined : or(isNull(column), lte(column, latest)),
      ),
    )
    .returning()
  if (user !== undefined) return { user }
  const known = await findUserById(store, claim.userId)
  if (known === undefined) throw authFailure('user_not_found')
  const sentAt = known[claim.column]?.getTime() ?? now.getTime()
  return { waitSeconds: Math.max(1, Math.ceil((sentAt - latest.getTime()) / 1000)) }
}

/** A user with identities and second factors, oldest first. */
export async function loadParts(store: Store, user: UserRow): Promise<UserWithParts> {
  const [parts] = await loadPartsOfAll(store, [user])
  return parts as UserWithParts
}

/** Like `loadParts` for a page of users. */
export async function loadPartsOfAll(
  store: Store,
  page: readonly UserRow[],
): Promise<UserWithParts[]> {
  if (page.length === 0) return []
  const { db, tables } = store
  const ids = page.map((user) => user.id)
  const own = db.select().from(tables.identities).where(inArray(tables.identities.userId, ids))
  const proofs = db.select().from(tables.factors).where(inArray(tables.factors.userId, ids))
  const [i, f] = [own.as('i'), proofs.as('f')]
  // Rows of either side, never of both: two lists in one round trip.
  const rows = await db
    .select()
    .from(i)
    .fullJoin(f, sql`false`)
    .orderBy(asc(i.createdAt), asc(i.id), asc(f.createdAt), asc(f.id))
  return page.map((user) => ({
    user,
    identities: rows.flatMap((row) => (row.i?.userId === user.id ? [row.i] : [])),
    factors: rows.flatMap((row) => (row.f?.userId === user.id ? [row.f] : [])),
  }))
}

/** One page of an audience's users, newest first unless asked otherwise, and how many there are. */
export async function listUsers(
  store: Store,
  page: {
    readonly audience: string
    readonly offset: number
    readonly limit: number
    readonly isOldestFirst: boolean
    readonly filter: string
  },
): Promise<{ users: UserRow[]; total: number }> {
  const { users } = store.tables
  const isWanted = page.filter === '' ? undefined : matchesFilter(store, page.filter)
  const matches = and(eq(users.aud, page.audience), isWanted)
  const order = page.isOldestFirst ? asc : desc
  const [rows, [counted]] = await Promise.all([
    store.db
      .select()
      .from(users)
      .where(matches)
      .orderBy(order(users.createdAt), order(users.id))
      .limit(page.limit)
      .offset(page.offset),
    store.db.select({ total: count() }).from(users).where(matches),
  ])
  return { users: rows, total: counted?.total ?? 0 }
}

/** Deletes a user and all dependent rows; false when there was no such user. */
export async function deleteUser(store: Store, id: string): Promise<boolean> {
  const { users } = store.tables
  const deleted = await store.db.delete(users).where(eq(users.id, id)).returning({ id: users.id })
  return deleted.length > 0
}

/** Keeps the row without personal data. */
export async function softDeleteUser(store: Store, user: UserRow): Promise<void> {
  const { identities, sessions, oneTimeTokens } = store.tables
  const veil = (value: string | null): string | null =>
    value === null
      ? null
      : createHash('sha256')
          .update(user.id + value)
          .digest('base64url')
  await updateUser(store, user.id, {
    email: veil(user.email)?.toLowerCase() ?? null,
    phone: veil(user.phone)?.slice(0, 15) ?? null,
    emailChange: null,
    phoneChange: null,
    passwordHash: null,
    appMetadata: {},
    userMetadata: {},
    deletedAt: store.now(),
  })
  await store.db
    .update(identities)
    .set({
      identityData: {},
      providerId: sql`encode(sha256((${identities.userId}::text || ${identities.providerId})::bytea), 'hex')`,
    })
    .where(eq(identities.userId, user.id))
  await store.db.delete(sessions).where(eq(sessions.userId, user.id))
  await deleteFactorsAndPasskeys(store, user.id)
  await store.db.delete(oneTimeTokens).where(eq(oneTimeTokens.userId, user.id))
}

/** Whether the user is banned. */
export function isBanned(user: UserRow, now: Date): boolean {
  return user.bannedUntil !== null && user.bannedUntil > now
}

/** False for banned and soft-deleted users. */
export function maySignIn(user: UserRow, now: Date): boolean {
  return !isBanned(user, now) && user.deletedAt === null
}

function matchesFilter(store: Store, filter: string): SQL | undefined {
  const { users } = store.tables
  // `position` instead of `like`, so that percent signs and underscores are literal.
  return or(
    containsText(users.email, filter),
    containsText(textOfField(users.userMetadata, 'full_name'), filter),
  )
}

async function first(store: Store, condition: SQL): Promise<UserRow | undefined> {
  const { users } = store.tables
  const [user] = await store.db
    .select()
    .from(users)
    .where(and(condition, isNull(users.deletedAt)))
    .limit(1)
  return user
}
