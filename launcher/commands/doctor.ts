import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { statfs } from 'node:fs/promises'
import { createConnection } from 'node:net'
import { resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { findFreePort } from '#launcher/embedded/child.ts'
import { reachQueueRedis, reachRedis, reachStorage } from '#launcher/reach.ts'
import { withRunningInstallation } from '#launcher/running.ts'
import { checkSettings, readSettings } from '#launcher/tier-env.ts'
import { systemClock } from '#shared/clock.ts'
import { type Config, type Env, loadConfig } from '#shared/config/config.ts'
import { QUEUE_REDIS_SETTING } from '#shared/config/queue-redis.ts'
import { openDatabase } from '#shared/db/client.ts'
import { openListReads } from '#shared/db/replica.ts'
import { authTables } from '#shared/db/schema/auth.ts'
import { findShipped, loadCatalogue } from '#shared/load-catalogue.ts'
import { createLogger, type Logger } from '#shared/logger.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'

import { hasTier } from './models.ts'

/** One check: it returns its finding, or throws an error that states the problem. */
interface Check {
  readonly name: string
  /** Settings that name external services; without them `millrace up` starts embedded ones. */
  readonly settings?: readonly string[]
  readonly remedy: string
  /** The tier whose image contains the files of this check; absent if both do. */
  readonly tier?: 'api' | 'workers'
  run(config: Config, log: Logger): Promise<string>
}

const FREE_BYTES_MIN = 1024 ** 3
const CLOCK_SKEW_MS_MAX = 5000
const REPLICA_CHECK_MS = 5000
const DATABASE_SETTINGS = ['AUTH_DB_DATABASE_URL', 'DATABASE_URL']

const CHECKS: readonly Check[] = [
  {
    name: 'Redis',
    settings: ['REDIS_URL'],
    remedy: 'check REDIS_URL; set maxmemory-policy to noeviction',
    run: checkRedisServer,
  },
  {
    name: 'Redis of single queues',
    settings: [QUEUE_REDIS_SETTING],
    remedy: `check ${QUEUE_REDIS_SETTING}; set maxmemory-policy to noeviction`,
    run: checkQueueRedis,
  },
  {
    name: 'Postgres',
    settings: DATABASE_SETTINGS,
    remedy: 'check DATABASE_URL and that the user may create tables',
    run: checkPostgres,
  },
  {
    name: 'Read replica',
    settings: ['DATABASE_REPLICA_URL'],
    remedy: 'check DATABASE_REPLICA_URL and the replication from the primary',
    run: checkReplica,
  },
  {
    name: 'Clock',
    settings: DATABASE_SETTINGS,
    remedy: 'synchronize the clocks of this machine and the database (NTP)',
    run: checkClock,
  },
  {
    name: 'Storage',
    remedy:
      'check S3_ENDPOINT, S3_BUCKET and that the keys may read, write and delete; without S3, that ' +
      'MILLRACE_DATA_DIR is writable',
    run: checkStorage,
  },
  { name: 'Disk', remedy: 'free some space below MILLRACE_DATA_DIR', run: checkDisk },
  {
    name: 'Port',
    remedy: 'stop the process that listens there, or set PORT',
    run: checkPort,
  },
  {
    name: 'Mail',
    settings: ['AUTH_SMTP_HOST'],
    remedy: 'check AUTH_SMTP_HOST and AUTH_SMTP_PORT',
    run: checkMail,
  },
  {
    name: 'Messages',
    tier: 'api',
    settings: DATABASE_SETTINGS,
    remedy: 'check the settings AUTH_SMTP_* and AUTH_SMS_*; the log of the API names each failure',
    run: checkOutbox,
  },
  {
    name: 'Models',
    tier: 'workers',
    remedy: 'restore the files of the model, or run `millrace models pull`',
    run: checkModels,
  },
  {
    name: 'ONNX Runtime',
    tier: 'workers',
    remedy: 'install the dependencies again; glibc and a supported platform are needed',
    run: checkRuntime,
  },
]

/**
 * `millrace doctor`: runs every check and ends with status 1 when one fails. Before the first start
 * it checks the requirements of a start.
 */
export async function doctor(given: Env): Promise<void> {
  const running = await withRunningInstallation(given).catch(() => undefined)
  const env = running ?? readSettings(given)
  const config = running === undefined ? settingsToStart(env) : checkedSettings(env)
  const log = createLogger({ level: 'silent' })
  let failures = 0
  for (const { name, settings, remedy, tier, run } of CHECKS) {
    if (tier !== undefined && !hasTier(tier)) {
      console.log(`-  ${name}: checked in the image of ${tier === 'api' ? 'the API' : 'a worker'}`)
      continue
    }
    if (running === undefined && settings?.every((setting) => env[setting] === undefined)) {
      console.log(`-  ${name}: none is set; \`npm start\` starts its own`)
      continue
    }
    try {
      console.log(`✓  ${name}: ${await run(config, log)}`)
    } catch (error) {
      failures += 1
      console.log(`✗  ${name}: ${(error as Error).message}\n   → ${remedy}`)
    }
  }
  if (failures > 0) throw new Error(`${failures} check(s) failed`)
}

function settingsToStart(env: Env): Config {
  return checkSettings(env, env.MILLRACE_DATA_DIR ?? '.data')
}

function checkedSettings(env: Env): Config {
  const { config, warnings } = loadConfig(env)
  for (const warning of warnings) console.log(`?  ${warning}`)
  return config
}

async function checkRedisServer({ infra }: Config): Promise<string> {
  await reachRedis(infra)
  return 'new enough, and nothing is evicted'
}

async function checkQueueRedis({ infra }: Config): Promise<string> {
  const count = await reachQueueRedis(infra)
  return count === 0 ? 'all queues are in REDIS_URL' : `${count} usable`
}

async function checkPostgres(config: Config, logger: Logger): Promise<string> {
  return queryOne(config, logger, 'select version() as found')
}

/** A replica that is being written to shows its lag at the second check. */
async function checkReplica({ database: settings }: Config, logger: Logger): Promise<string> {
  const { replicaUrl, maxPoolSize, replicaLagSecondsMax: lagSecondsMax } = settings
  if (replicaUrl === '') return 'none is named; the primary serves lists'
  const primary = openDatabase({ ...settings, logger })
  const { replica, close } = openListReads({
    primary,
    replicaUrl,
    maxPoolSize,
    lagSecondsMax,
    logger,
    clock: systemClock,
  })
  try {
    const untilMs = systemClock.monotonic() + REPLICA_CHECK_MS
    while (replica?.fault !== undefined && systemClock.monotonic() < untilMs) await sleep(200)
    if (replica?.fault !== undefined) throw replica.fault
    return `at most ${lagSecondsMax} s behind, serves lists`
  } finally {
    await close()
    await primary.close()
  }
}

async function checkClock(config: Config, logger: Logger): Promise<string> {
  const theirs = Number(
    await queryOne(config, logger, 'select extract(epoch from clock_timestamp()) * 1000 as found'),
  )
  const skewMs = Math.abs(Date.now() - theirs)
  if (skewMs > CLOCK_SKEW_MS_MAX)
    throw new Error(`${Math.round(skewMs / 1000)} s off the database's`)
  return "agrees with the database's"
}

async function queryOne(config: Config, logger: Logger, query: string): Promise<string> {
  const database = openDatabase({ ...config.database, logger })
  try {
    const { rows } = await database.pool.query<{ found: unknown }>(query)
    return String(rows[0]?.found)
  } finally {
    await database.close()
  }
}

async function checkStorage(config: Config): Promise<string> {
  await reachStorage(config.infra.storage)
  const store = await openObjectStore(config.infra.storage)
  const key = `doctor/${randomUUID()}`
  try {
    await store.put(key, Buffer.from('ok'))
    await store.delete(key)
    return `${config.infra.storage.driver}: may write and delete`
  } finally {
    store.close()
  }
}

async function checkDisk(config: Config): Promise<string> {
  const { bavail, bsize } = await statfs(resolve(config.infra.dataDir)).catch(() => statfs('.'))
  const free = `${(Number(bavail * bsize) / 1024 ** 3).toFixed(1)} GiB free`
  if (bavail * bsize < FREE_BYTES_MIN) throw new Error(free)
  return free
}

async function checkPort({ server }: Config): Promise<string> {
  const { port } = server
  if ((await findFreePort(port)) === port) return `${port} is free`
  const signal = AbortSignal.timeout(5000)
  const answer = await fetch(`http://127.0.0.1:${port}/readyz`, { signal }).catch(() => undefined)
  const { status } = ((await answer?.json().catch(() => ({}))) ?? {}) as { status?: unknown }
  if (status === 'ready' || status === 'degraded') {
    return `Millrace answers on ${port} and is ${status}`
  }
  throw new Error(`${port} is taken`)
}

async function checkMail({ auth }: Config): Promise<string> {
  const { host, port } = auth.smtp
  const socket = createConnection({ host, port, timeout: 5000 })
  try {
    const [greeting] = (await once(socket, 'data', { signal: AbortSignal.timeout(5000) })) as [
      Buffer,
    ]
    if (!greeting.toString().startsWith('220'))
      throw new Error(`${host}:${port} does not speak SMTP`)
    return `${host}:${port} answers`
  } finally {
    socket.destroy()
  }
}

async function checkOutbox({ database: settings }: Config, logger: Logger): Promise<string> {
  const { readOutboxState } = await import('#api/auth/delivery/outbox.ts')
  const database = openDatabase({ ...settings, logger })
  try {
    const tables = authTables(settings.tablePrefix)
    const { waiting, failing, lastError } = await readOutboxState({ db: database.db, tables })
    if (failing > 0) {
      throw new Error(`${failing} of ${waiting} waiting messages were not delivered: ${lastError}`)
    }
    return `${waiting} wait for delivery, none has failed`
  } catch (error) {
    if (isMissingTable(error)) return 'the outbox is not there before the first start'
    throw error
  } finally {
    await database.close()
  }
}

function isMissingTable(error: unknown): boolean {
  const { code } = ((error as Error).cause ?? error) as { readonly code?: unknown }
  return code === '42P01'
}

async function checkModels({ inference }: Config): Promise<string> {
  const { verifyFolder } = await import('#workers/models/manifest.ts')
  const { models } = await loadCatalogue(inference.catalogueFile)
  const folders = models.filter(({ source }) => !/^(hub|s3):/.test(source))
  for (const { source } of folders) await verifyFolder(findShipped(source))
  return `${folders.length} of ${models.length} are here and undamaged`
}

async function checkRuntime(): Promise<string> {
  const { openRuntime } = await import('#workers/runtime/runtime.ts')
  const runtime = openRuntime()
  const { version, providers } = runtime
  await runtime.close()
  return `${version}, built for ${providers.join(', ')}`
}
