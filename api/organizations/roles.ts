import type { Caller } from '#api/v1/request-context.ts'
import { MEMBER_SCOPES, SCOPES } from '#api/v1/scopes.ts'
import type { OrganizationRole } from '#shared/db/organizations.ts'
import { failure } from '#shared/errors.ts'

import { noSuchOrganization, type Roles } from './organizations.ts'

const RANKS: Readonly<Record<OrganizationRole, number>> = { member: 0, admin: 1, owner: 2 }

/** The caller's organizations. A key counts as an administrator of its own. */
export async function rolesOf(
  organizations: Roles,
  { userId, organizationId }: Caller,
): Promise<ReadonlyMap<string, OrganizationRole>> {
  return userId === undefined ? new Map([[organizationId, 'admin']]) : organizations.rolesOf(userId)
}

/**
 * The caller's role in an organization. Throws `notFound` to strangers, `accessDenied` below
 * `least`.
 */
export async function roleIn(
  organizations: Roles,
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

/** Only owners change or remove owners. */
export function mayTouch(own: OrganizationRole, role: OrganizationRole): void {
  if (RANKS[role] > RANKS[own]) throw lacksRole(role)
}

/**
 * Only owners appoint owners, and a key grants no more than its own rights: `from` is the former
 * role.
 */
export function mayGive(
  caller: Caller,
  own: OrganizationRole,
  { role, from }: { readonly role: OrganizationRole; readonly from?: OrganizationRole },
): void {
  mayTouch(own, role)
  const isLess = from !== undefined && RANKS[role] <= RANKS[from]
  if (caller.userId === undefined && !isLess) mustCover(caller, role)
}

/** A membership does not expire and allows all models; administrators also have every scope. */
function mustCover({ scopes, modelIds, expiresAtMs }: Caller, role: OrganizationRole): void {
  const wanted = role === 'member' ? MEMBER_SCOPES : SCOPES
  const missing = wanted.find((scope) => scopes !== null && !scopes.includes(scope))
  if (missing !== undefined) throw tooManyRights(role, `the scope ${missing}`)
  if (modelIds !== null) throw tooManyRights(role, 'all models')
  if (expiresAtMs !== null) throw tooManyRights(role, 'a life without end')
}

function tooManyRights(role: OrganizationRole, what: string): Error {
  return failure.accessDenied(
    `An API key cannot give a role with more rights than its own: for '${role}' it lacks ${what}.`,
    { param: 'role', code: 'insufficient_permissions' },
  )
}

function lacksRole(role: OrganizationRole): Error {
  return failure.accessDenied(
    `You have insufficient permissions for this operation. Missing role: ${role}.`,
    { code: 'insufficient_permissions' },
  )
}
