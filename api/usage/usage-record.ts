import { and, asc, eq, gte, lt, type SQL, sql, sum } from 'drizzle-orm'

import type { JobObserver, SubmitRequest } from '#api/jobs/observers.ts'
import type { Outbox } from '#api/v1/outbox.ts'
import type { Clock } from '#shared/clock.ts'
import type { QueueKind } from '#shared/contracts/job.ts'
import type { Db } from '#shared/db/client.ts'
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

/** The usage record of a database. */
export interface UsageRecord {
  /** Adds rows. Of several with one id the first finished one is kept, else the first. */
  add(rows: readonly UsageRow[]): Promise<void>
  list(organizationId: string, query: UsageQuery): Promise<{ lines: UsageLine[]; hasMore: boolean }>
  tokensSince(organizationId: string, sinceMs: number): Promise<number>
}

/** Opens the usage record of a database. */
export function openUsageRecord(db: Db, { usage }: UsageTables): UsageRecord {
  return {
    async add(rows) {
      await db
        .insert(usage)
        .select(tableOf(oneOfEach(rows)))
        .onConflictDoUpdate({
          target: usage.jobId,
          set: {
            outcome: sql`excluded.outcome`,
            promptTokens: sql`excluded.prompt_tokens`,
            completionTokens: sql`excluded.completion_tokens`,
            cachedTokens: sql`excluded.cached_tokens`,
          },
          setWhere: sql`${usage.outcome} <> 'finished' and excluded.outcome = 'finished'`,
        })
    },
    list: (organizationId, query) => list(db, usage, organizationId, query),
    async tokensSince(organizationId, sinceMs) {
      const rows = await db
        .select({ total: sum(sql`${usage.promptTokens} + ${usage.completionTokens}`) })
        .from(usage)
        .where(
          and(eq(usage.organizationId, organizationId), gte(usage.createdAt, new Date(sinceMs))),
        )
      return Number(rows[0]?.total ?? 0)
    },
  }
}

/** The rows as one table with one array parameter per column. */
function tableOf(rows: readonly UsageRow[]): SQL {
  const texts = (values: readonly (string | null)[]) => sql`${sql.param(values)}::text[]`
  const counts = (values: readonly number[]) => sql`${sql.param(values)}::bigint[]`
  const moments = rows.map(({ createdAt }) => createdAt.toISOString())
  return sql`select * from unnest(
    ${texts(rows.map(({ jobId }) => jobId))}, ${texts(rows.map((row) => row.organizationId))},
    ${texts(rows.map(({ apiKeyId }) => apiKeyId))}, ${sql.param(rows.map(({ userId }) => userId))}::uuid[],
    ${texts(rows.map(({ requestId }) => requestId))}, ${texts(rows.map(({ kind }) => kind))},
    ${texts(rows.map(({ modelId }) => modelId))}, ${texts(rows.map(({ outcome }) => outcome))},
    ${counts(rows.map(({ promptTokens }) => promptTokens))},
    ${counts(rows.map(({ completionTokens }) => completionTokens))},
    ${counts(rows.map(({ cachedTokens }) => cachedTokens))}, ${sql.param(moments)}::timestamptz[])`
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
      requests: sql<string>`count(distinct coalesce(${usage.requestId}, ${usage.jobId}))`,
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
          : sql`(${sql.join(
              groups.map((group) => columns[group]),
              sql`, `,
            )}) > (${sql.join(
              query.after.map((value) => sql`${value}`),
              sql`, `,
            )})`,
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

interface Meter {
  readonly writer: Pick<Outbox<UsageRow>, 'write' | 'draft' | 'discard'>
  readonly clock: Clock
}

/**
 * Records the usage of each job once, however it ends, also when this process is killed: the tokens
 * so far are journaled while they stream. Another run for the same answer is the same usage.
 */
export function createUsageMeter({ writer, clock }: Meter): JobObserver {
  return {
    begin(request) {
      const used = { promptTokens: 0, completionTokens: 0, cachedTokens: 0 }
      let hasStarted = false
      let isRecorded = false
      const row = (outcome: UsageRow['outcome']): UsageRow => {
        return { ...rowOf(request), ...used, outcome, createdAt: new Date(clock.now()) }
      }
      const record = (outcome: UsageRow['outcome']): void => {
        // A job that has not started used nothing, and a failure without a token is not charged.
        const isFree = !hasStarted || (outcome === 'failed' && used.completionTokens === 0)
        if (isRecorded) return
        if (isFree) {
          writer.discard(rowOf(request).jobId)
          return
        }
        isRecorded = true
        writer.write(row(outcome))
        request.account?.noteTokens(used.promptTokens + used.completionTokens)
      }
      return {
        onEvent(event) {
          if (event.type === 'started') {
            hasStarted = true
            used.promptTokens = event.promptTokens
          } else if (event.type === 'progress' && event.training !== undefined) {
            used.promptTokens = event.training.trainedTokens
            writer.draft(row('abandoned'))
          } else if (event.type === 'delta') {
            for (const { tokenIds } of event.deltas) used.completionTokens += tokenIds.length
            writer.draft(row('abandoned'))
          } else if (event.type === 'result') {
            hasStarted = true
            Object.assign(used, event.usage)
            record('finished')
          }
        },
        onEnd: ({ outcome }) => record(outcome === 'failed' ? 'failed' : 'abandoned'),
      }
    },
  }
}

function rowOf({
  account,
  jobId,
  kind,
  model,
  organizationId,
}: SubmitRequest<QueueKind> & { readonly jobId: string }) {
  return {
    ...{ kind, organizationId },
    jobId: account?.usageId ?? jobId,
    modelId: model.id,
    apiKeyId: account?.apiKeyId ?? null,
    userId: account?.userId ?? null,
    requestId: account?.requestId ?? null,
  }
}
