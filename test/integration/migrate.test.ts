import { randomUUID } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { copyFile, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { Client, type Pool } from 'pg'
import { describe, expect, inject } from 'vitest'

import { openDatabase } from '#shared/db/client.ts'
import { MIGRATIONS_FOLDER, migrate } from '#shared/db/migrate.ts'
import { createLogger } from '#shared/logger.ts'
import { it } from '#test/support/services.ts'

const NAMES = readdirSync(MIGRATIONS_FOLDER).sort()
const logger = createLogger({ level: 'silent' })

describe('the migrations', () => {
  it('are applied once and in order, however many processes start at the same time', async () => {
    await withEmptyDatabase(async (pool) => {
      const runs = await Promise.all(
        Array.from({ length: 6 }, () =>
          migrate({ pool, folder: MIGRATIONS_FOLDER, tablePrefix: '', logger }),
        ),
      )
      expect(runs.flatMap(({ applied }) => applied).sort()).toEqual(NAMES)
      const again = await migrate({ pool, folder: MIGRATIONS_FOLDER, tablePrefix: '', logger })
      expect(again.applied).toEqual([])
    })
  })

  it('make two installations in one database, apart by their prefix', async () => {
    await withEmptyDatabase(async (pool) => {
      for (const tablePrefix of ['one', 'two_']) {
        await migrate({ pool, folder: MIGRATIONS_FOLDER, tablePrefix, logger })
      }
      const { rows } = await pool.query<{ tablename: string }>(
        `select tablename from pg_tables where schemaname = 'public'`,
      )
      const of = (prefix: string) =>
        rows
          .map(({ tablename }) => tablename)
          .filter((name) => name.startsWith(prefix))
          .map((name) => name.slice(prefix.length))
          .sort()
      expect(of('one_')).toContain('api_keys')
      expect(of('two_')).toEqual(of('one_'))
      expect(of('one_').length * 2).toBe(rows.length)
    })
  })

  it('refuse to go on when an applied one was changed', async ({ folder }) => {
    await withEmptyDatabase(async (pool) => {
      const own = join(folder, 'migrations')
      await mkdir(own)
      const first = NAMES[0] as string
      await copyFile(join(MIGRATIONS_FOLDER, first), join(own, first))
      await migrate({ pool, folder: own, tablePrefix: '', logger })
      await writeFile(join(own, first), 'select 1')
      await expect(migrate({ pool, folder: own, tablePrefix: '', logger })).rejects.toThrow(
        `migration ${first} was changed after it was applied`,
      )
    })
  })

  it('roll back a failed one, and can continue once it is repaired', async ({ folder }) => {
    await withEmptyDatabase(async (pool) => {
      const file = join(folder, '0001_thing.sql')
      await writeFile(file, 'create table {{prefix}}thing (id int); select nonsense')
      const run = () => migrate({ pool, folder, tablePrefix: '', logger })
      await expect(run()).rejects.toThrow('migration 0001_thing.sql failed')
      await writeFile(file, 'create table {{prefix}}thing (id int)')
      expect((await run()).applied).toEqual(['0001_thing.sql'])
    })
  })

  it.for([
    ['default_transaction_read_only', 'on', 'Postgres is read-only; check DATABASE_URL'],
    ['role', 'pg_monitor', 'must be allowed to create tables'],
  ])('name what to do where %s is %s', async ([setting, value, sentence]) => {
    await withEmptyDatabase(async (pool, database) => {
      // Before Postgres 15 every role might create tables there.
      await onServer('revoke create on schema public from public', database)
      pool.on('connect', (client) => void client.query(`set ${setting} = ${value}`))
      const run = migrate({ pool, folder: MIGRATIONS_FOLDER, tablePrefix: '', logger })
      await expect(run).rejects.toThrow(sentence)
    })
  })
})

async function withEmptyDatabase(use: (pool: Pool, url: string) => Promise<void>): Promise<void> {
  const name = `empty_${randomUUID().replaceAll('-', '')}`
  await onServer(`create database "${name}"`)
  const url = new URL(inject('postgresUrl'))
  url.pathname = `/${name}`
  const { pool, close } = openDatabase({ url: url.href, maxPoolSize: 8, logger })
  try {
    await use(pool, url.href)
  } finally {
    await close()
    await onServer(`drop database if exists "${name}" with (force)`)
  }
}

async function onServer(statement: string, url = inject('postgresUrl')): Promise<void> {
  const client = new Client({ connectionString: url })
  await client.connect()
  await client.query(statement)
  await client.end()
}
