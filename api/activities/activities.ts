import { and, asc, desc, eq, gt, gte, inArray, lt, or, sql, type SQL } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import type { ActivityRow, ActivityTables } from '#shared/db/schema/activities.ts'
import { failure } from '#shared/errors.ts'

/** An activity as it is to be recorded. */
export interface NewActivity {
  readonly id: string
  readonly type: string
  readonly actorId: string | undefined
  readonly objectId: string | undefined
  readonly publishedMs: number
  readonly content: Readonly<Record<string, unknown>>
  /** Of what the client sent: the same id with the same digest is the same record. */
  readonly digest: Buffer
}

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

/** The append-only record of an organization's activities. */
export interface Activities {
  /**
   * Records all or none. Ids that are already recorded with the same content give back what is
   * stored. Throws `conflict` with the index of the first whose content differs.
   */
  record(
    organizationId: string,
    activities: readonly NewActivity[],
    options: { readonly nowMs: number; readonly pathOf: (index: number) => string },
  ): Promise<{ readonly rows: readonly ActivityRow[]; readonly createdCount: number }>
  find(organizationId: string, id: string): Promise<ActivityRow | undefined>
  list(
    organizationId: string,
    query: ActivityQuery,
  ): Promise<{ rows: ActivityRow[]; hasMore: boolean }>
  /** Makes the partitions of the months ahead and deletes what is older than `retentionDays`. */
  maintain(retentionDays: number | undefined, nowMs: number): Promise<void>
}

const MONTHS_AHEAD = 3

/** Opens the activities of a database. */
export function openActivities(db: Db, tables: ActivityTables): Activities {
  const { activities } = tables
  return {
    record: (organizationId, list, options) =>
      db.transaction((tx) => record(tx, tables, { organizationId, list, ...options })),
    async find(organizationId, id) {
      const rows = await db
        .select()
        .from(activities)
        .where(and(eq(activities.organizationId, organizationId), eq(activities.id, id)))
      return rows[0]
    },
    list: (organizationId, query) => list(db, tables, organizationId, query),
    maintain: (retentionDays, nowMs) => maintain(db, tables, retentionDays, nowMs),
  }
}

async function record(
  tx: Db,
  { activities, activityIds }: ActivityTables,
  batch: {
    readonly organizationId: string
    readonly list: readonly NewActivity[]
    readonly nowMs: number
    readonly pathOf: (index: number) => string
  },
): Promise<{ rows: ActivityRow[]; createdCount: number }> {
  const { organizationId, list } = batch
  const createdAt = new Date(batch.nowMs)
  // In id order, so that two overlapping batches never wait for each other.
  const claims = list
    .map(({ id, digest }) => ({ organizationId, id, createdAt, digest }))
    .sort((a, b) => (a.id < b.id ? -1 : 1))
  const claimed = await tx
    .insert(activityIds)
    .values(claims)
    .onConflictDoNothing()
    .returning({ id: activityIds.id })
  const isNew = new Set(claimed.map(({ id }) => id))
  const known = await findKnown(
    tx,
    { activities, activityIds },
    organizationId,
    list.filter(({ id }) => !isNew.has(id)),
  )
  for (const [index, { id, digest }] of list.entries()) {
    const stored = known.get(id)
    if (stored !== undefined && !stored.digest.equals(digest)) {
      throw failure.conflict(`'${batch.pathOf(index)}' is already recorded with other content.`, {
        param: batch.pathOf(index),
        code: 'activity_already_exists',
      })
    }
  }
  const rows = list.map(
    (activity) => known.get(activity.id)?.row ?? rowOf(activity, organizationId, createdAt),
  )
  const added = rows.filter((row) => isNew.has(row.id))
  if (added.length > 0) await tx.insert(activities).values(added)
  return { rows, createdCount: added.length }
}

async function findKnown(
  tx: Db,
  { activities, activityIds }: Pick<ActivityTables, 'activities' | 'activityIds'>,
  organizationId: string,
  list: readonly NewActivity[],
): Promise<Map<string, { row: ActivityRow; digest: Buffer }>> {
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

function rowOf(activity: NewActivity, organizationId: string, createdAt: Date): ActivityRow {
  return {
    organizationId,
    id: activity.id,
    type: activity.type,
    actorId: activity.actorId ?? null,
    objectId: activity.objectId ?? null,
    published: new Date(activity.publishedMs),
    createdAt,
    activity: { ...activity.content, id: activity.id },
  }
}

async function list(
  db: Db,
  { activities }: ActivityTables,
  organizationId: string,
  query: ActivityQuery,
): Promise<{ rows: ActivityRow[]; hasMore: boolean }> {
  const own = eq(activities.organizationId, organizationId)
  const conditions: (SQL | undefined)[] = [
    own,
    query.actor === undefined ? undefined : eq(activities.actorId, query.actor),
    query.type === undefined ? undefined : eq(activities.type, query.type),
    query.object === undefined ? undefined : eq(activities.objectId, query.object),
    query.sinceMs === undefined ? undefined : gte(activities.published, new Date(query.sinceMs)),
    query.untilMs === undefined ? undefined : lt(activities.published, new Date(query.untilMs)),
  ]
  const isAscending = query.order === 'asc'
  if (query.after !== undefined) {
    const [cursor] = await db
      .select()
      .from(activities)
      .where(and(own, eq(activities.id, query.after)))
    if (cursor === undefined) throw noSuchCursor(query.after)
    const past = isAscending ? gt : lt
    const isLater = past(activities.published, cursor.published)
    conditions.push(
      or(isLater, and(eq(activities.published, cursor.published), past(activities.id, cursor.id))),
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

async function maintain(
  db: Db,
  { activities, activityIds, makePartitions }: ActivityTables,
  retentionDays: number | undefined,
  nowMs: number,
): Promise<void> {
  await db.execute(sql`select ${sql.identifier(makePartitions)}(${MONTHS_AHEAD})`)
  if (retentionDays === undefined) return
  const oldest = new Date(nowMs - retentionDays * 86_400_000)
  await db.transaction(async (tx) => {
    await tx.delete(activities).where(lt(activities.createdAt, oldest))
    await tx.delete(activityIds).where(lt(activityIds.createdAt, oldest))
  })
}

function noSuchCursor(after: string) {
  return failure.invalidRequest(`No such activity: ${after.slice(0, 200)}`, {
    param: 'after',
    code: 'invalid_value',
  })
}
