import { type SQL, sql } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import type { WebhookTables } from '#shared/db/schema/webhooks.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import type { NewEvent } from './event-types.ts'

/** The bytes that an event and each of its deliveries count besides the data, including indexes. */
const EVENT_BYTES = 512
const DELIVERY_BYTES = 1024

type Tables = Pick<WebhookTables, 'endpoints' | 'events' | 'deliveries' | 'webhookBytes'>

/**
 * Stores an event with a delivery for each of its receivers, unless it is stored already or the
 * organization has reached its limit.
 */
export async function announceEvent(
  db: Db,
  { endpoints, ...tables }: Tables,
  announced: NewEvent & { readonly bytesMax: number },
): Promise<void> {
  const { organizationId, type } = announced
  const receivers = sql`
    select e.id from ${endpoints} e
    where e.organization_id = ${organizationId} and e.disabled_at is null
      and (e.events is null or ${type} = any (e.events))`
  const deliveryId = sql`'whd_' || substr(md5(s.id || r.id), 1, 24)`
  await db.execute(storeQuery(tables, announced, { receivers, deliveryId }))
}

/** Stores an event with one delivery; false when the organization has reached its limit. */
export async function sendEvent(
  db: Db,
  tables: Tables,
  sent: NewEvent & { readonly endpointId: string; deliveryId: string; bytesMax: number },
): Promise<boolean> {
  const receivers = sql`select ${sent.endpointId}::text as id`
  const { rowCount } = await db.execute(
    storeQuery(tables, sent, { receivers, deliveryId: sql`${sent.deliveryId}::text` }),
  )
  return (rowCount ?? 0) > 0
}

function storeQuery(
  { events, deliveries, webhookBytes }: Omit<Tables, 'endpoints'>,
  { id, organizationId, type, data, bytesMax }: NewEvent & { readonly bytesMax: number },
  { receivers, deliveryId }: { readonly receivers: SQL; readonly deliveryId: SQL },
): SQL {
  const text = JSON.stringify(data)
  const bytes = EVENT_BYTES + Buffer.byteLength(text)
  return sql`
    with receivers as (${receivers}), stored as (
      insert into ${events} (id, organization_id, type, data, bytes)
      select ${id}, ${organizationId}, ${type}, ${text}::jsonb,
        ${bytes} + ${DELIVERY_BYTES} * (select count(*) from receivers)
      where exists (select 1 from receivers) and (
        select coalesce(sum(b.bytes), 0) < ${bytesMax} from ${webhookBytes} b
        where b.organization_id = ${organizationId})
      on conflict (id) do nothing returning id
    )
    insert into ${deliveries} (id, endpoint_id, event_id)
    select ${deliveryId}, r.id, s.id from stored s, receivers r
    on conflict (id) do nothing`
}

/**
 * Deletes the oldest events of organizations that use more than half of their limit, down to that
 * half, so that new ones have room. Events that still have to be delivered are kept.
 */
export async function trimEvents(
  db: Db,
  { endpoints, events, deliveries, webhookBytes }: Tables,
  bytesMax: number,
): Promise<void> {
  await db.execute(sql`
    with full_ones as (
      select organization_id, sum(bytes) - ${Math.ceil(bytesMax / 2)}::bigint as excess
      from ${webhookBytes} group by 1 having sum(bytes) > ${Math.ceil(bytesMax / 2)}::bigint
    ), ended as (
      select e.id, f.excess, sum(e.bytes) over (
        partition by e.organization_id order by e.created_at, e.id) - e.bytes as older
      from ${events} e join full_ones f using (organization_id)
      where not exists (
        select from ${deliveries} d join ${endpoints} t on t.id = d.endpoint_id
        where d.event_id = e.id and d.state = 'pending' and t.disabled_at is null)
    )
    delete from ${events} where id in (select id from ended where older < excess)`)
}

/** The refusal of an event that does not fit. */
export function webhooksFull(): ServiceError {
  return failure.invalidRequest(
    'The webhook events of your organization have the bytes that they may have together: those that were delivered are deleted within an hour, others after 30 days.',
    { code: 'storage_limit_exceeded', shouldRetry: false },
  )
}
