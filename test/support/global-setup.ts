import { randomUUID } from 'node:crypto'
import { mkdtemp, rm, statfs } from 'node:fs/promises'
import { freemem, tmpdir } from 'node:os'
import { join } from 'node:path'

import { Client, Pool } from 'pg'
import type { TestProject } from 'vitest/node'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import { startRedis } from '#launcher/embedded/redis.ts'
import { migrate } from '#shared/db/migrate.ts'
import { createLogger } from '#shared/logger.ts'

import { startContainers } from './containers.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A database server; the test databases are made from the template there. */
    postgresUrl: string
    templateDatabase: string
    redisUrl: string
  }
}

const MEMORY_FOLDER = '/dev/shm'
const MEMORY_BYTES_MIN = 2 * 1024 ** 3
/**
 * Disables the writes with which a server survives a crash, because a run of tests ends with its
 * own server.
 */
const UNSAFE = { fsync: 'off', full_page_writes: 'off', synchronous_commit: 'off' }

/**
 * One Postgres and one Redis for the whole run: those of TEST_DATABASE_URL and TEST_REDIS_URL,
 * those of `docker-compose.yml` with TEST_SERVICES=containers, or private ones by the code that
 * `millrace up` uses. The template database is migrated once.
 */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  // The first project of a run starts them for all; the tests' processes inherit the settings.
  if (process.env.TEST_SERVICES === 'containers' && process.env.TEST_REDIS_URL === undefined)
    Object.assign(process.env, startContainers())
  const folder = await mkdtemp(join(await findFolder(), 'millrace-test-'))
  const [postgres, redis] = await Promise.all([findPostgres(folder), findRedis(folder)])
  // Several projects of one run may share a server.
  const templateDatabase = `template_${randomUUID().replaceAll('-', '')}`
  await makeTemplate(postgres.url, templateDatabase)
  project.provide('postgresUrl', postgres.url)
  project.provide('templateDatabase', templateDatabase)
  project.provide('redisUrl', redis.url)
  return async () => {
    await dropDatabase(postgres.url, templateDatabase)
    await Promise.all([postgres.stop(), redis.stop()])
    await rm(folder, { recursive: true, force: true })
  }
}

/**
 * Files in memory where that has room: every test database is hundreds of files, made and removed.
 */
async function findFolder(): Promise<string> {
  const free = await statfs(MEMORY_FOLDER).then(
    ({ bavail, bsize }) => bavail * bsize,
    () => 0,
  )
  return Math.min(free, freemem()) > MEMORY_BYTES_MIN ? MEMORY_FOLDER : tmpdir()
}

async function findPostgres(folder: string) {
  const url = process.env.TEST_DATABASE_URL ?? ''
  if (url !== '') return { url, stop: async () => {} }
  return startPostgres(folder, {
    password: 'test',
    settings: { ...UNSAFE, max_connections: '300', max_wal_size: '256MB' },
  })
}

async function findRedis(folder: string) {
  const url = process.env.TEST_REDIS_URL ?? ''
  if (url !== '') return { url, stop: async () => {} }
  // biome-ignore lint/suspicious/noConsole: the progress of an installation.
  return startRedis(folder, { password: 'test', onProgress: (text) => console.error(text) })
}

async function makeTemplate(serverUrl: string, name: string): Promise<void> {
  await onServer(serverUrl, `create database "${name}"`)
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  const pool = new Pool({ connectionString: url.href })
  try {
    const folder = join(import.meta.dirname, '../../migrations')
    await migrate({ pool, folder, tablePrefix: '', logger: createLogger({ level: 'error' }) })
  } finally {
    await pool.end()
  }
}

async function dropDatabase(serverUrl: string, name: string): Promise<void> {
  await onServer(serverUrl, `drop database if exists "${name}" with (force)`)
}

async function onServer(url: string, statement: string): Promise<void> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}
