import { type SQL, sql } from 'drizzle-orm'

import type { SlotRoom } from '#api/v1/fair-slots.ts'
import { numberUnder } from '#shared/db/expressions.ts'
import type { JobTables } from '#shared/db/schema/jobs.ts'

const JOBS_PER_CLAIM = 16
const PER_ORGANIZATION = 4

/**
 * The next jobs of every organization, so that a hundred thousand jobs of one do not delay others.
 * The index yields the organizations with open jobs one by one.
 */
export function claimQuery(
  { jobs }: JobTables,
  { limit, perOrganizationMax, inFlight }: SlotRoom,
): SQL {
  const open = sql`state in ('queued', 'in_progress')`
  const inFlightThen = sql`${numberUnder(inFlight, sql`w.organization_id`)} + c.turn`
  return sql`
    with recursive waiting as (
      (select organization_id from ${jobs} where ${open} order by organization_id limit 1)
      union all
      select (select j.organization_id from ${jobs} j
        where ${open} and j.organization_id > w.organization_id
        order by j.organization_id limit 1)
      from waiting w where w.organization_id is not null
    )
    select c.id from waiting w cross join lateral (
      select j.id, row_number() over (order by j.priority desc, j.not_before, j.id) as turn
      from (
        select j.id, j.priority, j.not_before from ${jobs} j
        where j.organization_id = w.organization_id and ${open} and j.not_before <= now()
          and (j.lease_until is null or j.lease_until < now()) and j.cancelled_at is null
        order by j.priority desc, j.not_before, j.id limit ${PER_ORGANIZATION}
      ) j
    ) c
    where ${inFlightThen} <= ${perOrganizationMax}
    order by ${inFlightThen}, random() limit ${Math.min(limit, JOBS_PER_CLAIM)}`
}

/** Cancels the jobs of deleted organizations and of banned users; running jobs end themselves. */
export function abandonQuery({ jobs, organizations, users }: JobTables): SQL {
  return sql`
    update ${jobs} set cancelled_at = now(),
      state = case when lease_until > now() then state else 'cancelled' end,
      request = case when lease_until > now() then request else '' end,
      ended_at = case when lease_until > now() then null else now() end
    where state in ('queued', 'in_progress') and cancelled_at is null and exists (
      select 1 from ${organizations} o left join ${users} u
        on u.id in (o.personal_user_id, ${jobs}.user_id) and u.banned_until > now()
      where o.id = ${jobs}.organization_id and (o.deleted_at is not null or u.id is not null))`
}
