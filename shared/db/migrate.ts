import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'

import type { Pool, PoolClient, QueryConfig } from 'pg'

import type { Logger } from '#shared/logger.ts'

/** The folder with the migrations of this release. */
export const MIGRATIONS_FOLDER = join(import.meta.dirname, '../../migrations')

// An arbitrary constant; every instance must use the same one.
const ADVISORY_LOCK = 7_231_964_305
// Advice for the operator, by the SQLSTATE of a failure.
const HINTS: Readonly<Record<string, string>> = {
  42501: ': the user of DATABASE_URL must be allowed to create tables in its schema',
  25006: ': Postgres is read-only; check DATABASE_URL',
}
/** The time limit of migrations, which may also wait for those of another instance. */
const PATIENCE_MS = 86_400_000

/**
 * Applies the numbered SQL files of `folder` that have not been applied yet. Each file is one
 * transaction that holds an advisory lock, so many instances may start at once. No state outlives
 * its transaction, so a pooler in transaction mode may be in between. `{{prefix}}` in a file is
 * replaced by the table prefix. Throws when an applied file has changed since.
 */
export async function migrate(options: {
  readonly pool: Pool
  readonly folder: string
  readonly tablePrefix: string
  readonly logger: Logger
}): Promise<{ applied: readonly string[] }> {
  const prefix = tablePrefixOf(options.tablePrefix)
  const table = `${prefix}schema_migrations`
  const client = await options.pool.connect()
  try {
    const done = await checksumsOf(client, table)
    const applied: string[] = []
    for (const name of await migrationNames(options.folder)) {
      const sql = await readFile(join(options.folder, name), 'utf8')
      const checksum = createHash('sha256').update(sql).digest('hex')
      const migration = { name, checksum, sql: sql.replaceAll('{{prefix}}', prefix) }
      if (isApplied(migration, done) || !(await applyOne(client, table, migration))) continue
      options.logger.info({ migration: name }, 'migration applied')
      applied.push(name)
    }
    return { applied }
  } finally {
    client.release()
  }
}

/** `auth` and `auth_` both make `auth_users`; the empty prefix makes `users`. */
export function tablePrefixOf(namespace: string): string {
  return namespace === '' ? '' : `${namespace.replace(/_$/, '')}_`
}

interface Migration {
  readonly name: string
  readonly checksum: string
  readonly sql: string
}

/** The checksums of the applied files by name; empty before the first migration. */
async function checksumsOf(client: PoolClient, table: string): Promise<Map<string, string>> {
  const { rows: found } = await client.query('select to_regclass($1) as id', [table])
  if (found[0]?.id === null) return new Map()
  const { rows } = await client.query<{ name: string; checksum: string }>(
    `select name, checksum from ${table}`,
  )
  return new Map(rows.map((row) => [row.name, row.checksum]))
}

function isApplied({ name, checksum }: Migration, done: ReadonlyMap<string, string>): boolean {
  const known = done.get(name)
  if (known === undefined || known === checksum) return known === checksum
  throw new Error(`migration ${name} was changed after it was applied`)
}

/** Applies one file unless another instance has already applied it. */
async function applyOne(client: PoolClient, table: string, migration: Migration): Promise<boolean> {
  const { name, checksum, sql } = migration
  await client.query('begin')
  try {
    await client.query('set local statement_timeout = 0')
    await patiently(client, `select pg_advisory_xact_lock(${ADVISORY_LOCK})`)
    await client.query(`create table if not exists ${table} (
      name text primary key, checksum text not null, applied_at timestamptz not null default now())`)
    const isNew = !isApplied(migration, await checksumsOf(client, table))
    if (isNew) {
      await patiently(client, sql)
      await client.query(`insert into ${table} (name, checksum) values ($1, $2)`, [name, checksum])
    }
    await client.query('commit')
    return isNew
  } catch (error) {
    await client.query('rollback').catch(() => {
      // A lost connection has already rolled back.
    })
    const hint = HINTS[(error as { readonly code?: string }).code ?? ''] ?? ''
    throw new Error(`migration ${name} failed${hint}`, { cause: error })
  }
}

function patiently(client: PoolClient, text: string): Promise<unknown> {
  return client.query({ text, query_timeout: PATIENCE_MS } as QueryConfig)
}

async function migrationNames(folder: string): Promise<string[]> {
  const names = await readdir(folder)
  return names.filter((name) => /^\d{4}_[a-z0-9_]+\.sql$/.test(name)).sort()
}
