import { and, asc, count, eq, gt, inArray, isNull, or, type SQL } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import { secondsFromNow } from '#shared/db/expressions.ts'
import type { OrganizationRole } from '#shared/db/organizations.ts'
import type { AuthTables } from '#shared/db/schema/auth.ts'
import type { OrganizationTables } from '#shared/db/schema/organizations.ts'
import type { Quotas } from '#shared/db/schema/quotas.ts'
import { failure } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'

import { endOrganization } from './account-deletion.ts'

const MEMBERS_MAX = 1000
/** Days for which a deleted organization counts: its activities and usage are kept. */
const DELETED_COUNT_DAYS = 30

export interface Organization {
  readonly id: string
  readonly name: string
  readonly personalUserId: string | null
  readonly retentionDays: number | null
  readonly createdAt: Date
}

export interface Member {
  readonly userId: string
  readonly role: OrganizationRole
  readonly createdAt: Date
}

/** The organizations of a database and their members. */
export function openOrganizations(
  db: Db,
  tables: OrganizationTables,
  options: {
    readonly users: AuthTables['users']
    /** Organizations that one user may create besides their own; 0 sets no limit. */
    readonly perUserMax: number
  },
) {
  const context = { db, tables, ...options }
  return {
    ...openAll(context),
    /** The same for one caller: changes are made only while `permit` returns its role. */
    permitting: (permit: Permit) => openAll({ ...context, permit }),
  }
}

const openAll = (context: Context) => ({ ...openOnes(context), ...openMembers(context) })

/** Reads the roles of users. */
export type Roles = Pick<ReturnType<typeof openAll>, 'rolesOf' | 'find'>

/** Returns the role of a caller in an organization, or throws. */
type Permit = (roles: Roles) => Promise<OrganizationRole>

interface Context {
  readonly db: Db
  readonly tables: OrganizationTables
  readonly users: AuthTables['users']
  readonly perUserMax: number
  /** Absent for the operator, whose changes need no role. */
  readonly permit?: Permit
}

function openOnes(context: Context) {
  const { db, tables, perUserMax } = context
  const { organizations, members } = tables
  return {
    async find(ids: readonly string[]): Promise<readonly Organization[]> {
      if (ids.length === 0) return []
      return db
        .select(summaryOf(tables))
        .from(organizations)
        .where(and(inArray(organizations.id, [...ids]), isNull(organizations.deletedAt)))
        .orderBy(asc(organizations.createdAt), asc(organizations.id))
    },
    async create(name: string, ownerId: string): Promise<Organization> {
      return db.transaction(async (tx) => {
        // Locks the user, so that concurrent requests count their organizations one after another.
        if (!(await holdUser(tx, context.users, ownerId))) throw noSuchUser(ownerId)
        if (perUserMax > 0 && (await countCreated(tx, tables, ownerId)) >= perUserMax) {
          throw failure.invalidRequest(
            `A user creates at most ${perUserMax} organizations. Deleted ones count for ${DELETED_COUNT_DAYS} days.`,
            { code: 'too_many_organizations' },
          )
        }
        const id = randomId('org-')
        const [made] = await tx
          .insert(organizations)
          .values({ id, name, createdBy: ownerId })
          .returning(summaryOf(tables))
        await tx.insert(members).values({ organizationId: id, userId: ownerId, role: 'owner' })
        return made as Organization
      })
    },
    async update(
      id: string,
      change: Partial<Pick<Organization, 'name' | 'retentionDays'> & Quotas>,
    ): Promise<Organization> {
      return lock(context, id, async (tx) => {
        const updated = tx.update(organizations).set(change).where(eq(organizations.id, id))
        return (await updated.returning(summaryOf(tables)))[0] as Organization
      })
    },
    /** Deletes its keys and memberships; usage and activities are kept. */
    async remove(id: string): Promise<void> {
      await lock(context, id, async (tx, { found: { personalUserId } }) => {
        if (personalUserId !== null) {
          throw failure.conflict("A user's own organization cannot be deleted.", {
            code: 'personal_organization',
          })
        }
        await endOrganization(tx, tables, id)
      })
    },
  }
}

function openMembers(context: Context) {
  const { db, tables } = context
  const { members } = tables
  return {
    /** The role of a user in each organization. */
    async rolesOf(userId: string): Promise<ReadonlyMap<string, OrganizationRole>> {
      const rows = await db
        .select({ id: members.organizationId, role: members.role })
        .from(members)
        .where(eq(members.userId, userId))
      return new Map(rows.map(({ id, role }) => [id, role]))
    },
    async members(id: string): Promise<readonly Member[]> {
      return db
        .select(memberOf(tables))
        .from(members)
        .where(eq(members.organizationId, id))
        .orderBy(asc(members.createdAt), asc(members.userId))
    },
    /** Runs `work` in the same transaction. */
    addMember: (
      id: string,
      userId: string,
      role: OrganizationRole,
      work: (tx: Db) => Promise<void> = async () => {},
    ): Promise<Member> => addMember(context, { organizationId: id, userId, role }, work),
    /** `check` receives the member before the change, and the role of the caller. */
    async setRole(
      id: string,
      userId: string,
      { role, check }: { role: OrganizationRole; check: CheckMember },
    ): Promise<Member> {
      return lock(context, id, async (tx, { found, own }) => {
        const member = await getMember(tx, tables, id, userId)
        check(member, own)
        if (role !== 'owner') await mustKeep(tx, tables, found, member)
        await tx
          .update(members)
          .set({ role })
          .where(isMember(tables, id, userId))
        return { ...member, role }
      })
    },
    async removeMember(
      id: string,
      userId: string,
      { check }: { check: CheckMember },
    ): Promise<void> {
      await lock(context, id, async (tx, { found, own }) => {
        const member = await getMember(tx, tables, id, userId)
        check(member, own)
        await mustKeep(tx, tables, found, member)
        await tx.delete(members).where(isMember(tables, id, userId))
      })
    },
  }
}

/** The user is locked first, as in a deletion, so that the two cannot deadlock. */
function addMember(
  context: Context,
  membership: {
    readonly organizationId: string
    readonly userId: string
    readonly role: OrganizationRole
  },
  work: (tx: Db) => Promise<void>,
): Promise<Member> {
  const { db, tables, users } = context
  const { organizationId: id, userId } = membership
  return db.transaction(async (held) => {
    const isUser = await holdUser(held, users, userId)
    return lock({ ...context, db: held }, id, async (tx) => {
      if (!isUser) throw noSuchUser(userId)
      await mustFit(tx, tables, id)
      await work(tx)
      const [added] = await tx
        .insert(tables.members)
        .values(membership)
        .onConflictDoNothing()
        .returning(memberOf(tables))
      if (added !== undefined) return added
      throw alreadyMember('invitation_id')
    })
  })
}

const summaryOf = ({ organizations }: OrganizationTables) => ({
  id: organizations.id,
  name: organizations.name,
  personalUserId: organizations.personalUserId,
  retentionDays: organizations.retentionDays,
  createdAt: organizations.createdAt,
})

const memberOf = ({ members }: OrganizationTables) => ({
  userId: members.userId,
  role: members.role,
  createdAt: members.createdAt,
})

const isMember = ({ members }: OrganizationTables, id: string, userId: string) =>
  and(eq(members.organizationId, id), eq(members.userId, userId))

/** Throws unless a caller with this role may change the member. */
type CheckMember = (member: Member, own: OrganizationRole) => void

/**
 * Locks the organization, so that concurrent changes count its owners one after another. The role
 * of the caller is read under the lock, because it may end while the request waits; it is read
 * before too, so that strangers take no lock.
 */
async function lock<T>(
  context: Context,
  id: string,
  work: (tx: Db, locked: { found: Organization; own: OrganizationRole }) => Promise<T>,
): Promise<T> {
  const { db, tables, permit = async () => 'owner' as const } = context
  const { organizations } = tables
  await permit(openAll(context))
  return db.transaction(async (tx) => {
    const [found] = await tx
      .select(summaryOf(tables))
      .from(organizations)
      .where(and(eq(organizations.id, id), isNull(organizations.deletedAt)))
      .for('update')
    if (found === undefined) throw noSuchOrganization(id)
    return work(tx, { found, own: await permit(openAll({ ...context, db: tx })) })
  })
}

async function countMembers(
  tx: Db,
  { members }: OrganizationTables,
  where: SQL | undefined,
): Promise<number> {
  const rows = await tx.select({ total: count() }).from(members).where(where)
  return rows[0]?.total ?? 0
}

/** Locks a user until the transaction ends; false for an unknown or deleted user. */
async function holdUser(tx: Db, users: AuthTables['users'], userId: string): Promise<boolean> {
  const found = await tx
    .select({ id: users.id })
    .from(users)
    .where(and(eq(users.id, userId), isNull(users.deletedAt)))
    .for('no key update')
  return found.length > 0
}

/** No user has this id. */
export function noSuchUser(userId: string): Error {
  return failure.notFound(`No such user: ${userId}`, { param: 'user_id' })
}

/** The organizations that a user created: those that exist, and those deleted lately. */
async function countCreated(tx: Db, { organizations }: OrganizationTables, userId: string) {
  const { createdBy, deletedAt } = organizations
  const counts = or(isNull(deletedAt), gt(deletedAt, secondsFromNow(-DELETED_COUNT_DAYS * 86_400)))
  const [found] = await tx
    .select({ total: count() })
    .from(organizations)
    .where(and(eq(createdBy, userId), counts))
  return found?.total ?? 0
}

async function mustFit(tx: Db, tables: OrganizationTables, id: string): Promise<void> {
  if ((await countMembers(tx, tables, eq(tables.members.organizationId, id))) >= MEMBERS_MAX) {
    throw failure.invalidRequest(`An organization has at most ${MEMBERS_MAX} members.`, {
      code: 'too_many_members',
    })
  }
}

/** Throws when the member is the last owner or the creator of the organization. */
async function mustKeep(
  tx: Db,
  tables: OrganizationTables,
  found: Organization,
  member: Member,
): Promise<void> {
  const { members } = tables
  if (found.personalUserId === member.userId) {
    throw failure.conflict('A user stays the owner of their own organization.', {
      code: 'personal_organization',
    })
  }
  const owners = and(eq(members.organizationId, found.id), eq(members.role, 'owner'))
  if (member.role === 'owner' && (await countMembers(tx, tables, owners)) === 1) {
    throw failure.conflict('An organization keeps at least one owner.', { code: 'last_owner' })
  }
}

async function getMember(
  tx: Db,
  tables: OrganizationTables,
  id: string,
  userId: string,
): Promise<Member> {
  const [member] = await tx
    .select(memberOf(tables))
    .from(tables.members)
    .where(isMember(tables, id, userId))
  if (member === undefined) throw noSuchMember(userId)
  return member
}

export type Organizations = ReturnType<typeof openOrganizations>

/** The same answer for unknown organizations and those of others. */
export function noSuchOrganization(id: string): Error {
  return failure.notFound(`No such organization: ${id.slice(0, 64)}`, { param: 'id' })
}

/** The user is a member of the organization. */
export function alreadyMember(param: string): Error {
  return failure.conflict('The user is a member already.', { param, code: 'already_member' })
}

/** The same for members. */
export function noSuchMember(userId: string): Error {
  return failure.notFound(`No such member: ${userId.slice(0, 64)}`, { param: 'user_id' })
}
