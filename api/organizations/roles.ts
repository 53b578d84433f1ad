import type { Caller } from '#api/v1/caller.ts'
import type { OrganizationRole } from '#shared/db/organizations.ts'
import { failure } from '#shared/errors.ts'

import { noSuchOrganization, type Organizations } from './organizations.ts'

const RANKS: Readonly<Record<OrganizationRole, number>> = { member: 0, admin: 1, owner: 2 }

/** The caller's organizations. A key stands for an administrator of its own. */
export async function rolesOf(
  organizations: Organizations,
  { userId, organizationId }: Caller,
): Promise<ReadonlyMap<string, OrganizationRole>> {
  return userId === undefined ? new Map([[organizationId, 'admin']]) : organizations.rolesOf(userId)
}

/** The caller's role in an organization. Throws `notFound` to strangers, `accessDenied` below `least`. */
export async function roleIn(
  organizations: Organizations,
  caller: Caller,
  id: string,
  least: OrganizationRole,
): Promise<OrganizationRole> {
  const role = (await rolesOf(organizations, caller)).get(id)
  if (role === undefined || (await organizations.find([id])).length === 0) {
    throw noSuchOrganization(id)
  }
  if (RANKS[role] < RANKS[least]) throw lacksRole(least)
  return role
}

/** Only owners make, change or remove owners. */
export function mayGive(own: OrganizationRole, role: OrganizationRole): void {
  if (RANKS[role] > RANKS[own]) throw lacksRole(role)
}

function lacksRole(role: OrganizationRole): Error {
  return failure.accessDenied(
    `You have insufficient permissions for this operation. Missing role: ${role}.`,
    { code: 'insufficient_permissions' },
  )
}
