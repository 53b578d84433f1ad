import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'

import type { NoteEvent } from '#api/v1/events.ts'
import { anonymousUsersCannot, callerOf } from '#api/v1/request-context.ts'
import { unixSeconds } from '#shared/clock.ts'
import type { OrganizationRole } from '#shared/db/organizations.ts'
import { failure } from '#shared/errors.ts'

import { type InvitationServices, registerInvitations } from './invitation-routes.ts'
import {
  type Member,
  noSuchMember,
  noSuchOrganization,
  type Organization,
  type Organizations,
  type Roles,
} from './organizations.ts'
import { mayGive, mayTouch, roleIn, rolesOf } from './roles.ts'
import * as schemas from './schemas.ts'
import { listOf } from './schemas.ts'

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
const READ = { scope: 'any' } as const
const WRITE = { scope: 'organizations' } as const

/** `/organizations`: the caller's organizations, their members and the invitations to them. */
export function organizationsPlugin(services: InvitationServices): FastifyPluginAsyncTypebox {
  const { organizations, note } = services
  return async (app) => {
    app.get('/organizations', { schema: schemas.LIST, config: READ }, async (request) => {
      const roles = await rolesOf(organizations, callerOf(request))
      const found = await organizations.find([...roles.keys()])
      return listOf(found.map((one) => presentOrganization(one, roles.get(one.id) ?? 'member')))
    })

    app.post('/organizations', { schema: schemas.CREATE, config: WRITE }, async (request) => {
      const { userId, isAnonymous } = callerOf(request)
      if (userId === undefined) throw usersOnly()
      // Each organization has quotas of its own.
      if (isAnonymous === true) throw anonymousUsersCannot('create organizations')
      return presentOrganization(await organizations.create(request.body.name, userId), 'owner')
    })

    app.get('/organizations/:id', { schema: schemas.RETRIEVE, config: READ }, async (request) => {
      const { id } = request.params
      const role = await roleIn(organizations, callerOf(request), id, 'member')
      const [found] = await organizations.find([id])
      if (found === undefined) throw noSuchOrganization(id)
      return presentOrganization(found, role)
    })

    app.patch('/organizations/:id', { schema: schemas.UPDATE, config: WRITE }, async (request) => {
      const { id } = request.params
      const { name, retention_days: retentionDays } = request.body
      const change = {
        ...(name !== undefined && { name }),
        ...(retentionDays !== undefined && { retentionDays }),
      }
      const caller = callerOf(request)
      const permit = (roles: Roles) => roleIn(roles, caller, id, 'admin')
      const role = await permit(organizations)
      return presentOrganization(await organizations.permitting(permit).update(id, change), role)
    })

    app.delete('/organizations/:id', { schema: schemas.DELETE, config: WRITE }, async (request) => {
      const { id } = request.params
      const caller = callerOf(request)
      const permit = (roles: Roles) => roleIn(roles, caller, id, 'owner')
      await organizations.permitting(permit).remove(id)
      return { id, object: 'organization' as const, deleted: true as const }
    })

    registerMembers(app, organizations, note)
    registerInvitations(app, services)
  }
}

function registerMembers(
  app: Parameters<FastifyPluginAsyncTypebox>[0],
  organizations: Organizations,
  note: NoteEvent,
): void {
  const path = '/organizations/:id/members'
  app.get(path, { schema: schemas.LIST_MEMBERS, config: READ }, async (request) => {
    const { id } = request.params
    await roleIn(organizations, callerOf(request), id, 'member')
    return listOf((await organizations.members(id)).map(presentMember))
  })

  app.patch(
    `${path}/:user_id`,
    { schema: schemas.CHANGE_MEMBER, config: WRITE },
    async (request) => {
      const { id, user_id } = request.params
      const { role } = request.body
      const caller = callerOf(request)
      const permit = async (roles: Roles) => {
        const own = await roleIn(roles, caller, id, 'admin')
        mayTouch(own, role)
        return own
      }
      const check = (member: Member, own: OrganizationRole) => {
        mayTouch(own, member.role)
        mayGive(caller, own, { role, from: member.role })
      }
      const member = await organizations
        .permitting(permit)
        .setRole(id, parseUserId(user_id), { role, check })
      note(request, memberEvent('Update', 'member.changed', { id, ...member }))
      return presentMember(member)
    },
  )

  app.delete(
    `${path}/:user_id`,
    { schema: schemas.REMOVE_MEMBER, config: WRITE },
    async (request) => {
      const { id, user_id } = request.params
      const caller = callerOf(request)
      const userId = parseUserId(user_id)
      // Every member may leave.
      const isSelf = caller.userId === userId
      const permit = (roles: Roles) => roleIn(roles, caller, id, isSelf ? 'member' : 'admin')
      const check = (member: Member, own: OrganizationRole) => {
        if (!isSelf) mayTouch(own, member.role)
      }
      await organizations.permitting(permit).removeMember(id, userId, { check })
      note(request, memberEvent(isSelf ? 'Leave' : 'Remove', 'member.removed', { id, userId }))
      return { id: userId, object: 'organization.member' as const, deleted: true as const }
    },
  )
}

function memberEvent(
  type: string,
  event: string,
  { id, userId, role }: { id: string; userId: string; role?: OrganizationRole },
) {
  return {
    type,
    event,
    organizationId: id,
    object: { id: `user:${userId}`, type: 'Person', role },
    target: { id: `organization:${id}`, type: 'Organization' },
  }
}

function usersOnly(): Error {
  return failure.accessDenied('Organizations are made by users: send an access token, not a key.', {
    code: 'insufficient_permissions',
  })
}

function parseUserId(text: string): string {
  if (!UUID.test(text)) throw noSuchMember(text)
  return text.toLowerCase()
}

function presentOrganization(organization: Organization, role: OrganizationRole) {
  return {
    id: organization.id,
    object: 'organization' as const,
    name: organization.name,
    is_personal: organization.personalUserId !== null,
    retention_days: organization.retentionDays,
    role,
    created_at: unixSeconds(organization.createdAt.getTime()),
  }
}

function presentMember({ userId, role, createdAt }: Member) {
  return {
    id: userId,
    object: 'organization.member' as const,
    role,
    created_at: unixSeconds(createdAt.getTime()),
  }
}
