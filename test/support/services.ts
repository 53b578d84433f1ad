import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Client } from 'pg'
import { test as base, inject } from 'vitest'

import { type Database, openDatabase } from '#shared/db/client.ts'
import { createLogger, type Logger } from '#shared/logger.ts'

import { type MailCatcher, startMailCatcher } from './mail-catcher.ts'

/** The fixtures of a test: `it('…', async ({ databaseUrl, redisUrl, keyPrefix }) => …)`. */
export interface TestServices {
  /** Says nothing below fatal. */
  log: Logger
  redisUrl: string
  /** For the Redis keys of this test alone. */
  keyPrefix: string
  /** A migrated database for this test alone. */
  databaseUrl: string
  database: Database
  /** A real SMTP server that keeps what it receives. */
  mail: MailCatcher
  /** An empty folder, removed afterwards. */
  folder: string
}

/** `it` with the services of a run as fixtures. */
export const it = base.extend<TestServices>({
  // biome-ignore lint/correctness/noEmptyPattern: a fixture takes a pattern.
  log: async ({}, use) => use(createLogger({ level: 'silent' })),
  // biome-ignore lint/correctness/noEmptyPattern: see above.
  redisUrl: async ({}, use) => use(inject('redisUrl')),
  // biome-ignore lint/correctness/noEmptyPattern: see above.
  keyPrefix: async ({}, use) => use(`test-${randomUUID().slice(0, 8)}`),
  // biome-ignore lint/correctness/noEmptyPattern: see above.
  databaseUrl: async ({}, use) => {
    const { url, drop } = await createDatabase()
    await use(url)
    await drop()
  },
  database: async ({ databaseUrl, log }, use) => {
    const database = openDatabase({ url: databaseUrl, maxPoolSize: 10, logger: log })
    await use(database)
    await database.close()
  },
  // biome-ignore lint/correctness/noEmptyPattern: see above.
  mail: async ({}, use) => {
    const mail = await startMailCatcher()
    await use(mail)
    await mail.stop()
  },
  // biome-ignore lint/correctness/noEmptyPattern: see above.
  folder: async ({}, use) => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-test-'))
    await use(folder)
    await rm(folder, { recursive: true, force: true })
  },
})

/** A fresh copy of the migrated template, for a test or, from `beforeAll`, for a whole file. */
export async function createDatabase(): Promise<{ url: string; drop(): Promise<void> }> {
  const name = `test_${randomUUID().replaceAll('-', '')}`
  // Copying the files costs half as much as logging their content, as is usual.
  await onServer(
    `create database "${name}" template "${inject('templateDatabase')}" strategy file_copy`,
  )
  const url = new URL(inject('postgresUrl'))
  url.pathname = `/${name}`
  return {
    url: url.href,
    drop: () => dropDatabase(name),
  }
}

/**
 * Drops a database. Postgres waits some seconds for its last connections, which end a moment after
 * their pool has; one that is cut reports an error where nothing catches it.
 */
async function dropDatabase(name: string): Promise<void> {
  const statement = `drop database if exists "${name}"`
  await onServer(statement).catch(() => onServer(`${statement} with (force)`))
}

async function onServer(statement: string): Promise<void> {
  const client = new Client({ connectionString: inject('postgresUrl') })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}
