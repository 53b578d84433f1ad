import { and, asc, eq, gte, inArray, lt, ne, type SQL, sql, sum } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import { isRowBeyond, proposed, tableOfArrays } from '#shared/db/expressions.ts'
import type { UsageRow, UsageTables } from '#shared/db/schema/usage.ts'

/** The columns that usage can be grouped by. */
export const USAGE_GROUPS = ['day', 'model', 'api_key_id'] as const
export type UsageGroup = (typeof USAGE_GROUPS)[number]

interface UsageQuery {
  readonly sinceMs: number
  readonly untilMs: number
  readonly groupBy: readonly UsageGroup[]
  readonly model?: string
  readonly apiKeyId?: string
  /** Restricts the listing to one user. */
  readonly userId?: string
  readonly limit: number
  /** The group of the last row of the previous page, in the order of `USAGE_GROUPS`. */
  readonly after?: readonly string[]
}

/** The usage of one group; columns that are not grouped by are null. */
export interface UsageLine {
  readonly day: string | null
  readonly model: string | null
  readonly apiKeyId: string | null
  readonly requests: number
  readonly promptTokens: number
  readonly completionTokens: number
  readonly cachedTokens: number
}

/** The usage of one model. */
interface ModelSum {
  readonly modelId: string
  readonly requests: number
  readonly promptTokens: number
  readonly completionTokens: number
}

/** The usage record of a database. */
export interface UsageRecord {
  /** Adds rows. Among several with one id the first finished one is kept, else the first. */
  add(rows: readonly UsageRow[]): Promise<void>
  list(organizationId: string, query: UsageQuery): Promise<{ lines: UsageLine[]; hasMore: boolean }>
  /** Usage by model, of an organization or one of its keys, since a point in time. */
  sumSince(
    of: { readonly organizationId: string; readonly apiKeyId?: string },
    sinceMs: number,
  ): Promise<readonly ModelSum[]>
  /** Deletes usage that was recorded before a point in time. */
  deleteBefore(time: Date): Promise<void>
}

// Rows of one statement: a clean-up never holds many locks at once.
const BATCH_ROWS_MAX = 10_000

/** Opens the usage record of a database. */
export function openUsageRecord(db: Db, { usage }: UsageTables, lists: Db = db): UsageRecord {
  return {
    async add(rows) {
      await db
        .insert(usage)
        .select(selectOf(oneOfEach(rows)))
        .onConflictDoUpdate({
          target: usage.jobId,
          set: {
            outcome: proposed(usage.outcome),
            promptTokens: proposed(usage.promptTokens),
            completionTokens: proposed(usage.completionTokens),
            cachedTokens: proposed(usage.cachedTokens),
          },
          setWhere: sql`${ne(usage.outcome, 'finished')} and ${proposed(usage.outcome)} = 'finished'`,
        })
    },
    list: (organizationId, query) => list(lists, usage, organizationId, query),
    async sumSince({ organizationId, apiKeyId }, sinceMs) {
      const rows = await db
        .select({
          modelId: usage.modelId,
          requests: requestsOf(usage),
          promptTokens: sum(usage.promptTokens),
          completionTokens: sum(usage.completionTokens),
        })
        .from(usage)
        .where(
          and(
            eq(usage.organizationId, organizationId),
            apiKeyId === undefined ? undefined : eq(usage.apiKeyId, apiKeyId),
            gte(usage.createdAt, new Date(sinceMs)),
          ),
        )
        .groupBy(usage.modelId)
      return rows.map(({ modelId, requests, promptTokens, completionTokens }) => ({
        modelId,
        requests: Number(requests),
        promptTokens: Number(promptTokens),
        completionTokens: Number(completionTokens),
      }))
    },
    async deleteBefore(time) {
      const old = db.select({ id: usage.jobId }).from(usage).where(lt(usage.createdAt, time))
      const batch = old.limit(BATCH_ROWS_MAX)
      for (let rows = BATCH_ROWS_MAX; rows === BATCH_ROWS_MAX; ) {
        const deleted = await db.delete(usage).where(inArray(usage.jobId, batch))
        rows = deleted.rowCount ?? 0
      }
    },
  }
}

/** A request may run several jobs. */
function requestsOf(usage: UsageTables['usage']) {
  return sql<string>`count(distinct coalesce(${usage.requestId}, ${usage.jobId}))`
}

/** The rows in the order of the table's columns. */
function selectOf(rows: readonly UsageRow[]): SQL {
  return sql`select * from ${tableOfArrays([
    ['text', rows.map((row) => row.jobId)],
    ['text', rows.map((row) => row.organizationId)],
    ['text', rows.map((row) => row.apiKeyId)],
    ['uuid', rows.map((row) => row.userId)],
    ['text', rows.map((row) => row.requestId)],
    ['text', rows.map((row) => row.kind)],
    ['text', rows.map((row) => row.modelId)],
    ['text', rows.map((row) => row.outcome)],
    ['bigint', rows.map((row) => row.promptTokens)],
    ['bigint', rows.map((row) => row.completionTokens)],
    ['bigint', rows.map((row) => row.cachedTokens)],
    ['timestamptz', rows.map((row) => row.createdAt.toISOString())],
  ])}`
}

/** One upsert statement must not touch a row twice. */
function oneOfEach(rows: readonly UsageRow[]): UsageRow[] {
  const kept = new Map<string, UsageRow>()
  for (const row of rows) {
    const before = kept.get(row.jobId)
    const isBetter = before?.outcome !== 'finished' && row.outcome === 'finished'
    if (before === undefined || isBetter) kept.set(row.jobId, row)
  }
  return [...kept.values()]
}

async function list(
  db: Db,
  usage: UsageTables['usage'],
  organizationId: string,
  query: UsageQuery,
): Promise<{ lines: UsageLine[]; hasMore: boolean }> {
  const day = sql<string>`to_char(${usage.createdAt} at time zone 'utc', 'YYYY-MM-DD')`
  // Rows of users have no key; they use the empty string, which sorts and pages like any value.
  const key = sql<string>`coalesce(${usage.apiKeyId}, '')`
  const columns: Record<UsageGroup, SQL<string>> = {
    day,
    model: sql<string>`${usage.modelId}`,
    api_key_id: key,
  }
  const groups = USAGE_GROUPS.filter((group) => query.groupBy.includes(group))
  // By position: a repeated expression with its own parameters would be a different expression.
  const positions = groups.map((_, index) => sql.raw(String(index + 1)))
  const selected = Object.fromEntries(groups.map((group) => [group, columns[group]]))
  const total = (column: (typeof usage)['promptTokens' | 'completionTokens' | 'cachedTokens']) =>
    sql<string>`coalesce(sum(${column}), 0)`
  const rows = await db
    .select({
      ...selected,
      requests: requestsOf(usage),
      promptTokens: total(usage.promptTokens),
      completionTokens: total(usage.completionTokens),
      cachedTokens: total(usage.cachedTokens),
    })
    .from(usage)
    .where(
      and(
        eq(usage.organizationId, organizationId),
        gte(usage.createdAt, new Date(query.sinceMs)),
        lt(usage.createdAt, new Date(query.untilMs)),
        query.model === undefined ? undefined : eq(usage.modelId, query.model),
        query.apiKeyId === undefined ? undefined : eq(usage.apiKeyId, query.apiKeyId),
        query.userId === undefined ? undefined : eq(usage.userId, query.userId),
        query.after === undefined || groups.length === 0
          ? undefined
          : isRowBeyond(
              groups.map((group) => columns[group]),
              '>',
              query.after,
            ),
      ),
    )
    .groupBy(...positions)
    .orderBy(...positions.map((position) => asc(position)))
    .limit(query.limit + 1)
  const text = (row: Record<string, unknown>, group: UsageGroup): string | null => {
    const value = row[group]
    return typeof value === 'string' && value !== '' ? value : null
  }
  const lines = rows.slice(0, query.limit).map((row) => ({
    day: text(row, 'day'),
    model: text(row, 'model'),
    apiKeyId: text(row, 'api_key_id'),
    requests: Number(row.requests),
    promptTokens: Number(row.promptTokens),
    completionTokens: Number(row.completionTokens),
    cachedTokens: Number(row.cachedTokens),
  }))
  return { lines, hasMore: rows.length > query.limit }
}
