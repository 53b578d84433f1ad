import { and, asc, desc, eq, gte, inArray, lt, type SQL, sql } from 'drizzle-orm'

import type { ContentsReader } from '#api/v1/request-context.ts'
import { type Db, prepared } from '#shared/db/client.ts'
import { callFunction, isRowBeyond, tableOfArrays } from '#shared/db/expressions.ts'
import type { ListDatabases } from '#shared/db/replica.ts'
import type { ActivityRow, ActivityTables } from '#shared/db/schema/activities.ts'
import { failure } from '#shared/errors.ts'

/** A validated activity, ready to be recorded. */
export interface NewActivity {
  readonly id: string
  readonly type: string
  readonly actorId: string | undefined
  readonly objectId: string | undefined
  readonly publishedMs: number
  readonly content: Readonly<Record<string, unknown>>
  /** Digest of the client's content: the same id with the same digest is the same activity. */
  readonly digest: Buffer
}

/** An activity that the platform itself records for an organization. */
export type OwnActivity = NewActivity & { readonly organizationId: string }

/** Activities of one organization, recorded as a whole or not at all. */
interface Batch {
  readonly organizationId: string
  readonly list: readonly NewActivity[]
  readonly nowMs: number
  readonly pathOf: (index: number) => string
  /** Bytes of all activities that clients record. */
  readonly bytesMax: number
}

/** The stored rows, and how many of them are new. */
interface Recorded {
  readonly rows: readonly ActivityRow[]
  readonly createdCount: number
}

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
   * Throws `conflict` with the index of the first one whose content differs, and `invalidRequest`
   * when the organization has no room for new ones.
   */
  record(
    organizationId: string,
    activities: readonly NewActivity[],
    options: { readonly nowMs: number; readonly pathOf: (index: number) => string },
  ): Promise<Recorded>
  /** Records activities of the platform; existing ones are left unchanged. */
  recordOwn(rows: readonly OwnActivity[]): Promise<void>
  find(organizationId: string, id: string): Promise<ActivityRow | undefined>
  list(
    reader: ContentsReader,
    query: ActivityQuery,
  ): Promise<{ rows: ActivityRow[]; hasMore: boolean }>
  /**
   * Creates the partitions of the coming months and deletes activities older than `retentionDays`.
   */
  maintain(retentionDays: number | undefined, nowMs: number): Promise<void>
}

/** How many months ahead partitions are created. */
const MONTHS_AHEAD = 3
const CHECK_VIOLATION = '23514'
const NOT_NULL_VIOLATION = '23502'

/** Opens the activities of a database. */
export function openActivities(
  db: Db,
  tables: ActivityTables,
  { lists = db, bytesMax = Number.MAX_SAFE_INTEGER }: { lists?: Db; bytesMax?: number } = {},
): Activities {
  return {
    record: (organizationId, list, options) =>
      withPartitions(db, tables, () =>
        record(db, tables, { organizationId, list, bytesMax, ...options }),
      ),
    async recordOwn(list) {
      const rows = list.map((own) => newRowOf(own, own.organizationId, new Date(own.publishedMs)))
      await withPartitions(db, tables, () => insert(db, tables, rows, {}))
    },
    find: (organizationId, id) => find(db, tables, organizationId, id),
    list: ({ organizationId }, query) => list({ db, lists }, tables, organizationId, query),
    maintain: (retentionDays, nowMs) => maintain(db, tables, retentionDays, nowMs),
  }
}

/**
 * Creates the partitions when none exists for now, for instance after months without maintenance.
 */
async function withPartitions<T>(
  db: Db,
  { makePartitions }: ActivityTables,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const { message } = ((error as Error).cause ?? error) as Error
    if (codeOf(error) !== CHECK_VIOLATION || !message.includes('no partition')) throw error
    await callFunction(db, [makePartitions], MONTHS_AHEAD)
    return work()
  }
}

function codeOf(error: unknown): string | undefined {
  return (((error as Error).cause ?? error) as { readonly code?: string }).code
}

async function record(db: Db, tables: ActivityTables, batch: Batch): Promise<Recorded> {
  const { organizationId, list, nowMs, bytesMax } = batch
  const own = list.map((activity) => newRowOf(activity, organizationId, new Date(nowMs)))
  try {
    const added = await insert(db, tables, own, { bytesMax })
    const old = list.filter(({ id }) => !added.has(keyOf({ organizationId, id })))
    const known = await findKnown(db, tables, organizationId, old)
    if (old.some(({ id }) => !known.has(id))) throw activitiesFull()
    const rows = own.map(({ row }) => known.get(row.id)?.row ?? row)
    return { rows, createdCount: added.size }
  } catch (error) {
    if (codeOf(error) !== NOT_NULL_VIOLATION) throw error
    const known = await findKnown(db, tables, organizationId, list)
    const index = list.findIndex(({ id, digest }) => known.get(id)?.digest.equals(digest) === false)
    if (index === -1) throw error
    throw failure.conflict(`'${batch.pathOf(index)}' is already recorded with other content.`, {
      param: batch.pathOf(index),
      code: 'activity_already_exists',
    })
  }
}

interface NewRow {
  readonly row: ActivityRow
  readonly digest: Buffer
}

/**
 * Inserts the new activities in one statement, and returns their keys. With `bytesMax`, which
 * applies to activities of clients, an id that is stored with another digest makes the statement
 * fail without recording anything, because its digest would become null. An organization at that
 * limit gets no new activities.
 */
async function insert(
  db: Db,
  tables: ActivityTables,
  list: readonly NewRow[],
  { bytesMax }: { readonly bytesMax?: number },
): Promise<ReadonlySet<string>> {
  // One row per id, in order, so that two overlapping lists cannot deadlock.
  const byKey = new Map(list.map((own) => [keyOf(own.row), own]))
  const rows = [...byKey.keys()].sort().map((key) => byKey.get(key) as NewRow)
  if (rows.length === 0) return new Set()
  const added = await prepared(db, 'insert_activities', (name) =>
    prepareInsertion(db, tables, name),
  ).execute({
    isStrict: bytesMax !== undefined,
    bytesMax: bytesMax ?? 0,
    organizationIds: rows.map(({ row }) => row.organizationId),
    ids: rows.map(({ row }) => row.id),
    types: rows.map(({ row }) => row.type),
    actorIds: rows.map(({ row }) => row.actorId),
    objectIds: rows.map(({ row }) => row.objectId),
    published: rows.map(({ row }) => row.published.toISOString()),
    createdAt: rows.map(({ row }) => row.createdAt.toISOString()),
    digests: rows.map(({ digest }) => digest),
    contents: rows.map(({ row }) => JSON.stringify(row.activity)),
  })
  return new Set(added.map(keyOf))
}

function prepareInsertion(db: Db, tables: ActivityTables, name: string) {
  const { activities, activityIds, activityBytes } = tables
  const rows = tableOfArrays([
    ['text', sql.placeholder('organizationIds')],
    ['text', sql.placeholder('ids')],
    ['text', sql.placeholder('types')],
    ['text', sql.placeholder('actorIds')],
    ['text', sql.placeholder('objectIds')],
    ['timestamptz', sql.placeholder('published')],
    ['timestamptz', sql.placeholder('createdAt')],
    ['bytea', sql.placeholder('digests')],
    ['text', sql.placeholder('contents')],
  ])
  const list = db.$with('list', {}).as(sql`
    select * from ${rows} as list (organization_id, id, type, actor_id, object_id, published,
      created_at, digest, activity)`)
  const full = db.$with('full_ones', {}).as(sql`
    select organization_id from ${activityBytes}
    where ${sql.placeholder('isStrict')}::boolean
      and organization_id = any(${sql.placeholder('organizationIds')}::text[])
    group by 1 having sum(bytes) >= ${sql.placeholder('bytesMax')}::bigint`)
  const added = db.$with('added', {}).as(sql`
    insert into ${activityIds} as known (organization_id, id, created_at, digest)
    select organization_id, id, created_at, digest from list
    where not exists (select from full_ones f where f.organization_id = list.organization_id)
      or exists (select from ${activityIds} k
        where k.organization_id = list.organization_id and k.id = list.id)
    on conflict (organization_id, id) do update set digest = null
      where ${sql.placeholder('isStrict')} and known.digest <> excluded.digest
    returning organization_id, id`)
  return db
    .with(list, full, added)
    .insert(activities)
    .select(
      sql`select organization_id, id, type, actor_id, object_id, published, created_at, activity::json
        from list join added using (organization_id, id)`,
    )
    .returning({ organizationId: activities.organizationId, id: activities.id })
    .prepare(name)
}

function keyOf({ organizationId, id }: Pick<ActivityRow, 'organizationId' | 'id'>): string {
  return `${organizationId} ${id}`
}

async function findKnown(
  tx: Db,
  { activities, activityIds }: Pick<ActivityTables, 'activities' | 'activityIds'>,
  organizationId: string,
  list: readonly NewActivity[],
): Promise<Map<string, NewRow>> {
  if (list.length === 0) return new Map()
  const found = await tx
    .select({ row: activities, digest: activityIds.digest })
    .from(activityIds)
    .innerJoin(
      activities,
      and(
        eq(activities.organizationId, activityIds.organizationId),
        eq(activities.createdAt, activityIds.createdAt),
        eq(activities.id, activityIds.id),
      ),
    )
    .where(
      and(
        eq(activityIds.organizationId, organizationId),
        inArray(
          activityIds.id,
          list.map(({ id }) => id),
        ),
      ),
    )
  return new Map(found.map((entry) => [entry.row.id, entry]))
}

function newRowOf(activity: NewActivity, organizationId: string, createdAt: Date): NewRow {
  const { id, type, actorId = null, objectId = null, publishedMs, digest } = activity
  const content = { ...activity.content, id }
  const row = { organizationId, id, type, actorId, objectId, createdAt, activity: content }
  return { row: { ...row, published: new Date(publishedMs) }, digest }
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
  { db, lists }: ListDatabases,
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
    conditions.push(
      isRowBeyond([activities.published, activities.id], isAscending ? '>' : '<', [
        cursor.published,
        cursor.id,
      ]),
    )
  }
  const direction = isAscending ? asc : desc
  const rows = await lists
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
  await callFunction(db, [makePartitions], MONTHS_AHEAD)
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

function activitiesFull() {
  return failure.invalidRequest(
    "Your organization's activities have the bytes that they may have together.",
    { code: 'storage_limit_exceeded', shouldRetry: false },
  )
}

function noSuchCursor(after: string) {
  return failure.invalidRequest(`No such activity: ${after.slice(0, 200)}`, {
    param: 'after',
    code: 'invalid_value',
  })
}
