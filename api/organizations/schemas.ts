import type { TSchema } from 'typebox'

import type { OrganizationRole } from '#shared/db/organizations.ts'
import { Type } from '#shared/schema-types.ts'
import { choice } from '#shared/schemas.ts'

const common = { tags: ['Organizations'], security: [{ apiKey: [] }] }
/** A member of an organization. */
export const ROLE = choice(['owner', 'admin', 'member'] satisfies OrganizationRole[])
const NAME = Type.String({ minLength: 1, maxLength: 200, pattern: '^[^\\u0000]*\\S[^\\u0000]*$' })
/** An id in a path. */
export const ID = Type.String({ minLength: 1, maxLength: 200, pattern: '^[^\\u0000]+$' })
const NAMED = Type.Object({ name: NAME }, { additionalProperties: false })
const CHANGE = Type.Object(
  {
    name: Type.Optional(NAME),
    retention_days: Type.Optional(
      Type.Union([Type.Integer({ minimum: 0, maximum: 3650 }), Type.Null()], {
        description:
          'Days for which responses, conversations and jobs are stored; 0 stores nothing, null uses the setting of the installation.',
      }),
    ),
  },
  { additionalProperties: false, minProperties: 1 },
)
/** The path of an organization. */
export const OF_ORGANIZATION = Type.Object({ id: ID })
const OF_MEMBER = Type.Object({ id: ID, user_id: ID })

const ORGANIZATION = Type.Object({
  id: Type.String(),
  object: Type.Literal('organization'),
  name: Type.String(),
  is_personal: Type.Boolean({ description: "Whether it is a user's own." }),
  retention_days: Type.Union([Type.Integer(), Type.Null()]),
  role: Type.String({ description: "The caller's role; a key counts as an administrator." }),
  created_at: Type.Integer(),
})
const MEMBER = Type.Object({
  id: Type.String({ description: 'The id of the user.' }),
  object: Type.Literal('organization.member'),
  role: ROLE,
  created_at: Type.Integer(),
})
/** The wrapper of every list. */
export const listSchema = <T extends TSchema>(of: T) =>
  Type.Object({
    object: Type.Literal('list'),
    data: Type.Array(of),
    first_id: Type.Union([Type.String(), Type.Null()]),
    last_id: Type.Union([Type.String(), Type.Null()]),
    has_more: Type.Boolean(),
  })
/** The answer to a deletion. */
export const deleted = <T extends string>(object: T) =>
  Type.Object({ id: Type.String(), object: Type.Literal(object), deleted: Type.Literal(true) })

/** `GET /organizations`. */
export const LIST = {
  ...common,
  operationId: 'listOrganizations',
  summary: "List the caller's organizations",
  response: { 200: listSchema(ORGANIZATION) },
}

/** `POST /organizations`. */
export const CREATE = {
  ...common,
  operationId: 'createOrganization',
  summary: 'Create an organization that the calling user owns',
  body: NAMED,
  response: { 200: ORGANIZATION },
}

/** `GET /organizations/{id}`. */
export const RETRIEVE = {
  ...common,
  operationId: 'retrieveOrganization',
  summary: 'Retrieve an organization',
  params: OF_ORGANIZATION,
  response: { 200: ORGANIZATION },
}

/** `PATCH /organizations/{id}`. */
export const UPDATE = {
  ...common,
  operationId: 'updateOrganization',
  summary: 'Change an organization; for owners and administrators',
  params: OF_ORGANIZATION,
  body: CHANGE,
  response: { 200: ORGANIZATION },
}

/** `DELETE /organizations/{id}`. */
export const DELETE = {
  ...common,
  operationId: 'deleteOrganization',
  summary: 'Delete an organization and revoke its keys; for owners',
  params: OF_ORGANIZATION,
  response: { 200: deleted('organization') },
}

/** `GET /organizations/{id}/members`. */
export const LIST_MEMBERS = {
  ...common,
  operationId: 'listMembers',
  summary: 'List the members of an organization',
  params: OF_ORGANIZATION,
  response: { 200: listSchema(MEMBER) },
}

/** `PATCH /organizations/{id}/members/{user_id}`. */
export const CHANGE_MEMBER = {
  ...common,
  operationId: 'changeMember',
  summary: 'Change the role of a member; the last owner keeps the role',
  params: OF_MEMBER,
  body: Type.Object({ role: ROLE }, { additionalProperties: false }),
  response: { 200: MEMBER },
}

/** `DELETE /organizations/{id}/members/{user_id}`. */
export const REMOVE_MEMBER = {
  ...common,
  operationId: 'removeMember',
  summary: 'Remove a member, or leave; the last owner cannot leave',
  params: OF_MEMBER,
  response: { 200: deleted('organization.member') },
}

/** A complete list in the wrapper of every list. */
export function listOf<T extends { readonly id: string }>(data: T[]) {
  return {
    object: 'list' as const,
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: false,
  }
}
