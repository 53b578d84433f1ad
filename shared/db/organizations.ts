import { and, asc, eq, isNull } from 'drizzle-orm'

import { randomId } from '#shared/ids.ts'

import type { Db } from './client.ts'
import type { OrganizationTables } from './schema/organizations.ts'
import type { Quotas } from './schema/quotas.ts'

/** A member's role in an organization. */
export type OrganizationRole = 'owner' | 'admin' | 'member'

/** An organization of a user, with the user's role in it. */
interface Membership {
  readonly id: string
  readonly role: OrganizationRole
}

const DEFAULT_NAME = 'Default'

/** The oldest organization that belongs to no single user; created when there is none. */
export async function ensureDefaultOrganization(
  db: Db,
  { organizations }: OrganizationTables,
): Promise<string> {
  return db.transaction(async (tx) => {
    const rows = await tx
      .select({ id: organizations.id })
      .from(organizations)
      .where(and(isNull(organizations.personalUserId), isNull(organizations.deletedAt)))
      .orderBy(asc(organizations.createdAt), asc(organizations.id))
      .limit(1)
    if (rows[0] !== undefined) return rows[0].id
    const id = randomId('org-')
    await tx.insert(organizations).values({ id, name: DEFAULT_NAME })
    return id
  })
}

/** The quotas of an organization; undefined if it does not exist. */
export async function findQuotas(
  db: Db,
  { organizations }: Pick<OrganizationTables, 'organizations'>,
  id: string,
): Promise<Quotas | undefined> {
  const rows = await db
    .select({
      requestsPerDay: organizations.requestsPerDay,
      requestsPerMonth: organizations.requestsPerMonth,
      tokensPerDay: organizations.tokensPerDay,
      tokensPerMonth: organizations.tokensPerMonth,
      costPerDay: organizations.costPerDay,
      costPerMonth: organizations.costPerMonth,
    })
    .from(organizations)
    .where(eq(organizations.id, id))
  return rows[0]
}

/** The organization's own retention in days, null without one; undefined if it does not exist. */
export async function findRetention(
  db: Db,
  { organizations }: Pick<OrganizationTables, 'organizations'>,
  id: string,
): Promise<{ readonly days: number | null } | undefined> {
  const found = db.select({ days: organizations.retentionDays }).from(organizations)
  return (await found.where(eq(organizations.id, id)))[0]
}

type Tables = Pick<OrganizationTables, 'organizations' | 'members' | 'users'>

/**
 * The organizations of a user, the user's own first. It is created when missing. `isSeen` means
 * that the user existed a moment ago: then a missing user was deleted, and no organization is
 * created.
 */
export async function membershipsOf(
  db: Db,
  tables: Tables,
  userId: string,
  { isSeen }: { readonly isSeen: boolean } = { isSeen: false },
): Promise<readonly Membership[]> {
  const known = await findMemberships(db, tables, userId)
  if (known.some(({ isOwn }) => isOwn)) return known
  await makePersonalOrganization(db, tables, { userId, isSeen })
  return findMemberships(db, tables, userId)
}

/** The existing organizations of a user, the user's own first. */
export async function findMemberships(
  db: Db,
  { organizations, members }: Tables,
  userId: string,
): Promise<readonly (Membership & { readonly isOwn: boolean })[]> {
  const rows = await db
    .select({
      id: organizations.id,
      role: members.role,
      personalUserId: organizations.personalUserId,
    })
    .from(members)
    .innerJoin(organizations, eq(organizations.id, members.organizationId))
    .where(and(eq(members.userId, userId), isNull(organizations.deletedAt)))
    .orderBy(asc(members.createdAt))
  const all = rows.map(({ id, role, personalUserId }) => {
    return { id, role, isOwn: personalUserId === userId }
  })
  return [...all.filter(({ isOwn }) => isOwn), ...all.filter(({ isOwn }) => !isOwn)]
}

/**
 * Locks an organization until the transaction ends, so that only one request at a time counts its
 * contents. False when the organization does not exist.
 */
export async function holdOrganization(
  tx: Db,
  { organizations }: Pick<OrganizationTables, 'organizations'>,
  id: string,
): Promise<boolean> {
  const found = await tx
    .select({ id: organizations.id })
    .from(organizations)
    .where(and(eq(organizations.id, id), isNull(organizations.deletedAt)))
    .for('no key update')
  return found.length > 0
}

async function makePersonalOrganization(
  db: Db,
  { organizations, members, users }: Tables,
  { userId, isSeen }: { readonly userId: string; readonly isSeen: boolean },
): Promise<void> {
  await db.transaction(async (tx) => {
    // Waits for a concurrent deletion of the user; a concurrent sign-up is not visible yet.
    const there = await tx
      .select({ id: users.id })
      .from(users)
      .where(and(eq(users.id, userId), isNull(users.deletedAt)))
      .for('key share')
    if (isSeen && there.length === 0) return
    await tx
      .insert(organizations)
      .values({ id: randomId('org-'), name: 'Personal', personalUserId: userId })
      .onConflictDoNothing()
    const [own] = await tx
      .select({ id: organizations.id })
      .from(organizations)
      .where(eq(organizations.personalUserId, userId))
    if (own === undefined) throw new Error('the organization was not made')
    await tx
      .insert(members)
      .values({ organizationId: own.id, userId, role: 'owner' })
      .onConflictDoNothing()
  })
}
