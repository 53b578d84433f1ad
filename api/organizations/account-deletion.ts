import { and, asc, desc, eq, inArray, isNull } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import type { OrganizationTables } from '#shared/db/schema/organizations.ts'

/**
 * Removes deleted users from their organizations, within the transaction that deletes them.
 * Organizations without other members end, keys included; otherwise ownership passes to the
 * longest-serving administrator, else to the longest-standing member.
 */
export async function endMemberships(
  tx: Db,
  tables: OrganizationTables,
  userIds: readonly string[],
): Promise<void> {
  if (userIds.length === 0) return
  const { organizations, members } = tables
  const theirs = tx
    .select({ id: members.organizationId })
    .from(members)
    .where(inArray(members.userId, [...userIds]))
  // Locked in one order, so that concurrent deletions cannot deadlock.
  const held = await tx
    .select({ id: organizations.id, personalUserId: organizations.personalUserId })
    .from(organizations)
    .where(and(inArray(organizations.id, theirs), isNull(organizations.deletedAt)))
    .orderBy(asc(organizations.id))
    .for('update')
  for (const { id, personalUserId } of held) {
    const left = await removeMembers(tx, tables, { id, userIds })
    const isOwn = personalUserId !== null && userIds.includes(personalUserId)
    if (isOwn || left.isEmpty) await endOrganization(tx, tables, id)
    else if (left.heir !== undefined) await makeOwner(tx, tables, { id, userId: left.heir })
  }
}

/** Deletes an organization with its keys and memberships; usage and activities are kept. */
export async function endOrganization(
  tx: Db,
  { organizations, members, apiKeys }: OrganizationTables,
  id: string,
): Promise<void> {
  const now = new Date()
  await tx
    .update(apiKeys)
    .set({ revokedAt: now })
    .where(and(eq(apiKeys.organizationId, id), isNull(apiKeys.revokedAt)))
  await tx.delete(members).where(eq(members.organizationId, id))
  // A user created again under the same id gets a new organization.
  await tx
    .update(organizations)
    .set({ deletedAt: now, personalUserId: null })
    .where(eq(organizations.id, id))
}

interface Departure {
  readonly id: string
  readonly userIds: readonly string[]
}

/** The state of an organization without some of its members. */
interface Left {
  /** An owner has left, and no member remains. */
  readonly isEmpty: boolean
  /** The new owner, when the last one has left. */
  readonly heir: string | undefined
}

async function removeMembers(
  tx: Db,
  { members }: OrganizationTables,
  { id, userIds }: Departure,
): Promise<Left> {
  const gone = await tx
    .delete(members)
    .where(and(eq(members.organizationId, id), inArray(members.userId, [...userIds])))
    .returning({ role: members.role })
  const hasLostOwner = gone.some(({ role }) => role === 'owner')
  // The operator's first organization never had an owner.
  if (!hasLostOwner) return { isEmpty: false, heir: undefined }
  const [first] = await tx
    .select({ userId: members.userId, role: members.role })
    .from(members)
    .where(eq(members.organizationId, id))
    .orderBy(...byRank(members.role), asc(members.createdAt), asc(members.userId))
    .limit(1)
  return {
    isEmpty: first === undefined,
    heir: first === undefined || first.role === 'owner' ? undefined : first.userId,
  }
}

/** Owners first, then administrators. */
const byRank = (role: OrganizationTables['members']['role']) => [
  desc(eq(role, 'owner')),
  desc(eq(role, 'admin')),
]

async function makeOwner(
  tx: Db,
  { members }: OrganizationTables,
  { id, userId }: { readonly id: string; readonly userId: string },
): Promise<void> {
  await tx
    .update(members)
    .set({ role: 'owner' })
    .where(and(eq(members.organizationId, id), eq(members.userId, userId)))
}
