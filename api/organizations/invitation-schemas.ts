import { Type } from '#shared/schema-types.ts'
import { choice } from '#shared/schemas.ts'

import { INVITATION_STATES } from './invitations.ts'
import { deleted, ID, listSchema, OF_ORGANIZATION, ROLE } from './schemas.ts'

const common = { tags: ['Organizations'], security: [{ apiKey: [] }] }
const OF_SENT = Type.Object({ id: ID, invitation_id: ID })
const OF_RECEIVED = Type.Object({ invitation_id: ID })
const FIELDS = {
  id: Type.String(),
  object: Type.Literal('organization.invitation'),
  organization_id: Type.String(),
  email: Type.Union([Type.String(), Type.Null()]),
  user_id: Type.Union([Type.String(), Type.Null()]),
  role: ROLE,
  status: choice(INVITATION_STATES),
  invited_by: Type.String({ description: '`user:<id>` or `key:<id>`.' }),
  created_at: Type.Integer(),
  expires_at: Type.Integer(),
  accepted_at: Type.Union([Type.Integer(), Type.Null()]),
}
const INVITATION = Type.Object(FIELDS)
const RECEIVED = Type.Object({ ...FIELDS, organization_name: Type.String() })

/** `POST /organizations/{id}/invitations`. */
export const INVITE = {
  ...common,
  operationId: 'createInvitation',
  summary: 'Invite a person by mail, or a user by id; for owners and administrators',
  description:
    'Takes `email` or `user_id`. A person invited by `email` gets a mail with a link, and an account if they have none. The link signs them in and adds `organization_invitation` to the site URL. A user invited by `user_id` finds the invitation in `GET /invitations`. Both become members by `POST /invitations/{invitation_id}/accept`. Only owners can invite owners. Each email address and each user can have one open invitation.',
  params: OF_ORGANIZATION,
  body: Type.Object(
    {
      email: Type.Optional(Type.String({ minLength: 1, maxLength: 255 })),
      user_id: Type.Optional(Type.String({ format: 'uuid' })),
      role: Type.Optional(ROLE),
      expires_in_days: Type.Optional(
        Type.Integer({
          minimum: 1,
          maximum: 30,
          description: 'The validity of the invitation in days; 7 if absent.',
        }),
      ),
    },
    { additionalProperties: false },
  ),
  response: { 200: INVITATION },
}

/** `GET /organizations/{id}/invitations`. */
export const LIST_SENT = {
  ...common,
  operationId: 'listInvitations',
  summary:
    'List the invitations of an organization, the newest first; for owners and administrators',
  params: OF_ORGANIZATION,
  querystring: Type.Object(
    {
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
      after: Type.Optional(ID),
    },
    { additionalProperties: false },
  ),
  response: { 200: listSchema(INVITATION) },
}

/** `GET /organizations/{id}/invitations/{invitation_id}`. */
export const RETRIEVE_SENT = {
  ...common,
  operationId: 'retrieveInvitation',
  summary: 'Retrieve an invitation of an organization',
  params: OF_SENT,
  response: { 200: INVITATION },
}

/** `DELETE /organizations/{id}/invitations/{invitation_id}`. */
export const REVOKE = {
  ...common,
  operationId: 'revokeInvitation',
  summary: 'Revoke an open invitation; for owners and administrators',
  params: OF_SENT,
  response: { 200: deleted('organization.invitation') },
}

/** `GET /invitations`. */
export const LIST_RECEIVED = {
  ...common,
  operationId: 'listReceivedInvitations',
  summary: 'List the open invitations to the calling user',
  response: { 200: listSchema(RECEIVED) },
}

/** `POST /invitations/{invitation_id}/accept`. */
export const ACCEPT = {
  ...common,
  operationId: 'acceptInvitation',
  summary: 'Accept an invitation of the calling user, by id or by their confirmed address',
  params: OF_RECEIVED,
  response: { 200: RECEIVED },
}

/** `POST /invitations/{invitation_id}/decline`. */
export const DECLINE = {
  ...common,
  operationId: 'declineInvitation',
  summary: 'Decline an invitation',
  params: OF_RECEIVED,
  response: { 200: RECEIVED },
}
