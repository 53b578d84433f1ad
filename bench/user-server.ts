import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'

import { Client as PostgresClient } from 'pg'

import { findFreePort, waitUntil } from '#launcher/embedded/child.ts'
import { startPostgres } from '#launcher/embedded/postgres.ts'
import { startRedis } from '#launcher/embedded/redis.ts'
import { cpuMsOf, residentMib } from '#test/support/process-use.ts'
import { apiEnv } from '#test/support/tiers.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { type Client, openClient, ratePerSecond } from './support/people.ts'

// Made by bench/peers/install-supabase-auth.sh.
const PEER = '.data/peers/supabase-auth'
const PASSWORD = 'correct horse'
const SECRET = 'a secret of the tests that is long enough'
const CONCURRENCY = 16
const READS_EACH = 60
const SIGN_INS_EACH = 3
const REFRESHES_EACH = 30
const READY_WITHIN_MS = 30_000
const SETTLE_MS = 5000

/** One of the two servers, with as many signed-in users as there are connections. */
interface Side {
  readonly client: Client
  readonly pid: number
  readonly idleMib: number
  readonly accessTokens: readonly string[]
  readonly refreshTokens: string[]
}

/**
 * The user server against Supabase's own, on one Postgres: both processes answer the same clients
 * on the same cores.
 */
export async function benchUserServer(): Promise<readonly Figure[]> {
  if (process.platform !== 'linux' || !existsSync(join(PEER, 'auth'))) return []
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  const redis = await startRedis(folder, { password: 'bench', onProgress: () => {} })
  const postgres = await startPostgres(folder, { password: 'bench' })
  const running: ChildProcess[] = []
  try {
    const sides = {
      ours: await openSide(running, await startOurs(folder, redis.url, postgres.url)),
      theirs: await openSide(running, await startTheirs(postgres.url)),
    }
    return await compare(sides)
  } finally {
    for (const child of running) {
      child.kill('SIGKILL')
      await once(child, 'exit')
    }
    await redis.stop()
    await postgres.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

async function compare(sides: { ours: Side; theirs: Side }): Promise<readonly Figure[]> {
  const { ours, theirs } = sides
  const rates = (work: (side: Side) => Promise<number>) =>
    alternate(
      () => work(ours),
      () => work(theirs),
    )
  const figures: Figure[] = []
  const add = (name: string, unit: string, found: object, target: Figure['target']): void => {
    const values = found as Pick<Figure, 'ours' | 'theirs'>
    figures.push({ name: `${name} ÷ Supabase's server`, unit, ...values, target })
  }
  add('GET /user', '/s', await rates(readUsers), { atLeast: 1 })
  add('processor time of GET /user', 'ms', await rates(cpuOfReading), { atMost: 1.2 })
  add('password sign-ins', '/s', await rates(signInAll), { atLeast: 3 })
  add('refreshes', '/s', await rates(refreshAll), { atLeast: 1.5 })
  const idle = { ours: ours.idleMib, theirs: theirs.idleMib }
  add('resident memory of an idle process', 'MiB', idle, { atMost: 3 })
  return figures
}

function readUsers({ client, accessTokens }: Side): Promise<number> {
  return ratePerSecond(CONCURRENCY, READS_EACH, async (index) => {
    const { status } = await client.get('/user', bearer(accessTokens[index]))
    if (status !== 200) throw new Error(`GET /user answered ${status}`)
  })
}

async function cpuOfReading(side: Side): Promise<number> {
  const before = cpuMsOf(side.pid)
  await readUsers(side)
  return (cpuMsOf(side.pid) - before) / (CONCURRENCY * READS_EACH)
}

function signInAll({ client }: Side): Promise<number> {
  return ratePerSecond(CONCURRENCY, SIGN_INS_EACH, async (index) => {
    const body = { email: emailOf(index), password: PASSWORD }
    const { status } = await client.post('/token?grant_type=password', body)
    if (status !== 200) throw new Error(`a sign-in answered ${status}`)
  })
}

function refreshAll({ client, refreshTokens }: Side): Promise<number> {
  return ratePerSecond(CONCURRENCY, REFRESHES_EACH, async (index) => {
    const given = { refresh_token: refreshTokens[index] }
    const { status, body } = await client.post('/token?grant_type=refresh_token', given)
    if (status !== 200) throw new Error(`a refresh answered ${status}`)
    refreshTokens[index] = String(body.refresh_token)
  })
}

function bearer(token = ''): Readonly<Record<string, string>> {
  return { authorization: `Bearer ${token}` }
}

function emailOf(index: number): string {
  return `user${index}@example.com`
}

interface Started {
  readonly child: ChildProcess
  readonly url: string
}

async function openSide(running: ChildProcess[], { child, url }: Started): Promise<Side> {
  running.push(child)
  const isUp = async (): Promise<void> => {
    const answer = await fetch(`${url}/health`)
    await answer.body?.cancel()
    if (!answer.ok) throw new Error(`/health answered ${answer.status}`)
  }
  await waitUntil(isUp, { timeoutMs: READY_WITHIN_MS })
  // Memory of the start is given back after a while.
  await sleep(SETTLE_MS)
  const pid = child.pid ?? 0
  const idleMib = residentMib(pid)
  const client = openClient(url)
  const people = await Promise.all(
    Array.from({ length: CONCURRENCY }, async (_, index) => {
      const user = { email: emailOf(index), password: PASSWORD, data: { name: 'A Name' } }
      const { status, body } = await client.post('/signup', user)
      if (status !== 200) throw new Error(`the sign-up failed: ${JSON.stringify(body)}`)
      return body
    }),
  )
  return {
    client,
    pid,
    idleMib,
    accessTokens: people.map((body) => String(body.access_token)),
    refreshTokens: people.map((body) => String(body.refresh_token)),
  }
}

/** An API process that serves users alone, with limits that the load does not reach. */
async function startOurs(folder: string, redisUrl: string, databaseUrl: string): Promise<Started> {
  const port = await findFreePort()
  const env = {
    MILLRACE_DATA_DIR: folder,
    REDIS_URL: redisUrl,
    LOG_LEVEL: 'warn',
    ...apiEnv(databaseUrl, port),
    MILLRACE_SURFACES: 'users',
    OTEL_EXPORTER_PROMETHEUS_PORT: '0',
    ...UNLIMITED,
    AUTH_MAILER_AUTOCONFIRM: 'true',
    MILLRACE_SESSION_REFRESHES_PER_HOUR: '0',
    MILLRACE_USER_CHANGES_PER_HOUR: '0',
  }
  const script = join(import.meta.dirname, '../launcher/cli.ts')
  return { child: spawnQuiet(process.execPath, [script, 'api'], env), url: urlOf(port) }
}

const UNLIMITED = {
  AUTH_RATE_LIMIT_TOKEN_REFRESH: '1000000',
  AUTH_RATE_LIMIT_OTP: '1000000',
  AUTH_RATE_LIMIT_EMAIL_SENT: '1000000',
}

async function startTheirs(databaseUrl: string): Promise<Started> {
  const port = await findFreePort()
  const database = new URL(databaseUrl)
  database.pathname = '/supabase'
  const admin = new PostgresClient({ connectionString: databaseUrl })
  await admin.connect()
  await admin.query('create database supabase')
  await admin.end()
  const own = new PostgresClient({ connectionString: database.href })
  await own.connect()
  // As its installation expects them.
  await own.query(`create schema auth; do $$ begin
    create role postgres; exception when duplicate_object then null; end $$`)
  await own.end()
  database.searchParams.set('search_path', 'auth')
  const names = Object.entries(UNLIMITED).map(([name, value]) => [
    name.replace('AUTH', 'GOTRUE'),
    value,
  ])
  const env = {
    ...Object.fromEntries(names),
    GOTRUE_JWT_SECRET: SECRET,
    GOTRUE_JWT_EXP: '3600',
    GOTRUE_JWT_AUD: 'authenticated',
    GOTRUE_DB_DRIVER: 'postgres',
    DB_NAMESPACE: 'auth',
    DATABASE_URL: database.href,
    GOTRUE_DB_MIGRATIONS_PATH: resolve(PEER, 'migrations'),
    GOTRUE_LOG_LEVEL: 'warn',
    API_EXTERNAL_URL: urlOf(port),
    GOTRUE_SITE_URL: urlOf(port),
    PORT: `${port}`,
    GOTRUE_API_HOST: '127.0.0.1',
    GOTRUE_MAILER_AUTOCONFIRM: 'true',
    // As many as connections of the load: its default keeps two and opens the others anew.
    GOTRUE_DB_MAX_POOL_SIZE: '20',
    GOTRUE_DB_MAX_IDLE_POOL_SIZE: '20',
  }
  const program = resolve(PEER, 'auth')
  await promisify(execFile)(program, ['migrate'], { env: { ...process.env, ...env }, cwd: PEER })
  return { child: spawnQuiet(program, ['serve'], env, PEER), url: urlOf(port) }
}

function spawnQuiet(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  cwd?: string,
): ChildProcess {
  return spawn(program, args, {
    env: { ...process.env, ...env },
    cwd,
    // One of them reports each request there.
    stdio: 'ignore',
  })
}

function urlOf(port: number): string {
  return `http://127.0.0.1:${port}`
}
