import { and, asc, desc, eq, gte, lt, type SQL, sql } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import type { ActivityRow, ActivityTables } from '#shared/db/schema/activities.ts'
import type { UsageRow } from '#shared/db/schema/usage.ts'
import { failure } from '#shared/errors.ts'
import { timeOrderedId } from '#shared/ids.ts'

import { digestOf, OWN_GENERATOR } from './activity.ts'
import {
  insertNew,
  MONTHS_AHEAD,
  type NewActivity,
  type OwnActivity,
  record,
  recordOwn,
  rowsOf,
  withPartitions,
} from './recording.ts'

/** Filters and page of a listing. */
export interface ActivityQuery {
  readonly actor?: string
  readonly type?: string
  readonly object?: string
  readonly sinceMs?: number
  readonly untilMs?: number
  readonly limit: number
  readonly order: 'asc' | 'desc'
  readonly after?: string
}

/** The append-only activities of an organization. */
export interface Activities {
  /**
   * Records all or none. For ids that exist with the same content, returns the stored activity.
   * Throws `conflict` with the index of the first one whose content differs.
   */
  record(
    organizationId: string,
    activities: readonly NewActivity[],
    options: { readonly nowMs: number; readonly pathOf: (index: number) => string },
  ): Promise<{ readonly rows: readonly ActivityRow[]; readonly createdCount: number }>
  /** Records activities of the platform; existing ones are left unchanged. */
  recordOwn(rows: readonly OwnActivity[]): Promise<void>
  find(organizationId: string, id: string): Promise<ActivityRow | undefined>
  list(
    organizationId: string,
    query: ActivityQuery,
  ): Promise<{ rows: ActivityRow[]; hasMore: boolean }>
  /**
   * Creates the partitions of the coming months and deletes activities older than `retentionDays`.
   */
  maintain(retentionDays: number | undefined, nowMs: number): Promise<void>
}

/** Opens the activities of a database. */
export function openActivities(db: Db, tables: ActivityTables): Activities {
  return {
    record: (organizationId, list, options) =>
      withPartitions(db, tables, async () => {
        const batch = { organizationId, list, ...options }
        const isNew = await insertNew(db, tables, rowsOf(batch))
        if (isNew !== undefined) return isNew
        return db.transaction((tx) => record(tx, tables, batch))
      }),
    recordOwn: (list) => withPartitions(db, tables, () => recordOwn(db, tables, list)),
    find: (organizationId, id) => find(db, tables, organizationId, id),
    list: (organizationId, query) => list(db, tables, organizationId, query),
    maintain: (retentionDays, nowMs) => maintain(db, tables, retentionDays, nowMs),
  }
}

/** Ordered by recording time, which the id encodes and by which the table is partitioned. */
async function find(
  db: Db,
  { activities, activityIds }: ActivityTables,
  organizationId: string,
  id: string,
): Promise<ActivityRow | undefined> {
  const createdAt = db
    .select({ createdAt: activityIds.createdAt })
    .from(activityIds)
    .where(and(eq(activityIds.organizationId, organizationId), eq(activityIds.id, id)))
  const [found] = await db
    .select()
    .from(activities)
    .where(
      and(
        eq(activities.organizationId, organizationId),
        eq(activities.createdAt, createdAt),
        eq(activities.id, id),
      ),
    )
  return found
}

async function list(
  db: Db,
  tables: ActivityTables,
  organizationId: string,
  query: ActivityQuery,
): Promise<{ rows: ActivityRow[]; hasMore: boolean }> {
  const { activities } = tables
  const conditions: (SQL | undefined)[] = [
    eq(activities.organizationId, organizationId),
    isNamed(activities.actorId, query.actor),
    query.type === undefined ? undefined : eq(activities.type, query.type),
    isNamed(activities.objectId, query.object),
    query.sinceMs === undefined ? undefined : gte(activities.published, new Date(query.sinceMs)),
    query.untilMs === undefined ? undefined : lt(activities.published, new Date(query.untilMs)),
  ]
  const isAscending = query.order === 'asc'
  if (query.after !== undefined) {
    const cursor = await find(db, tables, organizationId, query.after)
    if (cursor === undefined) throw noSuchCursor(query.after)
    const past = sql.raw(isAscending ? '>' : '<')
    const published = cursor.published.toISOString()
    // Compared as one row, so that the index range starts there, however many rows precede it.
    conditions.push(
      sql`(${activities.published}, ${activities.id}) ${past} (${published}::timestamptz, ${cursor.id})`,
    )
  }
  const direction = isAscending ? asc : desc
  const rows = await db
    .select()
    .from(activities)
    .where(and(...conditions))
    .orderBy(direction(activities.published), direction(activities.id))
    .limit(query.limit + 1)
  return { rows: rows.slice(0, query.limit), hasMore: rows.length > query.limit }
}

/** By prefix, which is indexed, and by the full value. */
function isNamed(
  column: ActivityTables['activities']['actorId' | 'objectId'],
  name: string | undefined,
): SQL | undefined {
  if (name === undefined) return undefined
  // In characters, as Postgres counts them; written out to match the indexed expression.
  const beginning = [...name].slice(0, 200).join('')
  return and(sql`left(${column}, 200) = ${beginning}`, eq(column, name))
}

/** Takes a few seconds at most. */
const DELETED_AT_ONCE = 100_000

async function maintain(
  db: Db,
  { activities, activityIds, makePartitions }: ActivityTables,
  retentionDays: number | undefined,
  nowMs: number,
): Promise<void> {
  await db.execute(sql`select ${sql.identifier(makePartitions)}(${MONTHS_AHEAD})`)
  if (retentionDays === undefined) return
  const oldest = new Date(nowMs - retentionDays * 86_400_000)
  // In batches, so that no statement blocks the database for long.
  for (const table of [activities, activityIds]) {
    let deleted: number
    do deleted = await deleteSome(db, table, oldest)
    while (deleted === DELETED_AT_ONCE)
  }
}

async function deleteSome(
  db: Db,
  table: ActivityTables['activities'] | ActivityTables['activityIds'],
  oldest: Date,
): Promise<number> {
  // Stated twice, so that later partitions are pruned.
  const latest = oldest.toISOString()
  const { rowCount } = await db.execute(sql`
    delete from ${table} where created_at < ${latest}::timestamptz
      and (organization_id, created_at, id) in (
        select organization_id, created_at, id from ${table}
        where created_at < ${latest}::timestamptz limit ${DELETED_AT_ONCE})`)
  return rowCount ?? 0
}

function noSuchCursor(after: string) {
  return failure.invalidRequest(`No such activity: ${after.slice(0, 200)}`, {
    param: 'after',
    code: 'invalid_value',
  })
}

/** The object of an activity: an id such as `key:key_…`, a type and descriptive fields. */
export interface OwnObject {
  readonly id: string
  readonly type: string
  readonly [detail: string]: string | number | boolean | null | undefined
}

/** An event that the platform records. */
interface OwnEvent {
  /** A type of Activity Streams. */
  readonly type: string
  /** Dotted name, such as `key.created`. */
  readonly event: string
  readonly organizationId: string
  /** `user:<id>`, `key:<id>` or another actor. */
  readonly actor: string
  readonly object: OwnObject
  readonly target?: OwnObject
  readonly requestId: string | undefined
  readonly atMs: number
  /** Makes recording idempotent; a new id is generated when absent. */
  readonly id?: string
}

/** The activity of a platform event, in the form in which clients read activities. */
export function ownActivity(event: OwnEvent): OwnActivity {
  const { id = timeOrderedId('act_', event.atMs), type, actor, object, target } = event
  const content = {
    type,
    actor,
    object,
    ...(target !== undefined && { target }),
    published: new Date(event.atMs).toISOString(),
    generator: OWN_GENERATOR,
    event: event.event,
    ...(event.requestId !== undefined && { request_id: event.requestId }),
  }
  return {
    ...{ id, type, content, organizationId: event.organizationId, publishedMs: event.atMs },
    actorId: actor,
    objectId: object.id,
    digest: digestOf(content),
  }
}

/** Serializes an activity for the journal. */
export function encodeActivity(activity: OwnActivity): string {
  return JSON.stringify({ ...activity, digest: undefined })
}

/** Parses the output of `encodeActivity`. */
export function decodeActivity(text: string): OwnActivity {
  const activity = JSON.parse(text) as Omit<OwnActivity, 'digest'>
  return { ...activity, digest: digestOf(activity.content) }
}

/** The activities of ended jobs; each is recorded once, however often it is reported. */
export function jobActivities(rows: readonly UsageRow[]): readonly OwnActivity[] {
  // A line of a batch is run again until it is answered: its earlier runs are no activities.
  const isRunAgain = ({ jobId, requestId, outcome }: UsageRow): boolean =>
    jobId === requestId && outcome !== 'finished'
  return rows.filter((row) => !isRunAgain(row)).map(jobActivity)
}

function jobActivity(row: UsageRow): OwnActivity {
  return ownActivity({
    id: `act_${row.jobId}${row.outcome === 'finished' ? '' : `_${row.outcome}`}`,
    type: 'Create',
    event: `job.${row.outcome}`,
    organizationId: row.organizationId,
    actor: actorOf(row),
    object: {
      id: `job:${row.jobId}`,
      type: 'Job',
      kind: row.kind,
      model: row.modelId,
      prompt_tokens: row.promptTokens,
      completion_tokens: row.completionTokens,
      cached_tokens: row.cachedTokens,
    },
    requestId: row.requestId ?? undefined,
    atMs: row.createdAt.getTime(),
  })
}

function actorOf({ userId, apiKeyId }: UsageRow): string {
  if (userId !== null) return `user:${userId}`
  return apiKeyId === null ? 'service:millrace' : `key:${apiKeyId}`
}
