import type { Pool } from 'pg'

import type { ConsoleArea, ConsoleCall } from '#api/console/api.ts'
import { listQuery, quotaFields, readPage } from '#api/console/lists.ts'
import { dayOf } from '#api/limits/limit-store.ts'
import { type QuotaServices, quotaStates, quotasOf } from '#api/limits/quotas.ts'
import { costOf, priceOf } from '#api/usage/usage-meter.ts'
import { QUOTA_NAMES, type QuotasBody, quotasIn } from '#api/v1/key-limits.ts'
import type { Catalogue } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import { NO_QUOTAS, type Quotas } from '#shared/db/schema/quotas.ts'

interface UsageServices {
  /** May lag slightly behind. */
  readonly pool: Pick<Pool, 'query'>
  readonly prefix: string
  readonly catalogue: Catalogue
  readonly clock: Clock
  readonly quotas: QuotaServices
}

/** The columns by which usage is summed, in order. */
const GROUPS = {
  day: `to_char(u.created_at at time zone 'utc', 'YYYY-MM-DD')`,
  organization_id: 'u.organization_id',
  organization: 'o.name',
  key_id: 'u.api_key_id',
  key: 'k.name',
  model: 'u.model_id',
} as const

type Column = keyof typeof GROUPS

/** The columns of each value of `group_by`. */
const COLUMNS = {
  day: ['day'],
  organization: ['organization_id', 'organization'],
  key: ['organization_id', 'organization', 'key_id', 'key'],
  model: ['model'],
} as const satisfies Record<string, readonly Column[]>

type Group = keyof typeof COLUMNS

interface UsageFilter {
  readonly group_by?: string
  readonly days?: number
  readonly organization?: string
  readonly model?: string
}

/** The usage of one group; columns that were not requested are absent. */
interface UsageSum extends Partial<Record<Column, string | null>> {
  readonly requests: number
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly cached_tokens: number
  /** Computed from the prices of the catalogue; null when a model of the group has none. */
  readonly cost: number | null
}

const DAYS_DEFAULT = 30
const DAYS_MAX = 400
const ROWS_MAX = 10_000
const TEXT = { type: 'string', maxLength: 512, pattern: '^[^\\u0000]*$' }
const QUERY = {
  type: 'object',
  additionalProperties: false,
  properties: {
    group_by: {
      type: 'string',
      pattern: '^(day|organization|key|model)(,(day|organization|key|model))*$',
    },
    days: { type: 'integer', minimum: 1, maximum: DAYS_MAX },
    organization: TEXT,
    model: TEXT,
  },
}

type Read = ConsoleCall<object, object, UsageFilter>

/** Usage and cost per day, organization, key and model, also as CSV. */
export function usageArea(services: UsageServices): ConsoleArea {
  return {
    actions: [],
    reads: [
      {
        path: '/usage',
        query: QUERY,
        handle: async ({ query }: Read) => {
          const { rows, isCut } = await sumUp(services, query)
          return { rows, page: 1, hasMore: isCut }
        },
      },
      {
        path: '/quotas',
        query: listQuery(),
        handle: ({ query }: ConsoleCall<object, object, { page?: number }>) =>
          listQuotas(services, query.page),
      },
      {
        path: '/usage.csv',
        query: QUERY,
        async handle({ query, reply }: Read) {
          const { rows, columns } = await sumUp(services, query)
          reply
            .type('text/csv; charset=utf-8')
            .header('content-disposition', 'attachment; filename="usage.csv"')
          return toCsv([...columns, ...SUMS], rows)
        },
      },
    ],
  }
}

const SUMS = ['requests', 'prompt_tokens', 'completion_tokens', 'cached_tokens', 'cost'] as const

/** Also grouped by model, because prices belong to models. */
async function sumUp({ pool, prefix, catalogue, clock }: UsageServices, filter: UsageFilter) {
  const { group_by: groupBy = 'organization', days = DAYS_DEFAULT, organization, model } = filter
  const groups = groupBy.split(',') as Group[]
  const wanted = new Set<Column>(groups.flatMap((group) => COLUMNS[group]))
  const columns = (Object.keys(GROUPS) as Column[]).filter((column) => wanted.has(column))
  const selected = columns.map((column) => `${GROUPS[column]} as ${column}`)
  const positions = selected.map((_, index) => index + 1)
  const { rows } = await pool.query<Priced>(
    `select ${selected.join(', ')}, u.model_id as priced_model,
       count(distinct coalesce(u.request_id, u.job_id))::float8 as requests,
       sum(u.prompt_tokens)::float8 as prompt_tokens,
       sum(u.completion_tokens)::float8 as completion_tokens,
       sum(u.cached_tokens)::float8 as cached_tokens
     from ${prefix}usage u left join ${prefix}organizations o on o.id = u.organization_id
       left join ${prefix}api_keys k on k.id = u.api_key_id
     where u.created_at >= $1 and ($2::text is null or u.organization_id = $2)
       and ($3::text is null or u.model_id = $3)
     group by ${[...positions, 'u.model_id'].join(', ')}
     order by ${[...positions, 'u.model_id'].join(', ')} limit $4`,
    [new Date(clock.now() - days * 86_400_000), organization || null, model || null, ROWS_MAX + 1],
  )
  const sums = new Map<string, UsageSum>()
  for (const row of rows.slice(0, ROWS_MAX)) {
    const values = columns.map((column) => row[column] ?? null)
    const name = JSON.stringify(values)
    sums.set(name, add(sums.get(name), row, { columns, cost: costOfRow(catalogue, row) }))
  }
  return { columns, rows: [...sums.values()], isCut: rows.length > ROWS_MAX }
}

interface Limited extends Readonly<Record<keyof QuotasBody, number | null>> {
  readonly organization_id: string
  readonly organization: string
  readonly key_id: string | null
  readonly key: string | null
}

/** The page of an organization shows only its own quotas. */
const NO_LIMITS = { monthlyTokens: 0 }

type Priced = Omit<UsageSum, 'cost'> & { readonly priced_model: string }

function add(
  sum: UsageSum | undefined,
  row: Priced,
  { columns, cost }: { readonly columns: readonly Column[]; readonly cost: number | null },
): UsageSum {
  const names = Object.fromEntries(columns.map((column) => [column, row[column] ?? null]))
  return {
    ...names,
    requests: (sum?.requests ?? 0) + row.requests,
    prompt_tokens: (sum?.prompt_tokens ?? 0) + row.prompt_tokens,
    completion_tokens: (sum?.completion_tokens ?? 0) + row.completion_tokens,
    cached_tokens: (sum?.cached_tokens ?? 0) + row.cached_tokens,
    cost: sum?.cost === null || cost === null ? null : (sum?.cost ?? 0) + cost,
  }
}

function costOfRow(catalogue: Catalogue, row: Priced): number | null {
  const { prompt_tokens: promptTokens, completion_tokens: completionTokens } = row
  return costOf(priceOf(catalogue, row.priced_model), { promptTokens, completionTokens })
}

/** All quotas set for organizations and keys, with their current usage. */
async function listQuotas(
  { pool, prefix, quotas, clock }: UsageServices,
  page: number | undefined,
) {
  const fields = Object.values(QUOTA_NAMES)
  const has = (table: string): string => `num_nonnulls(${quotaFields(table)}) > 0`
  const found = await readPage<Limited>(pool, {
    page,
    values: [],
    text: `select * from (
        select o.id as organization_id, o.name as organization, null as key_id, null as key,
          ${quotaFields('o')} from ${prefix}organizations o
        where o.deleted_at is null and ${has('o')}
        union all
        select o.id, o.name, k.id, k.name, ${quotaFields('k')} from ${prefix}api_keys k
          join ${prefix}organizations o on o.id = k.organization_id
        where k.revoked_at is null and ${has('k')}) limited
      order by organization, organization_id, key nulls first, key_id`,
  })
  const day = dayOf(clock.now())
  const rows = found.rows.map(async (row) => {
    const { organization_id: organizationId, organization, key_id, key } = row
    const own = quotasIn(Object.fromEntries(fields.map((field) => [field, row[field]]))) as Quotas
    const limits =
      key_id === null ? quotasOf(NO_LIMITS, undefined, own) : quotasOf(NO_LIMITS, own, NO_QUOTAS)
    const states = await quotaStates(
      quotas,
      { organizationId, credentialId: key_id ?? '', day },
      limits,
    )
    return states.map(({ amount, period, limit, used, resetsAtMs }) => {
      const names = { organization_id: organizationId, organization, key_id, key }
      const resets_at = new Date(resetsAtMs).toISOString()
      return { ...names, amount, period, limit, used, resets_at }
    })
  })
  return { ...found, rows: (await Promise.all(rows)).flat() }
}

/** RFC 4180. A cell that a spreadsheet would compute is prefixed with an apostrophe. */
function toCsv(columns: readonly string[], rows: readonly UsageSum[]): string {
  const cell = (value: unknown): string => {
    if (value === null || value === undefined) return ''
    if (typeof value === 'number') return String(value)
    const text = /^[=+\-@\t\r]/.test(String(value)) ? `'${value}` : String(value)
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
  }
  const lines = rows.map((row) => columns.map((name) => cell(row[name as keyof UsageSum])))
  return `${[columns, ...lines].map((line) => line.join(',')).join('\r\n')}\r\n`
}
