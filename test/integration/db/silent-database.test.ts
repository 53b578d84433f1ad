import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { sql } from 'drizzle-orm'
import { afterEach, describe, expect } from 'vitest'

import { type Database, openDatabase } from '#shared/db/client.ts'
import { migrate } from '#shared/db/migrate.ts'
import { createLogger } from '#shared/logger.ts'
import { openFaultProxy } from '#test/support/fault-proxy.ts'
import { it } from '#test/support/services.ts'

const STATEMENT_MS = 600
const log = createLogger({ level: 'silent' })
const closers: (() => Promise<unknown>)[] = []

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

function open(url: string, { maxPoolSize = 1, statementMs = STATEMENT_MS } = {}): Database {
  const database = openDatabase({ url, maxPoolSize, logger: log, statementMs })
  closers.push(database.close)
  return database
}

/** A database behind a proxy that can be made to hang. */
async function openBehindProxy(url: string) {
  const behind = new URL(url)
  const proxy = await openFaultProxy(Number(behind.port || 5432))
  closers.push(proxy.close)
  behind.host = `127.0.0.1:${proxy.port}`
  return { proxy, ...open(behind.href) }
}

/** The rows of a query, asked again where a busy machine takes longer than a query may. */
async function answerOf(pool: Database['pool'], text: string) {
  let rows: unknown
  await expect
    .poll(async () => {
      rows = await pool.query(text).then(
        (answer) => answer.rows,
        () => undefined,
      )
      return rows
    })
    .toBeDefined()
  return rows
}

const textsOf = (error: unknown): string =>
  error instanceof Error ? `${error.message} ${textsOf(error.cause)}` : ''

describe('a database that says nothing', () => {
  it('is abandoned, and asked again once it answers', async ({ databaseUrl }) => {
    const { pool, proxy } = await openBehindProxy(databaseUrl)
    await pool.query('select 1')
    proxy.freeze()
    await expect(pool.query('select 1')).rejects.toThrow('Query read timeout')
    proxy.mend()
    expect(await answerOf(pool, 'select 2 as n')).toEqual([{ n: 2 }])
  })

  it('in the middle of a transaction does not keep its connection', async ({ databaseUrl }) => {
    const { db, pool, proxy } = await openBehindProxy(databaseUrl)
    const failed = db.transaction(async (tx) => {
      await tx.execute(sql`select 1`)
      proxy.freeze()
      await tx.execute(sql`select 2`)
    })
    const error = await failed.catch((thrown: unknown) => thrown)
    expect(textsOf(error)).toMatch(
      /Query read timeout|Client has encountered a connection error|Client was closed|Connection terminated/,
    )
    proxy.mend()
    // The only connection of the pool was that of the transaction.
    expect(await answerOf(pool, 'select 3 as n')).toEqual([{ n: 3 }])
    expect(pool.totalCount).toBe(1)
  })
})

describe('a lock that another connection holds', () => {
  it('delays a query only for a limited time, and its connection stays usable', async ({
    databaseUrl,
    database,
  }) => {
    // The server reports the time-out first, also on a busy machine.
    const { pool } = open(databaseUrl, { statementMs: 5 * STATEMENT_MS })
    const holder = await database.pool.connect()
    try {
      await holder.query('begin; lock table files in access exclusive mode')
      await expect(pool.query('select * from files')).rejects.toMatchObject({ code: '57014' })
    } finally {
      await holder.query('rollback')
      holder.release()
    }
    expect((await pool.query('select * from files')).rows).toEqual([])
  })

  it('is released when the process that holds it is frozen', async ({ databaseUrl, database }) => {
    const frozen = open(databaseUrl)
    const holder = await frozen.pool.connect()
    await holder.query('begin; lock table files in access exclusive mode')
    // Nothing more is said in this transaction.
    expect((await database.pool.query('select * from files')).rows).toEqual([])
    await expect(holder.query('commit')).rejects.toThrow()
    holder.release()
    expect(await answerOf(frozen.pool, 'select 4 as n')).toEqual([{ n: 4 }])
  })

  it('and the lock of a migration elsewhere is awaited as long as it takes', async ({
    databaseUrl,
    folder,
  }) => {
    const migrations = join(folder, 'migrations')
    await mkdir(migrations)
    await writeFile(join(migrations, '0001_slow.sql'), 'select pg_sleep(0.7);')
    const starts = [
      open(databaseUrl, { maxPoolSize: 2 }),
      open(databaseUrl, { maxPoolSize: 2 }),
    ].map(({ pool }) => migrate({ pool, folder: migrations, tablePrefix: 'slow', logger: log }))
    const applied = (await Promise.all(starts)).flatMap((one) => one.applied)
    expect(applied).toEqual(['0001_slow.sql'])
  })
})
