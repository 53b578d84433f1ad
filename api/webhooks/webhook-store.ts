import {
  and,
  count,
  desc,
  eq,
  inArray,
  isNotNull,
  isNull,
  lt,
  or,
  type SQL,
  sql,
} from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import {
  databaseNow,
  increased,
  isBeyondRowWhere,
  secondsFromNow,
  tableOfArrays,
} from '#shared/db/expressions.ts'
import type {
  DeliveryRow,
  EndpointRow,
  EventRow,
  WebhookTables,
} from '#shared/db/schema/webhooks.ts'

import { announceEvent, sendEvent, trimEvents, webhooksFull } from './event-store.ts'
import type { NewEvent } from './event-types.ts'

/** A due delivery with its payload and URL. */
export interface DueDelivery {
  readonly id: string
  readonly attempts: number
  readonly endpoint: EndpointRow
  readonly event: EventRow
}

/** How an attempt ended. */
export interface Attempt {
  readonly isDelivered: boolean
  readonly status?: number
  readonly error?: string
  /** The time of the next attempt; none when absent. */
  readonly retryAfterMs?: number
}

/** A delivery and how its attempt ended. */
export interface EndedAttempt extends Attempt {
  readonly delivery: DueDelivery
}

/** Which deliveries to claim. */
interface ClaimOptions {
  readonly limit: number
  readonly perEndpointMax: number
  readonly leaseSeconds: number
  /** Endpoints that have as many attempts in flight as they may. */
  readonly busy: readonly string[]
  readonly perOrganizationMax: number
  /** Organizations that have as many attempts in flight as they may. */
  readonly busyOrganizations: readonly string[]
  /** Whether endpoints whose last attempt failed may be tried. */
  readonly triesFailing: boolean
}

const ENDPOINTS_MAX = 50
const EVENT_DAYS = 30
const FAILING_HOURS_MAX = 24

/** The webhooks of a database. */
export class WebhookStore {
  readonly #db: Db
  readonly #tables: WebhookTables
  readonly #bytesMax: number

  constructor(
    db: Db,
    tables: WebhookTables,
    /** The most bytes of an organization's events including their deliveries. */
    { bytesMax = Number.MAX_SAFE_INTEGER }: { readonly bytesMax?: number } = {},
  ) {
    this.#db = db
    this.#tables = tables
    this.#bytesMax = bytesMax
  }

  #owned(organizationId: string, id: string): SQL | undefined {
    const { endpoints } = this.#tables
    return and(eq(endpoints.organizationId, organizationId), eq(endpoints.id, id))
  }

  /** Undefined when the organization has reached its limit of endpoints. */
  async createEndpoint(
    endpoint: Pick<EndpointRow, 'id' | 'organizationId' | 'url' | 'description' | 'secrets'> & {
      readonly events: readonly string[] | null
    },
  ): Promise<EndpointRow | undefined> {
    const { endpoints } = this.#tables
    const { organizationId } = endpoint
    const events = endpoint.events === null ? null : [...endpoint.events]
    return this.#db.transaction(async (tx) => {
      // The limit holds for endpoints that are made at once, too.
      const lock = `webhook endpoints of ${organizationId}`
      await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${lock}, 0))`)
      const [has] = await tx
        .select({ total: count() })
        .from(endpoints)
        .where(eq(endpoints.organizationId, organizationId))
      if ((has?.total ?? 0) >= ENDPOINTS_MAX) return undefined
      const [made] = await tx
        .insert(endpoints)
        .values({ ...endpoint, events })
        .returning()
      return made
    })
  }

  async listEndpoints(organizationId: string): Promise<readonly EndpointRow[]> {
    const { endpoints } = this.#tables
    return this.#db
      .select()
      .from(endpoints)
      .where(eq(endpoints.organizationId, organizationId))
      .orderBy(desc(endpoints.createdAt), desc(endpoints.id))
  }

  async findEndpoint(organizationId: string, id: string): Promise<EndpointRow | undefined> {
    const found = this.#db.select().from(this.#tables.endpoints)
    return (await found.where(this.#owned(organizationId, id)))[0]
  }

  async updateEndpoint(
    organizationId: string,
    id: string,
    change: Partial<Omit<EndpointRow, 'id' | 'organizationId' | 'createdAt'>>,
  ): Promise<EndpointRow | undefined> {
    if (Object.keys(change).length === 0) return this.findEndpoint(organizationId, id)
    const update = this.#db.update(this.#tables.endpoints).set(change)
    return (await update.where(this.#owned(organizationId, id)).returning())[0]
  }

  async removeEndpoint(organizationId: string, id: string): Promise<boolean> {
    const { endpoints } = this.#tables
    const isIt = this.#owned(organizationId, id)
    return (await this.#db.delete(endpoints).where(isIt).returning()).length > 0
  }

  /**
   * Stores events for their endpoints, in the transaction that causes them. A stored event is not
   * changed; events of an organization that has reached its limit are dropped.
   */
  async announce(db: Db, announced: readonly NewEvent[]): Promise<void> {
    for (const event of announced) {
      await announceEvent(db, this.#tables, { ...event, bytesMax: this.#bytesMax })
    }
  }

  /**
   * Sends one event to one endpoint, even of a type that it does not receive; returns the delivery.
   * Throws `storage_limit_exceeded`.
   */
  async sendTo(endpoint: EndpointRow, event: NewEvent, deliveryId: string): Promise<DeliveryRow> {
    const { deliveries } = this.#tables
    const sent = { ...event, deliveryId, endpointId: endpoint.id, bytesMax: this.#bytesMax }
    if (!(await sendEvent(this.#db, this.#tables, sent))) throw webhooksFull()
    const [row] = await this.#db.select().from(deliveries).where(eq(deliveries.id, deliveryId))
    return row as DeliveryRow
  }

  async listDeliveries(
    endpointId: string,
    page: { readonly limit: number; readonly after?: string },
  ): Promise<{ rows: (DeliveryRow & { type: string })[]; hasMore: boolean }> {
    const { deliveries, events } = this.#tables
    const { limit, after } = page
    const isOfEndpoint = eq(deliveries.endpointId, endpointId)
    const isLast = and(isOfEndpoint, eq(deliveries.id, after ?? ''))
    const before = isBeyondRowWhere([deliveries.createdAt, deliveries.id], '<', isLast)
    const rows = await this.#db
      .select({ delivery: deliveries, type: events.type })
      .from(deliveries)
      .innerJoin(events, eq(events.id, deliveries.eventId))
      .where(and(isOfEndpoint, after === undefined ? undefined : before))
      .orderBy(desc(deliveries.createdAt), desc(deliveries.id))
      .limit(limit + 1)
    const shown = rows.slice(0, limit).map(({ delivery, type }) => ({ ...delivery, type }))
    return { rows: shown, hasMore: rows.length > limit }
  }

  /** Delivers again, at once; undefined when the endpoint has no such delivery. */
  async redeliver(
    endpointId: string,
    id: string,
  ): Promise<(DeliveryRow & { type: string }) | undefined> {
    const { deliveries, events } = this.#tables
    const [row] = await this.#db
      .update(deliveries)
      .set({ state: 'pending', nextAttemptAt: databaseNow, deliveredAt: null })
      .where(and(eq(deliveries.endpointId, endpointId), eq(deliveries.id, id)))
      .returning()
    if (row === undefined) return undefined
    const [event] = await this.#db.select().from(events).where(eq(events.id, row.eventId))
    return event === undefined ? undefined : { ...row, type: event.type }
  }

  /**
   * Claims due deliveries of all endpoints in rotation, except busy ones. A delivery whose result
   * is never recorded becomes due again.
   */
  async claim(options: ClaimOptions): Promise<readonly DueDelivery[]> {
    const { endpoints, events, deliveries } = this.#tables
    const { id, attempts, endpointId, eventId } = deliveries
    const claimed = this.#db.$with('claimed').as(
      this.#db
        .update(deliveries)
        .set({
          attempts: increased(attempts),
          nextAttemptAt: secondsFromNow(options.leaseSeconds),
        })
        .where(inArray(id, readyQuery(this.#tables, options)))
        .returning({ id, attempts, endpointId, eventId }),
    )
    return this.#db
      .with(claimed)
      .select({ id: claimed.id, attempts: claimed.attempts, endpoint: endpoints, event: events })
      .from(claimed)
      .innerJoin(endpoints, eq(endpoints.id, claimed.endpointId))
      .innerJoin(events, eq(events.id, claimed.eventId))
  }

  /**
   * Records attempts in the order in which they ended. An endpoint counts as failing since the
   * first failure after its last success.
   */
  async settle(attempts: readonly EndedAttempt[]): Promise<void> {
    if (attempts.length > 0) await this.#db.execute(settleQuery(this.#tables, attempts))
  }

  /** Disables endpoints whose deliveries all failed for a day; returns them. */
  async disableFailing(): Promise<readonly EndpointRow[]> {
    const { endpoints } = this.#tables
    return this.#db
      .update(endpoints)
      .set({
        disabledAt: databaseNow,
        disabledReason: `every delivery failed for ${FAILING_HOURS_MAX} hours`,
      })
      .where(
        and(
          isNull(endpoints.disabledAt),
          lt(endpoints.failingSince, secondsFromNow(-FAILING_HOURS_MAX * 3600)),
        ),
      )
      .returning()
  }

  /**
   * Deletes old events, all data of deleted organizations, and events beyond the limit, with their
   * deliveries.
   */
  async sweep(): Promise<void> {
    const { events, endpoints, organizations } = this.#tables
    const isOld = lt(events.createdAt, secondsFromNow(-EVENT_DAYS * 86_400))
    const found = this.#db.select({ id: organizations.id }).from(organizations)
    const deleted = found.where(isNotNull(organizations.deletedAt))
    await this.#db.delete(events).where(or(isOld, inArray(events.organizationId, deleted)))
    await this.#db.delete(endpoints).where(inArray(endpoints.organizationId, deleted))
    await trimEvents(this.#db, this.#tables, this.#bytesMax)
  }
}

/** The deliveries that are claimed next, locked. */
function readyQuery({ endpoints, deliveries }: WebhookTables, options: ClaimOptions): SQL {
  const { limit, perEndpointMax, busy } = options
  const { perOrganizationMax, busyOrganizations, triesFailing } = options
  return sql`
    (select d.id from ${deliveries} d where d.id in (
      select ready.id from (
        select due.id, due.turn, e.failing_since is not null as is_failing,
          row_number() over (partition by e.organization_id order by due.turn, random()) as nth
        from ${endpoints} e cross join lateral (
          select d.id, row_number() over (order by d.next_attempt_at) as turn
          from ${deliveries} d
          where d.endpoint_id = e.id and d.state = 'pending' and d.next_attempt_at <= now()
          order by d.next_attempt_at limit ${perEndpointMax}
        ) due
        where e.disabled_at is null and e.id <> all (${sql.param([...busy])}::text[])
          and e.organization_id <> all (${sql.param([...busyOrganizations])}::text[])
          and (${triesFailing} or e.failing_since is null)
      ) ready
      where ready.nth <= ${perOrganizationMax}
      order by ready.is_failing, ready.turn, random() limit ${limit}
    ) and d.state = 'pending' and d.next_attempt_at <= now()
    for update skip locked)`
}

/**
 * Records attempts. Endpoints are written only if their state changes, and locked in the order of
 * their ids, so that two processes cannot deadlock.
 */
function settleQuery(
  { endpoints, deliveries }: WebhookTables,
  attempts: readonly EndedAttempt[],
): SQL {
  const rows = tableOfArrays([
    ['text', attempts.map(({ delivery }) => delivery.id)],
    ['text', attempts.map(({ delivery }) => delivery.endpoint.id)],
    ['text', attempts.map(stateAfter)],
    ['int', attempts.map(({ status }) => status ?? null)],
    ['text', attempts.map(({ error }) => error ?? null)],
    ['bigint', attempts.map(({ retryAfterMs }) => retryAfterMs ?? null)],
  ])
  return sql`
    with ended as (
      select * from ${rows} with ordinality
        as ended (id, endpoint_id, state, status, error, retry_ms, nth)
    ), settled as (
      update ${deliveries} d set state = n.state, last_status = n.status, last_error = n.error,
        delivered_at = case when n.state = 'delivered' then now() else d.delivered_at end,
        next_attempt_at = coalesce(now() + n.retry_ms * interval '1 ms', d.next_attempt_at)
      from ended n where d.id = n.id
    ), outcomes as (
      select endpoint_id, bool_or(state = 'delivered') as has_success,
        (array_agg(state order by nth desc))[1] <> 'delivered' as is_failing
      from ended group by endpoint_id
    ), changed as (
      select e.id, o.is_failing from ${endpoints} e join outcomes o on o.endpoint_id = e.id
      where case when e.failing_since is null then o.is_failing else o.has_success end
      order by e.id for no key update of e
    )
    update ${endpoints} e set failing_since = case when c.is_failing then now() end
    from changed c where e.id = c.id`
}

function stateAfter({ isDelivered, retryAfterMs }: Attempt): DeliveryRow['state'] {
  if (isDelivered) return 'delivered'
  return retryAfterMs === undefined ? 'failed' : 'pending'
}
