import { type SQL, sql } from 'drizzle-orm'

import type { SlotRoom } from '#api/v1/fair-slots.ts'
import { numberUnder } from '#shared/db/expressions.ts'
import { JOB_PRIORITIES, type JobTables } from '#shared/db/schema/jobs.ts'

const JOBS_PER_CLAIM = 16
const PER_ORGANIZATION = 4
const OPEN = sql`state in ('queued', 'in_progress')`

// These queries run every second in every process. None of them reads all open jobs.

/**
 * The next jobs of every organization, so that a hundred thousand jobs of one do not delay others.
 * The index yields the due jobs of each priority in their order.
 */
export function claimQuery(
  { jobs }: JobTables,
  { limit, perOrganizationMax, inFlight }: SlotRoom,
): SQL {
  const inFlightThen = sql`${numberUnder(inFlight, sql`w.organization_id`)} + c.turn`
  return sql`
    with recursive waiting as (${valuesOfOpen(jobs, 'organization_id', 'waiting')})
    select c.id from waiting w cross join lateral (
      select j.id, row_number() over (order by j.priority desc, j.not_before, j.id) as turn
      from generate_series(0, ${JOB_PRIORITIES.length - 1}::int) p cross join lateral (
        select j.id, j.priority, j.not_before from ${jobs} j
        where j.organization_id = w.organization_id and j.priority = p and ${OPEN}
          and j.not_before <= now()
          and (j.lease_until is null or j.lease_until < now()) and j.cancelled_at is null
        order by j.not_before, j.id limit ${PER_ORGANIZATION}
      ) j
      order by turn limit ${PER_ORGANIZATION}
    ) c
    where ${inFlightThen} <= ${perOrganizationMax}
    order by ${inFlightThen}, random() limit ${Math.min(limit, JOBS_PER_CLAIM)}`
}

/** Cancels the jobs of deleted organizations and of banned users; running jobs end themselves. */
export function abandonQuery({ jobs, organizations, users }: JobTables): SQL {
  // `offset 0` and `array` have jobs looked up for ended organizations and users alone: most often
  // there are none.
  const jobsOf = (column: string, value: SQL): SQL => sql`cross join lateral (
    select id from ${jobs} where ${sql.identifier(column)} = ${value} and ${OPEN} offset 0) j`
  return sql`
    with recursive waiting as (${valuesOfOpen(jobs, 'organization_id', 'waiting')}),
      owners as (${valuesOfOpen(jobs, 'user_id', 'owners')})
    update ${jobs} set cancelled_at = now(),
      state = case when lease_until > now() then state else 'cancelled' end,
      request = case when lease_until > now() then request else '' end,
      ended_at = case when lease_until > now() then null else now() end
    where ${OPEN} and cancelled_at is null and id = any(array(
      select j.id from waiting w join ${organizations} o on o.id = w.organization_id
        left join ${users} u on u.id = o.personal_user_id
        ${jobsOf('organization_id', sql`o.id`)}
        where o.deleted_at is not null or u.banned_until > now()
      union
      select j.id from owners w join ${users} u on u.id = w.user_id
        ${jobsOf('user_id', sql`u.id`)}
        where u.banned_until > now()))`
}

/** The values of a column among open jobs, which its index yields one by one; the last is null. */
function valuesOfOpen(
  jobs: JobTables['jobs'],
  column: 'organization_id' | 'user_id',
  query: string,
): SQL {
  const [name, own] = [sql.identifier(column), sql.identifier(query)]
  return sql`
    (select ${name} from ${jobs} where ${OPEN} and ${name} is not null order by ${name} limit 1)
    union all
    select (select j.${name} from ${jobs} j where ${OPEN} and j.${name} > w.${name}
      order by j.${name} limit 1)
    from ${own} w where w.${name} is not null`
}
