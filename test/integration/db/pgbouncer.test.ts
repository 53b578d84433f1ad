import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { Client } from 'pg'
import { describe, expect } from 'vitest'

import { findFreePort } from '#launcher/embedded/child.ts'
import { openDatabase } from '#shared/db/client.ts'
import { MIGRATIONS_FOLDER, migrate } from '#shared/db/migrate.ts'
import { preparePooler } from '#shared/db/pooler.ts'
import { findPackaged } from '#test/support/packaged.ts'
import { eventually } from '#test/support/queue.ts'
import { it } from '#test/support/services.ts'

const pgbouncer = await findPackaged('pgbouncer')

/** PgBouncer before a database, and its address there. */
async function startPgBouncer(databaseUrl: string, folder: string, mode: string) {
  const { hostname, port, username, password, pathname } = new URL(databaseUrl)
  const listenPort = await findFreePort()
  const users = join(folder, 'users.txt')
  const config = join(folder, 'pgbouncer.ini')
  await writeFile(users, `"${username}" "${decodeURIComponent(password)}"\n`)
  await writeFile(
    config,
    `[databases]
* = host=${hostname} port=${port} user=${username} password=${decodeURIComponent(password)}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${listenPort}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
pool_mode = ${mode}
default_pool_size = 4
`,
  )
  await Promise.all([chmod(folder, 0o755), chmod(users, 0o644), chmod(config, 0o644)])
  const isRoot = process.getuid?.() === 0
  const child = spawn(String(pgbouncer), [...(isRoot ? ['-u', 'nobody'] : []), config])
  const url = `postgres://${username}@127.0.0.1:${listenPort}${pathname}`
  await eventually(() => isReachable(url))
  const [, minor] = /PgBouncer 1\.(\d+)/.exec(await versionOf()) ?? []
  const stop = async () => {
    child.kill('SIGKILL')
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  }
  return { url, stop, keepsStatements: Number(minor) >= 21 }
}

async function isReachable(url: string): Promise<boolean> {
  const client = new Client({ connectionString: url })
  const isOpen = await client.connect().then(
    () => true,
    () => false,
  )
  if (isOpen) await client.end()
  return isOpen
}

async function versionOf(): Promise<string> {
  const child = spawn(String(pgbouncer), ['--version'])
  let text = ''
  child.stdout.on('data', (chunk) => (text += String(chunk)))
  await once(child, 'close')
  return text
}

it.runIf(pgbouncer === undefined)('needs PgBouncer', ({ skip }) => skip('none on this machine'))

describe.skipIf(pgbouncer === undefined)('behind PgBouncer', () => {
  it('migrates in transaction mode, from several processes, and keeps no setting on a connection', async ({
    databaseUrl,
    folder,
    log,
  }) => {
    const bouncer = await startPgBouncer(databaseUrl, folder, 'transaction')
    const open = () => openDatabase({ url: bouncer.url, maxPoolSize: 2, logger: log })
    const databases = [open(), open(), open()]
    try {
      const runs = await Promise.all(
        databases.map(({ pool }) =>
          migrate({ pool, folder: MIGRATIONS_FOLDER, tablePrefix: 'pooled', logger: log }),
        ),
      )
      expect(runs.flatMap(({ applied }) => applied).sort()).toEqual(
        readdirSync(MIGRATIONS_FOLDER).sort(),
      )
      const { rows } = await (databases[0] as (typeof databases)[0]).pool.query(
        `select count(*)::int as locks from pg_locks where locktype = 'advisory'`,
      )
      expect(rows[0].locks).toBe(0)
    } finally {
      for (const database of databases) await database.close()
      await bouncer.stop()
    }
  })

  it('starts in transaction mode only if prepared statements are kept', async ({
    databaseUrl,
    folder,
    log,
  }) => {
    const bouncer = await startPgBouncer(databaseUrl, folder, 'transaction')
    try {
      const preparing = preparePooler(bouncer.url, log)
      if (!bouncer.keepsStatements) {
        await expect(preparing).rejects.toThrow('PgBouncer 1.21 or newer')
        return
      }
      await preparing
      const client = new Client({ connectionString: databaseUrl })
      await client.connect()
      const { rows } = await client.query('show statement_timeout')
      await client.end()
      expect(rows[0].statement_timeout).toBe('25s')
    } finally {
      await bouncer.stop()
    }
  })

  it('starts in session mode, and without a pooler', async ({ databaseUrl, folder, log }) => {
    await preparePooler(databaseUrl, log)
    const bouncer = await startPgBouncer(databaseUrl, folder, 'session')
    try {
      await preparePooler(bouncer.url, log)
    } finally {
      await bouncer.stop()
    }
  })
})
