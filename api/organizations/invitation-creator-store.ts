import { type SQL, sql } from 'drizzle-orm'

import type { OrganizationTables } from '#shared/db/schema/organizations.ts'

/**
 * Whether the creator of an invitation could create it now: a member with a sufficient role who is
 * not banned, or a live key whose creator is such a member. Invitations of demoted or removed
 * administrators and of revoked keys grant nothing.
 */
export function isBacked(tables: OrganizationTables): SQL<boolean> {
  const { members, apiKeys, invitations, users } = tables
  // A column of a query's only table loses the table's name, which a subquery needs.
  const own = (name: string) => sql`${invitations}.${sql.identifier(name)}`
  const rank = (role: SQL) => sql`array_position(array['member', 'admin', 'owner'], ${role})`
  const manages = (userId: SQL, least: SQL) => sql`exists (
    select from ${members} m join ${users} u on u.id = m.user_id
    where m.organization_id = ${own('organization_id')} and m.user_id = ${userId}
      and m.role <> 'member' and ${rank(sql`m.role`)} >= ${rank(least)}
      and u.deleted_at is null and (u.banned_until is null or u.banned_until <= now()))`
  const creator = own('invited_by')
  const isUser = sql`${creator} ~ '^user:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'`
  const inviter = sql`(case when ${isUser} then substr(${creator}, 6)::uuid end)`
  const key = sql`(case when ${creator} like 'key:%' then substr(${creator}, 5) end)`
  return sql<boolean>`(${manages(inviter, own('role'))} or exists (
    select from ${apiKeys} k
    where k.id = ${key} and k.organization_id = ${own('organization_id')}
      and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
      and (k.created_by is null or ${manages(sql`k.created_by`, sql`'admin'`)})))`
}
