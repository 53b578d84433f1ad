import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'

import type { Pool, PoolClient, QueryConfig } from 'pg'

import type { Logger } from '../logger.ts'

/** The folder with the migrations of this release. */
export const MIGRATIONS_FOLDER = join(import.meta.dirname, '../../migrations')

// An arbitrary constant; every instance must use the same one.
const ADVISORY_LOCK = 7_231_964_305
/** Migrations, and waiting for those of another instance, have no time limit. */
const PATIENCE_MS = 86_400_000

/**
 * Applies the numbered SQL files of `folder` that have not been applied yet, each in a transaction,
 * under an advisory lock: when many instances start at once, one migrates and the others wait.
 * `{{prefix}}` in a file is replaced by the table prefix. Throws when an applied file has changed
 * since.
 */
export async function migrate(options: {
  readonly pool: Pool
  readonly folder: string
  readonly tablePrefix: string
  readonly logger: Logger
}): Promise<{ applied: readonly string[] }> {
  const prefix = tablePrefixOf(options.tablePrefix)
  const client = await options.pool.connect()
  try {
    await client.query('set statement_timeout = 0')
    await patiently(client, 'select pg_advisory_lock($1)', [ADVISORY_LOCK])
    const applied = await applyPending(client, options.folder, prefix)
    for (const name of applied) options.logger.info({ migration: name }, 'migration applied')
    return { applied }
  } finally {
    await client.query('select pg_advisory_unlock($1)', [ADVISORY_LOCK]).catch(() => {
      // A lost connection has already released its locks.
    })
    // The connection has no time limits any more, so it must not return to the pool.
    client.release(true)
  }
}

function patiently(client: PoolClient, text: string, values: unknown[] = []): Promise<unknown> {
  return client.query({ text, values, query_timeout: PATIENCE_MS } as QueryConfig)
}

/** `auth` and `auth_` both make `auth_users`; the empty prefix makes `users`. */
export function tablePrefixOf(namespace: string): string {
  return namespace === '' ? '' : `${namespace.replace(/_$/, '')}_`
}

async function applyPending(client: PoolClient, folder: string, prefix: string): Promise<string[]> {
  const table = `${prefix}schema_migrations`
  await client.query(`create table if not exists ${table} (
    name text primary key, checksum text not null, applied_at timestamptz not null default now())`)
  const { rows } = await client.query<{ name: string; checksum: string }>(
    `select name, checksum from ${table}`,
  )
  const done = new Map(rows.map((row) => [row.name, row.checksum]))
  const applied: string[] = []
  for (const name of await migrationNames(folder)) {
    const sql = await readFile(join(folder, name), 'utf8')
    const checksum = createHash('sha256').update(sql).digest('hex')
    const known = done.get(name)
    if (known === checksum) continue
    if (known !== undefined) throw new Error(`migration ${name} was changed after it was applied`)
    await applyOne(client, sql.replaceAll('{{prefix}}', prefix), { table, name, checksum })
    applied.push(name)
  }
  return applied
}

async function applyOne(
  client: PoolClient,
  sql: string,
  record: { table: string; name: string; checksum: string },
): Promise<void> {
  await client.query('begin')
  try {
    await patiently(client, sql)
    await client.query(`insert into ${record.table} (name, checksum) values ($1, $2)`, [
      record.name,
      record.checksum,
    ])
    await client.query('commit')
  } catch (error) {
    await client.query('rollback')
    throw new Error(`migration ${record.name} failed`, { cause: error })
  }
}

async function migrationNames(folder: string): Promise<string[]> {
  const names = await readdir(folder)
  return names.filter((name) => /^\d{4}_[a-z0-9_]+\.sql$/.test(name)).sort()
}
