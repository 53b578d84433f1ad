import { drizzle } from 'drizzle-orm/node-postgres'
import type { QueryArrayConfig } from 'pg'
import { expect } from 'vitest'

import { openBatchLines } from '#api/batches/line-store.ts'
import { ensureDefaultOrganization } from '#shared/db/organizations.ts'
import { batchTables } from '#shared/db/schema/batches.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { it } from '#test/support/services.ts'

const BATCH = 'batch_pages'
const LINES = 450
const LARGE_CHARS = 600_000

it('reads the answers of a batch in order, at no time many large ones', async ({ database }) => {
  const { pool } = database
  const organizationId = await ensureDefaultOrganization(database.db, organizationTables(''))
  await pool.query(
    `insert into batches (id, organization_id, endpoint, input_file_id, input_object_key,
       completion_window, expires_at)
     values ($1, $2, '/v1/embeddings', 'file-1', 'file-1', '24h', now() + interval '1 day')`,
    [BATCH, organizationId],
  )
  // Every tenth of the first hundred is large; every fourth is an error.
  await pool.query(
    `insert into batch_lines (batch_id, line, custom_id, body, state, status_code, answer)
     select $1, n, n::text, '{}', 'done', case when n % 4 = 1 then 400 else 200 end,
       repeat('x', case when n < 100 and n % 10 = 0 then ${LARGE_CHARS} else 100 end)
     from generate_series(0, ${LINES - 1}) n`,
    [BATCH],
  )
  const pages: number[] = []
  const watched = {
    async query(query: QueryArrayConfig, values: unknown[]) {
      const found = await pool.query<unknown[]>(query, values)
      pages.push(found.rows.reduce((sum, row) => sum + String(row.at(-1)).length, 0))
      return found
    },
  }
  const lines = openBatchLines(drizzle(watched as unknown as typeof pool), batchTables(''))
  const read = async (isGood: boolean) => {
    const found: number[] = []
    for await (const { line } of lines.read(BATCH, isGood)) found.push(line)
    return found
  }
  const all = Array.from({ length: LINES }, (_, line) => line)
  expect(await read(true)).toEqual(all.filter((line) => line % 4 !== 1))
  expect(await read(false)).toEqual(all.filter((line) => line % 4 === 1))
  expect(Math.max(...pages)).toBeLessThan(3 * LARGE_CHARS)
  expect(Math.max(...pages)).toBeGreaterThan(LARGE_CHARS)
})
