import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import { sql } from 'drizzle-orm'
import { describe, expect } from 'vitest'

import { createLogger } from '#shared/logger.ts'
import { it } from '#test/support/services.ts'

const VALUE = 'somebody@example.test'

describe('a query that fails', () => {
  it.for([
    ['err', (error: Error) => error],
    ['error', (error: Error) => error],
    ['err', (error: Error) => new Error('nothing was stored', { cause: error })],
  ] as const)(
    'is logged (%s) with its reason, without its values',
    async ([field, wrap], { database, folder }) => {
      await database.db.execute(sql`create table addresses (address text primary key)`)
      const insert = () => database.db.execute(sql`insert into addresses values (${VALUE})`)
      await insert()
      const error: Error = await insert().then(
        () => expect.unreachable(),
        (refusal: Error) => refusal,
      )
      expect(error.message).toContain(VALUE)
      const file = join(folder, 'log')
      const log = createLogger({ level: 'warn', file })
      log.warn({ [field]: wrap(error) }, 'not stored')
      // The driver's own error names the values in its detail.
      log.warn({ [field]: error.cause }, 'not stored')
      await expect.poll(() => readFile(file, 'utf8')).toMatch(/not stored.*not stored/s)
      const lines = await readFile(file, 'utf8')
      expect(lines).toContain('insert into addresses')
      expect(lines.match(/duplicate key value/g)?.length).toBeGreaterThan(1)
      expect(lines).not.toContain(VALUE)
    },
  )
})
