import {
  and,
  count,
  desc,
  eq,
  getTableColumns,
  gt,
  isNotNull,
  isNull,
  lte,
  not,
  or,
} from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import { isBeyondRowWhere } from '#shared/db/expressions.ts'
import { holdOrganization, type OrganizationRole } from '#shared/db/organizations.ts'
import type { AuthTables } from '#shared/db/schema/auth.ts'
import type { OrganizationTables } from '#shared/db/schema/organizations.ts'
import { failure } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'

import { isBacked } from './invitation-creator-store.ts'
import {
  alreadyMember,
  noSuchOrganization,
  noSuchUser,
  type Organizations,
} from './organizations.ts'

const OPEN_MAX = 200
/** Invitations of one organization, including ended ones. */
const KEPT_MAX = 10_000

export type InvitationRow = OrganizationTables['invitations']['$inferSelect']

/** The state of an invitation. */
export const INVITATION_STATES = ['pending', 'accepted', 'declined', 'revoked', 'expired'] as const
type InvitationStatus = (typeof INVITATION_STATES)[number]

/**
 * An invitation as its organization sees it; it grants nothing once its inviter lost the rights.
 */
interface SentInvitation extends InvitationRow {
  readonly isBacked: boolean
}

/** An invitation and the name of its organization. */
export interface ReceivedInvitation extends InvitationRow {
  readonly organizationName: string
}

/** The email address or the id of an invited user. */
export type Invitee = { readonly email: string } | { readonly userId: string }

/** The invitee and the role of an invitation. */
interface NewInvitation {
  readonly organizationId: string
  readonly invitee: Invitee
  readonly role: OrganizationRole
  readonly invitedBy: string
  readonly expiresAt: Date
}

/** The invitations of a database. Callers check the permissions. */
export function openInvitations(
  db: Db,
  tables: OrganizationTables,
  more: { readonly users: AuthTables['users']; readonly organizations: Organizations },
) {
  const context = { db, tables, ...more }
  return { ...openSent(context), ...openReceived(context) }
}

export type Invitations = ReturnType<typeof openInvitations>

interface Context {
  readonly db: Db
  readonly tables: OrganizationTables
  readonly users: AuthTables['users']
  readonly organizations: Organizations
}

/** The operations of organizations on their invitations. */
function openSent(context: Context) {
  const { db, tables } = context
  const { invitations } = tables
  const sent = { ...getTableColumns(invitations), isBacked: isBacked(tables) }
  return {
    create: (invitation: NewInvitation) => createInvitation(context, invitation),
    /** Deletes an invitation whose mail could not be sent. */
    async delete(id: string): Promise<void> {
      await db.delete(invitations).where(eq(invitations.id, id))
    },
    async list(
      organizationId: string,
      page: { readonly limit: number; readonly after?: string | undefined },
    ): Promise<{ rows: SentInvitation[]; hasMore: boolean }> {
      const rows = await db
        .select(sent)
        .from(invitations)
        .where(
          and(
            eq(invitations.organizationId, organizationId),
            page.after === undefined ? undefined : isPast(tables, organizationId, page.after),
          ),
        )
        .orderBy(desc(invitations.createdAt), desc(invitations.id))
        .limit(page.limit + 1)
      return { rows: rows.slice(0, page.limit), hasMore: rows.length > page.limit }
    },
    async find(organizationId: string, id: string): Promise<SentInvitation | undefined> {
      const [found] = await db
        .select(sent)
        .from(invitations)
        .where(and(eq(invitations.organizationId, organizationId), eq(invitations.id, id)))
      return found
    },
    /** Revokes an open invitation; undefined when it is no longer open. */
    async revoke(organizationId: string, id: string): Promise<InvitationRow | undefined> {
      const isOpen = and(
        eq(invitations.organizationId, organizationId),
        eq(invitations.id, id),
        isNull(invitations.acceptedAt),
        isNull(invitations.endedAt),
      )
      const [revoked] = await db
        .update(invitations)
        .set({ endedAt: new Date(), endedAs: 'revoked' })
        .where(isOpen)
        .returning()
      return revoked
    },
  }
}

/**
 * Throws `conflict` for a member, and where an open invitation exists; `notFound` for an id without
 * a user.
 */
async function createInvitation(
  context: Context,
  invitation: NewInvitation,
): Promise<InvitationRow> {
  const { db, tables } = context
  const { invitee, ...values } = invitation
  const [made] = await db.transaction(async (tx) => {
    const isHeld = await holdOrganization(tx, tables, invitation.organizationId)
    if (!isHeld) throw noSuchOrganization(invitation.organizationId)
    await mustBeNew({ ...context, db: tx }, invitation)
    await endExpired(tx, tables, invitation)
    return tx
      .insert(tables.invitations)
      .values({ id: randomId('inv_'), ...values, ...invitee })
      .onConflictDoNothing()
      .returning()
  })
  if (made !== undefined) return made
  throw failure.conflict('There is an open invitation of this user already.', {
    param: paramOf(invitee),
    code: 'already_invited',
  })
}

/** Whether an invitation follows another one in the organization's list. */
function isPast({ invitations }: OrganizationTables, organizationId: string, id: string) {
  const isOther = and(eq(invitations.organizationId, organizationId), eq(invitations.id, id))
  return isBeyondRowWhere([invitations.createdAt, invitations.id], '<', isOther)
}

/** The operations of invited users, found by their id or their confirmed email address. */
function openReceived(context: Context) {
  const { db, tables } = context
  const { invitations } = tables
  return {
    received: (userId: string) => findReceived(context, userId),
    /** Makes the user a member; undefined without such an open invitation for this user. */
    async accept(userId: string, id: string): Promise<ReceivedInvitation | undefined> {
      const [found] = await findReceived(context, userId, id)
      if (found === undefined) return undefined
      const { organizationId, role } = found
      const acceptedAt = new Date()
      await context.organizations.addMember(organizationId, userId, role, async (tx) => {
        const accepted = await tx
          .update(invitations)
          .set({ acceptedAt, acceptedBy: userId })
          .where(
            and(
              eq(invitations.id, id),
              isNull(invitations.endedAt),
              isNull(invitations.acceptedAt),
              isBacked(tables),
            ),
          )
          .returning({ id: invitations.id })
        if (accepted.length === 0) throw noSuchInvitation(id)
      })
      return { ...found, acceptedAt, acceptedBy: userId }
    },
    async decline(userId: string, id: string): Promise<ReceivedInvitation | undefined> {
      const [found] = await findReceived(context, userId, id)
      if (found === undefined) return undefined
      const endedAt = new Date()
      const declined = await db
        .update(invitations)
        .set({ endedAt, endedAs: 'declined' })
        .where(
          and(eq(invitations.id, id), isNull(invitations.endedAt), isNull(invitations.acceptedAt)),
        )
        .returning({ id: invitations.id })
      return declined.length === 0 ? undefined : { ...found, endedAt, endedAs: 'declined' }
    },
  }
}

/** The newest open invitations of a user; with an id, that one alone. */
async function findReceived(
  { db, tables, users }: Context,
  userId: string,
  id?: string,
): Promise<readonly ReceivedInvitation[]> {
  const { invitations, organizations } = tables
  const isInvitee = or(
    eq(users.id, invitations.userId),
    and(eq(users.email, invitations.email), isNotNull(users.emailConfirmedAt)),
  )
  const rows = await db
    .select({ invitation: invitations, organizationName: organizations.name })
    .from(invitations)
    .innerJoin(users, isInvitee)
    .innerJoin(organizations, eq(organizations.id, invitations.organizationId))
    .where(
      and(
        eq(users.id, userId),
        isNull(users.deletedAt),
        isNull(invitations.acceptedAt),
        isNull(invitations.endedAt),
        gt(invitations.expiresAt, new Date()),
        isNull(organizations.deletedAt),
        isBacked(tables),
        id === undefined ? undefined : eq(invitations.id, id),
      ),
    )
    .orderBy(desc(invitations.createdAt))
    .limit(OPEN_MAX)
  return rows.map(({ invitation, organizationName }) => ({ ...invitation, organizationName }))
}

/** The state of an invitation at a point in time. */
export function statusOf(
  row: InvitationRow & { readonly isBacked?: boolean },
  nowMs: number,
): InvitationStatus {
  if (row.acceptedAt !== null) return 'accepted'
  if (row.endedAs !== null) return row.endedAs
  if (row.expiresAt.getTime() <= nowMs) return 'expired'
  return row.isBacked === false ? 'revoked' : 'pending'
}

/** The same answer for unknown invitations and those of others. */
export function noSuchInvitation(id: string): Error {
  return failure.notFound(`No such invitation: ${id.slice(0, 64)}`, { param: 'invitation_id' })
}

async function mustBeNew(
  { db, tables, users }: Context,
  { organizationId, invitee }: NewInvitation,
): Promise<void> {
  const { invitations, members } = tables
  const [found] = await db
    .select({ isMember: isNotNull(members.userId) })
    .from(users)
    .leftJoin(
      members,
      and(eq(members.userId, users.id), eq(members.organizationId, organizationId)),
    )
    .where(
      'email' in invitee
        ? eq(users.email, invitee.email)
        : and(eq(users.id, invitee.userId), isNull(users.deletedAt)),
    )
    .orderBy(isNull(members.userId))
  if (found === undefined && 'userId' in invitee) throw noSuchUser(invitee.userId)
  if (found?.isMember === true) throw alreadyMember(paramOf(invitee))
  const [open] = await db
    .select({ total: count() })
    .from(invitations)
    .where(
      and(
        eq(invitations.organizationId, organizationId),
        isNull(invitations.acceptedAt),
        isNull(invitations.endedAt),
        gt(invitations.expiresAt, new Date()),
        isBacked(tables),
      ),
    )
  const isOwn = eq(invitations.organizationId, organizationId)
  const [kept] = await db.select({ total: count() }).from(invitations).where(isOwn)
  if ((open?.total ?? 0) < OPEN_MAX && (kept?.total ?? 0) < KEPT_MAX) return
  throw failure.invalidRequest(
    `An organization has at most ${OPEN_MAX} open invitations, and at most ${KEPT_MAX} within 30 days.`,
    { code: 'too_many_invitations' },
  )
}

const paramOf = (invitee: Invitee): string => ('email' in invitee ? 'email' : 'user_id')

/** An expired or revoked invitation can be replaced by a new one. */
async function endExpired(
  tx: Db,
  tables: OrganizationTables,
  { organizationId, invitee }: NewInvitation,
): Promise<void> {
  const { invitations } = tables
  await tx
    .delete(invitations)
    .where(
      and(
        eq(invitations.organizationId, organizationId),
        'email' in invitee
          ? eq(invitations.email, invitee.email)
          : eq(invitations.userId, invitee.userId),
        isNull(invitations.acceptedAt),
        isNull(invitations.endedAt),
        or(lte(invitations.expiresAt, new Date()), not(isBacked(tables))),
      ),
    )
}
