import { and, asc, eq, isNull } from 'drizzle-orm'

import { randomId } from '../ids.ts'
import type { Db } from './client.ts'
import type { OrganizationTables } from './schema/organizations.ts'

export type OrganizationRole = 'owner' | 'admin' | 'member'

/** An organization that a user belongs to, and as what. */
export interface Membership {
  readonly id: string
  readonly role: OrganizationRole
}

const DEFAULT_NAME = 'Default'

/** The oldest organization that belongs to no single user; made when there is none. */
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

/** The organizations of a user, their own first; their own is made when there is none. */
export async function membershipsOf(
  db: Db,
  { organizations, members }: Pick<OrganizationTables, 'organizations' | 'members'>,
  userId: string,
): Promise<readonly Membership[]> {
  const find = () =>
    db
      .select({
        id: organizations.id,
        role: members.role,
        personalUserId: organizations.personalUserId,
      })
      .from(members)
      .innerJoin(organizations, eq(organizations.id, members.organizationId))
      .where(and(eq(members.userId, userId), isNull(organizations.deletedAt)))
      .orderBy(asc(members.createdAt))
  let rows = await find()
  if (!rows.some(({ personalUserId }) => personalUserId === userId)) {
    await makePersonalOrganization(db, { organizations, members }, userId)
    rows = await find()
  }
  const isOwn = (row: (typeof rows)[number]) => row.personalUserId === userId
  return [...rows.filter(isOwn), ...rows.filter((row) => !isOwn(row))].map(({ id, role }) => ({
    id,
    role,
  }))
}

/**
 * Holds an organization until the transaction ends, so that what it has is counted by one request at
 * a time. False where there is none, or none any more.
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
  { organizations, members }: Pick<OrganizationTables, 'organizations' | 'members'>,
  userId: string,
): Promise<void> {
  await db.transaction(async (tx) => {
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
