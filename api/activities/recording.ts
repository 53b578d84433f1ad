import { and, eq, inArray, sql } from 'drizzle-orm'

import { type Db, prepared } from '#shared/db/client.ts'
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
}

/** The stored rows, and how many of them are new. */
export interface Recorded {
  readonly rows: readonly ActivityRow[]
  readonly createdCount: number
}

/** How many months ahead partitions are created. */
export const MONTHS_AHEAD = 3
const UNIQUE_VIOLATION = '23505'
const CHECK_VIOLATION = '23514'

/**
 * Creates the partitions when none exists for now, for instance after months without maintenance.
 */
export async function withPartitions<T>(
  db: Db,
  { makePartitions }: ActivityTables,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    const { message } = ((error as Error).cause ?? error) as Error
    if (codeOf(error) !== CHECK_VIOLATION || !message.includes('no partition')) throw error
    await db.execute(sql`select ${sql.identifier(makePartitions)}(${MONTHS_AHEAD})`)
    return work()
  }
}

/**
 * Inserts all in one statement; returns undefined, without recording anything, when an id exists.
 */
export async function insertNew(
  db: Db,
  tables: ActivityTables,
  list: readonly { readonly row: ActivityRow; readonly digest: Buffer }[],
): Promise<Recorded | undefined> {
  const rows = list.map(({ row }) => row)
  const { organizationId, createdAt } = rows[0] as ActivityRow
  try {
    await prepared(db, 'insert_activities', (name) => prepareInsert(db, tables, name)).execute({
      ...{ organizationId, createdAt: createdAt.toISOString() },
      ids: rows.map(({ id }) => id),
      digests: list.map(({ digest }) => digest),
      types: rows.map(({ type }) => type),
      actorIds: rows.map(({ actorId }) => actorId),
      objectIds: rows.map(({ objectId }) => objectId),
      published: rows.map(({ published }) => published.toISOString()),
      contents: rows.map(({ activity }) => JSON.stringify(activity)),
    })
    return { rows, createdCount: rows.length }
  } catch (error) {
    if (codeOf(error) === UNIQUE_VIOLATION) return undefined
    throw error
  }
}

function prepareInsert(db: Db, { activities, activityIds }: ActivityTables, name: string) {
  const given = (value: string) => sql`${sql.placeholder(value)}`
  const createdAt = sql`${given('createdAt')}::timestamptz`
  const ids = db.$with('ids', {}).as(sql`
    insert into ${activityIds} (organization_id, id, created_at, digest)
    select ${given('organizationId')}, id, ${createdAt}, digest
    from unnest(${given('ids')}::text[], ${given('digests')}::bytea[]) as new (id, digest)`)
  return db
    .with(ids)
    .insert(activities)
    .select(
      sql`select ${given('organizationId')}, id, type, actor_id, object_id, published, ${createdAt},
          activity::json
        from unnest(${given('ids')}::text[], ${given('types')}::text[],
          ${given('actorIds')}::text[], ${given('objectIds')}::text[],
          ${given('published')}::timestamptz[], ${given('contents')}::text[])
          as new (id, type, actor_id, object_id, published, activity)`,
    )
    .prepare(name)
}

/** The rows of a batch. */
export function rowsOf({ organizationId, list, nowMs }: Batch) {
  const createdAt = new Date(nowMs)
  return list.map((activity) => ({
    row: rowOf(activity, organizationId, createdAt),
    digest: activity.digest,
  }))
}

function codeOf(error: unknown): string | undefined {
  return (((error as Error).cause ?? error) as { readonly code?: string }).code
}

/** Records activities of the platform in one statement; existing ones are left unchanged. */
export async function recordOwn(
  db: Db,
  { activities, activityIds }: ActivityTables,
  list: readonly OwnActivity[],
): Promise<void> {
  if (list.length === 0) return
  const byId = new Map(list.map((own) => [`${own.organizationId} ${own.id}`, own]))
  // In id order, so that two overlapping lists cannot deadlock.
  const inOrder = [...byId.values()].sort((a, b) => (a.id < b.id ? -1 : 1))
  const rows = inOrder.map((own) => rowOf(own, own.organizationId, new Date(own.publishedMs)))
  const texts = (values: readonly (string | null)[]) => sql`${sql.param(values)}::text[]`
  const moments = rows.map(({ published }) => published.toISOString())
  const digests = inOrder.map(({ digest }) => digest)
  await db.execute(sql`
    with new as (
      select * from unnest(${texts(rows.map(({ organizationId }) => organizationId))},
        ${texts(rows.map(({ id }) => id))}, ${texts(rows.map(({ type }) => type))},
        ${texts(rows.map(({ actorId }) => actorId))}, ${texts(rows.map(({ objectId }) => objectId))},
        ${sql.param(moments)}::timestamptz[], ${sql.param(digests)}::bytea[],
        ${texts(rows.map(({ activity }) => JSON.stringify(activity)))})
        as new (organization_id, id, type, actor_id, object_id, published, digest, activity)
    ), ids as (
      insert into ${activityIds} (organization_id, id, created_at, digest)
      select organization_id, id, published, digest from new
      on conflict do nothing
      returning organization_id, id
    )
    insert into ${activities}
      (organization_id, id, type, actor_id, object_id, published, created_at, activity)
    select organization_id, id, type, actor_id, object_id, published, published, activity::json
    from new join ids using (organization_id, id)`)
}

/** Records the new activities of a batch, unless an id exists with other content. */
export async function record(
  tx: Db,
  { activities, activityIds }: ActivityTables,
  batch: Batch,
): Promise<Recorded> {
  const { organizationId, list } = batch
  const createdAt = new Date(batch.nowMs)
  // In id order, so that two overlapping batches cannot deadlock.
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
