import type { Pool } from 'pg'

import { QUOTA_NAMES } from '#api/v1/key-limits.ts'

/** Rows of a page of a list; more are on the next page. */
const PAGE_ROWS = 50
const PAGES_MAX = 200

/** The schema of the query of a list; `more` are its filters. */
export function listQuery(more: Readonly<Record<string, object>> = {}) {
  return {
    type: 'object',
    additionalProperties: false,
    properties: { page: { type: 'integer', minimum: 1, maximum: PAGES_MAX }, ...more },
  } as const
}

/** A filter of a list: a text that is contained or equal. */
export const TEXT_FILTER = { type: 'string', maxLength: 200, pattern: '^[^\\u0000]*$' } as const

/** Selects the quota columns of a table under their API field names. */
export function quotaFields(table: string): string {
  const fields = Object.values(QUOTA_NAMES)
  return fields.map((field) => `${table}.${field}::float8`).join(', ')
}

/** One page of a list. */
interface ListPage<Row> {
  readonly rows: readonly Row[]
  readonly page: number
  readonly hasMore: boolean
}

/**
 * Reads a page of `text`, which must order its rows; empty filters are passed as null. The page
 * size and offset are added as the last parameters.
 */
export async function readPage<Row extends object>(
  pool: Pick<Pool, 'query'>,
  query: {
    readonly text: string
    readonly values: readonly unknown[]
    readonly page?: number | undefined
  },
): Promise<ListPage<Row>> {
  const { text, page = 1 } = query
  const values = query.values.map((value) => (value === undefined || value === '' ? null : value))
  const { rows } = await pool.query<Row>(
    `${text} limit $${values.length + 1} offset $${values.length + 2}`,
    [...values, PAGE_ROWS + 1, (page - 1) * PAGE_ROWS],
  )
  return { rows: rows.slice(0, PAGE_ROWS), page, hasMore: rows.length > PAGE_ROWS }
}

/** The whole of a short list. */
export function wholeList<Row>(rows: readonly Row[]): ListPage<Row> {
  return { rows, page: 1, hasMore: false }
}
