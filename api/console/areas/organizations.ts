import type { Pool } from 'pg'

import { bodyOf, type ConsoleArea, type ConsoleCall, SHORT_TEXT } from '#api/console/api.ts'
import { listQuery, quotaFields, readPage, TEXT_FILTER } from '#api/console/lists.ts'
import type { Organizations } from '#api/organizations/organizations.ts'
import { QUOTA_FIELDS, type QuotasBody, quotasIn } from '#api/v1/key-limits.ts'
import type { OrganizationRole } from '#shared/db/organizations.ts'
import { NO_QUOTAS } from '#shared/db/schema/quotas.ts'
import { failure } from '#shared/errors.ts'

interface OrganizationServices {
  readonly pool: Pool
  /** The prefix of all tables. */
  readonly prefix: string
  readonly organizations: Organizations
}

const RETENTION = { type: ['integer', 'null'], minimum: 0, maximum: 3650 }
const ROLE = { type: 'string', enum: ['owner', 'admin', 'member'] }

interface OneOrganization {
  readonly organization: string
}

/** Organizations and their members. */
export function organizationArea(services: OrganizationServices): ConsoleArea {
  const { organizations } = services
  return {
    reads: [
      {
        path: '/organizations',
        query: listQuery({ query: TEXT_FILTER }),
        handle: ({ query }: ConsoleCall<object, object, { query?: string; page?: number }>) =>
          listOrganizations(services, query),
      },
      {
        path: '/organizations/:organization/members',
        handle: ({ params }: ConsoleCall<OneOrganization>) =>
          listMembers(services, params.organization),
      },
    ],
    actions: [
      {
        method: 'POST',
        path: '/organizations',
        role: 'administrator',
        operation: 'organization.create',
        body: bodyOf({ name: SHORT_TEXT, owner_email: SHORT_TEXT }, ['name', 'owner_email']),
        detail: ({ name }: NewOrganization) => ({ name }),
        async handle({ body }: ConsoleCall<object, NewOrganization>) {
          const ownerId = await findUserId(services, body.owner_email)
          const { id, name } = await organizations.create(body.name, ownerId)
          return { id, name }
        },
      },
      {
        method: 'PATCH',
        path: '/organizations/:organization',
        role: 'administrator',
        operation: 'organization.update',
        body: bodyOf({ name: SHORT_TEXT, retention_days: RETENTION }),
        detail: (body: OrganizationChange) => body,
        async handle({ params, body }: ConsoleCall<OneOrganization, OrganizationChange>) {
          const { name, retention_days: retentionDays } = body
          await organizations.update(params.organization, {
            ...(name !== undefined && { name }),
            ...(retentionDays !== undefined && { retentionDays }),
          })
        },
      },
      {
        method: 'POST',
        path: '/organizations/:organization/quotas',
        role: 'administrator',
        operation: 'organization.limit',
        body: bodyOf(QUOTA_FIELDS),
        detail: (body: QuotasBody) => body,
        // The form sends all quotas that are set; absent ones are removed.
        async handle({ params, body }: ConsoleCall<OneOrganization, QuotasBody>) {
          await organizations.update(params.organization, { ...NO_QUOTAS, ...quotasIn(body) })
        },
      },
      {
        method: 'DELETE',
        path: '/organizations/:organization',
        role: 'administrator',
        operation: 'organization.delete',
        handle: ({ params }: ConsoleCall<OneOrganization>) =>
          organizations.remove(params.organization),
      },
      ...memberActions(organizations),
    ],
  }
}

interface NewOrganization {
  readonly name: string
  readonly owner_email: string
}

interface OrganizationChange {
  readonly name?: string
  readonly retention_days?: number | null
}

interface OneMember extends OneOrganization {
  readonly user: string
}

function memberActions(organizations: Organizations): ConsoleArea['actions'] {
  const path = '/organizations/:organization/members/:user'
  // The console acts with the rights of the installation, so it may change every member.
  const check = (): void => {}
  return [
    {
      method: 'PATCH',
      path,
      role: 'administrator',
      operation: 'member.update',
      body: bodyOf({ role: ROLE }, ['role']),
      detail: (body: { readonly role: OrganizationRole }) => body,
      async handle({ params, body }: ConsoleCall<OneMember, { role: OrganizationRole }>) {
        await organizations.setRole(params.organization, userIdOf(params.user), {
          role: body.role,
          check,
        })
      },
    },
    {
      method: 'DELETE',
      path,
      role: 'administrator',
      operation: 'member.remove',
      handle: ({ params }: ConsoleCall<OneMember>) =>
        organizations.removeMember(params.organization, userIdOf(params.user), { check }),
    },
  ]
}

function listOrganizations(
  { pool, prefix }: OrganizationServices,
  { query, page }: { readonly query?: string; readonly page?: number },
) {
  const of = (table: string): string => `${prefix}${table} x where x.organization_id = o.id`
  return readPage(pool, {
    page,
    values: [query],
    text: `select o.id, o.name, o.retention_days, o.created_at, u.email as personal_of,
        ${quotaFields('o')},
        (select count(*)::int from ${of('organization_members')}) as members,
        (select count(*)::int from ${of('api_keys')} and x.revoked_at is null) as keys,
        (select used_bytes::float8 from ${of('organization_storage')}) as stored_bytes
      from ${prefix}organizations o left join ${prefix}users u on u.id = o.personal_user_id
      where o.deleted_at is null and ($1::text is null or o.id = $1
        or position(lower($1) in lower(o.name)) > 0 or position(lower($1) in lower(u.email)) > 0)
      order by o.created_at desc, o.id`,
  })
}

function listMembers({ pool, prefix }: OrganizationServices, organizationId: string) {
  return readPage(pool, {
    values: [organizationId],
    text: `select m.user_id, m.role, m.created_at, u.email
      from ${prefix}organization_members m left join ${prefix}users u on u.id = m.user_id
      where m.organization_id = $1 order by m.created_at, m.user_id`,
  })
}

async function findUserId({ pool, prefix }: OrganizationServices, email: string): Promise<string> {
  const { rows } = await pool.query<{ id: string }>(
    `select id from ${prefix}users where email = lower($1) and deleted_at is null`,
    [email.trim()],
  )
  if (rows[0] !== undefined) return rows[0].id
  throw failure.notFound('No user has this email address.', { param: 'owner_email' })
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

/** A user id of a path. Throws `notFound`, because every user id has this form. */
export function userIdOf(text: string): string {
  if (UUID.test(text)) return text
  throw failure.notFound(`No such user: ${text.slice(0, 64)}`, { param: 'user' })
}
