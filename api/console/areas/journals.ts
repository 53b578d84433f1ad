import type { Pool } from 'pg'

import type { ConsoleArea, ConsoleCall } from '#api/console/api.ts'
import { listQuery, readPage, TEXT_FILTER } from '#api/console/lists.ts'

interface JournalServices {
  /** May lag slightly behind. */
  readonly pool: Pick<Pool, 'query'>
  readonly prefix: string
}

interface JournalFilter {
  readonly query?: string
  readonly organization?: string
  readonly page?: number
}

type Read = ConsoleCall<object, object, JournalFilter>

/** The audit log, and the activities of organizations. */
export function journalArea(services: JournalServices): ConsoleArea {
  return {
    actions: [],
    reads: [
      {
        path: '/audit',
        // The rows contain email addresses of users.
        role: 'administrator',
        query: listQuery({ query: TEXT_FILTER }),
        handle: ({ query }: Read) => listAudit(services, query),
      },
      {
        path: '/activities',
        query: listQuery({ query: TEXT_FILTER, organization: TEXT_FILTER }),
        handle: ({ query }: Read) => listActivities(services, query),
      },
    ],
  }
}

function listAudit({ pool, prefix }: JournalServices, { query, page }: JournalFilter) {
  return readPage(pool, {
    page,
    values: [query],
    text: `select a.id, a.created_at, a.ip_address as ip, a.payload ->> 'action' as action,
        a.payload ->> 'actor_username' as actor, a.payload -> 'traits' as traits
      from ${prefix}audit_log_entries a
      where $1::text is null or position(lower($1) in lower(a.payload::text)) > 0
      order by a.created_at desc, a.id`,
  })
}

function listActivities(
  { pool, prefix }: JournalServices,
  { query, organization, page }: JournalFilter,
) {
  return readPage(pool, {
    page,
    values: [query, organization],
    // Only recent ones, because the table has a partition for each month.
    text: `select a.id, a.created_at, a.type, a.actor_id as actor, a.object_id as object,
        a.organization_id, o.name as organization
      from ${prefix}activities a join ${prefix}organizations o on o.id = a.organization_id
      where a.created_at > now() - interval '31 days'
        and ($2::text is null or a.organization_id = $2)
        and ($1::text is null or lower(a.type) = lower($1)
          or position($1 in a.actor_id) > 0 or position($1 in a.object_id) > 0)
      order by a.created_at desc, a.id`,
  })
}
