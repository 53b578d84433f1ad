import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import type { FastifyRequest } from 'fastify'

import { actorOf, type NoteEvent } from '#api/v1/events.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { type Clock, unixSeconds } from '#shared/clock.ts'
import type { OrganizationRole } from '#shared/db/organizations.ts'
import { failure } from '#shared/errors.ts'

import * as schemas from './invitation-schemas.ts'
import {
  type InvitationRow,
  type Invitations,
  type Invitee,
  noSuchInvitation,
  type ReceivedInvitation,
  statusOf,
} from './invitations.ts'
import type { Organizations } from './organizations.ts'
import { mayGive, mayTouch, roleIn } from './roles.ts'
import { listOf } from './schemas.ts'

const DAY_MS = 86_400_000
const DAYS_DEFAULT = 7
const LIMIT_DEFAULT = 20
const READ = { scope: 'any' } as const
const WRITE = { scope: 'organizations' } as const

/** The part of the user server that invitations use. */
export interface InvitationMailer {
  /** Throws for an invalid email address. */
  parseEmail(text: string): string
  /** Sends a sign-in link; creates an account where none exists. */
  send(mail: {
    readonly email: string
    readonly invitationId: string
    readonly organizationName: string
    readonly role: OrganizationRole
    readonly request: FastifyRequest
  }): Promise<void>
}

export interface InvitationServices {
  readonly organizations: Organizations
  readonly invitations: Invitations
  readonly mailer: InvitationMailer
  readonly note: NoteEvent
  readonly clock: Clock
}

type App = Parameters<FastifyPluginAsyncTypebox>[0]

/** `/organizations/{id}/invitations` for inviters, `/invitations` for invited users. */
export function registerInvitations(app: App, services: InvitationServices): void {
  registerSending(app, services)
  registerSent(app, services)
  registerReceived(app, services)
}

const PATH = '/organizations/:id/invitations'

function registerSending(app: App, services: InvitationServices): void {
  const { organizations, invitations, mailer, note, clock } = services
  app.post(PATH, { schema: schemas.INVITE, config: WRITE }, async (request) => {
    const { id } = request.params
    const { role = 'member', expires_in_days = DAYS_DEFAULT } = request.body
    const caller = callerOf(request)
    mayGive(caller, await roleIn(organizations, caller, id, 'admin'), { role })
    const invitee = inviteeOf(request.body, mailer)
    const [organization] = await organizations.find([id])
    const invitation = await invitations.create({
      organizationId: id,
      invitee,
      role,
      invitedBy: actorOf(request),
      expiresAt: new Date(clock.now() + expires_in_days * DAY_MS),
    })
    if ('email' in invitee) {
      try {
        const organizationName = organization?.name ?? ''
        const { email } = invitee
        await mailer.send({ email, invitationId: invitation.id, organizationName, role, request })
      } catch (error) {
        await invitations.delete(invitation.id)
        throw error
      }
    }
    note(request, invitationEvent('Invite', 'invitation.created', invitation))
    return presentInvitation(invitation, clock.now())
  })

  app.delete(
    `${PATH}/:invitation_id`,
    { schema: schemas.REVOKE, config: WRITE },
    async (request) => {
      const { id, invitation_id } = request.params
      const own = await roleIn(organizations, callerOf(request), id, 'admin')
      const found = await invitations.find(id, invitation_id)
      if (found === undefined) throw noSuchInvitation(invitation_id)
      mayTouch(own, found.role)
      const revoked = await invitations.revoke(id, invitation_id)
      if (revoked === undefined) {
        throw failure.conflict('The invitation is not open any more.', {
          param: 'invitation_id',
          code: 'invitation_not_open',
        })
      }
      note(request, invitationEvent('Undo', 'invitation.revoked', revoked))
      return { id: revoked.id, object: 'organization.invitation' as const, deleted: true as const }
    },
  )
}

function inviteeOf(
  { email, user_id: userId }: { readonly email?: string; readonly user_id?: string },
  mailer: InvitationMailer,
): Invitee {
  if (email !== undefined && userId !== undefined) {
    throw failure.invalidRequest("Send either 'email' or 'user_id', not both.", {
      param: 'user_id',
      code: 'mutually_exclusive_parameters',
    })
  }
  if (userId !== undefined) return { userId: userId.toLowerCase() }
  if (email !== undefined) return { email: mailer.parseEmail(email) }
  throw failure.invalidRequest("Missing required parameter: 'email' or 'user_id'.", {
    param: 'email',
    code: 'missing_required_parameter',
  })
}

function registerSent(app: App, { organizations, invitations, clock }: InvitationServices): void {
  app.get(PATH, { schema: schemas.LIST_SENT, config: READ }, async (request) => {
    const { id } = request.params
    const { limit = LIMIT_DEFAULT, after } = request.query
    await roleIn(organizations, callerOf(request), id, 'admin')
    const { rows, hasMore } = await invitations.list(id, { limit, after })
    const nowMs = clock.now()
    return { ...listOf(rows.map((row) => presentInvitation(row, nowMs))), has_more: hasMore }
  })

  app.get(
    `${PATH}/:invitation_id`,
    { schema: schemas.RETRIEVE_SENT, config: READ },
    async (request) => {
      const { id, invitation_id } = request.params
      await roleIn(organizations, callerOf(request), id, 'admin')
      const found = await invitations.find(id, invitation_id)
      if (found === undefined) throw noSuchInvitation(invitation_id)
      return presentInvitation(found, clock.now())
    },
  )
}

function registerReceived(app: App, { invitations, note, clock }: InvitationServices): void {
  const present = (row: ReceivedInvitation) => ({
    ...presentInvitation(row, clock.now()),
    organization_name: row.organizationName,
  })

  app.get('/invitations', { schema: schemas.LIST_RECEIVED, config: READ }, async (request) => {
    return listOf((await invitations.received(userOf(request))).map(present))
  })

  app.post(
    '/invitations/:invitation_id/accept',
    { schema: schemas.ACCEPT, config: WRITE },
    async (request) => {
      const { invitation_id } = request.params
      const accepted = await invitations.accept(userOf(request), invitation_id)
      if (accepted === undefined) throw noSuchInvitation(invitation_id)
      note(request, invitationEvent('Accept', 'invitation.accepted', accepted))
      return present(accepted)
    },
  )

  app.post(
    '/invitations/:invitation_id/decline',
    { schema: schemas.DECLINE, config: WRITE },
    async (request) => {
      const { invitation_id } = request.params
      const declined = await invitations.decline(userOf(request), invitation_id)
      if (declined === undefined) throw noSuchInvitation(invitation_id)
      note(request, invitationEvent('Reject', 'invitation.declined', declined))
      return present(declined)
    },
  )
}

/** The recorded fields of an invitation, without its email address. */
function invitationEvent(type: string, event: string, { id, role, organizationId }: InvitationRow) {
  return {
    type,
    event,
    organizationId,
    object: { id: `invitation:${id}`, type: 'Invitation', role },
    target: { id: `organization:${organizationId}`, type: 'Organization' },
  }
}

function userOf(request: FastifyRequest): string {
  const { userId } = callerOf(request)
  if (userId !== undefined) return userId
  throw failure.accessDenied('People are invited: send an access token, not a key.', {
    code: 'insufficient_permissions',
  })
}

function presentInvitation(row: InvitationRow & { readonly isBacked?: boolean }, nowMs: number) {
  const seconds = (date: Date | null) => (date === null ? null : unixSeconds(date.getTime()))
  return {
    id: row.id,
    object: 'organization.invitation' as const,
    organization_id: row.organizationId,
    email: row.email,
    user_id: row.userId,
    role: row.role,
    status: statusOf(row, nowMs),
    invited_by: row.invitedBy,
    created_at: unixSeconds(row.createdAt.getTime()),
    expires_at: unixSeconds(row.expiresAt.getTime()),
    accepted_at: seconds(row.acceptedAt),
  }
}
