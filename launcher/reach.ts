import { type Config, type Env, loadConfig } from '#shared/config/config.ts'
import type { DatabaseConfig, InfraConfig, StorageConfig } from '#shared/config/infra.ts'
import { QUEUE_REDIS_SETTING } from '#shared/config/queue-redis.ts'
import { type Database, openDatabase } from '#shared/db/client.ts'
import { ping } from '#shared/db/hosts.ts'
import { createLogger } from '#shared/logger.ts'
import { checkRedis, openRedis } from '#shared/queue/connection.ts'
import { probeRedis } from '#shared/queue/redis-client.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'

import { waitUntil } from './embedded/child.ts'

const REDIS_TIMEOUT_MS = 5000

/**
 * Opens the database for a command. Throws one sentence that names the setting if it does not
 * answer.
 */
export async function openReachableDatabase(config: DatabaseConfig): Promise<Database> {
  const database = openDatabase({ ...config, logger: createLogger({ level: 'error' }) })
  try {
    await ping(database.pool)
    return database
  } catch (error) {
    await database.close()
    throw new Error(`Postgres cannot be used: ${(error as Error).message}; check DATABASE_URL`)
  }
}

/** Fails unless Redis answers within a few seconds, is new enough and evicts nothing. */
export async function reachRedis(
  { redisUrl }: Pick<InfraConfig, 'redisUrl'>,
  setting = 'REDIS_URL',
): Promise<void> {
  await waitUntil(() => greetRedis(redisUrl, setting), { timeoutMs: REDIS_TIMEOUT_MS })
  const redis = await openRedis(redisUrl, 'producer', createLogger({ level: 'silent' }))
  try {
    await checkRedis(redis, setting)
  } finally {
    redis.disconnect()
  }
}

// The connections of the tiers retry; this one reports the error at once.
async function greetRedis(url: string, setting: string): Promise<void> {
  await probeRedis(url).catch((error: Error) => {
    throw new Error(`Redis cannot be used: ${error.message}; check ${setting}`)
  })
}

/** Does the same for every Redis with queues beside that of `REDIS_URL`; returns their number. */
export async function reachQueueRedis({
  queueRedis: [, ...further],
}: Pick<InfraConfig, 'queueRedis'>): Promise<number> {
  await Promise.all(further.map((each) => reachRedis(each, QUEUE_REDIS_SETTING)))
  return further.length
}

/** Fails unless the object storage answers and has the bucket. */
export async function reachStorage(storage: StorageConfig): Promise<void> {
  const store = await openObjectStore(storage)
  try {
    await store.check()
  } catch (error) {
    throw new Error(`The object storage cannot be used: ${(error as Error).message}`)
  } finally {
    store.close()
  }
}

/**
 * Checks all configured services and throws one error with every problem, where a tier would report
 * them one after another.
 */
export async function reachWhatIsGiven(env: Env, config: Config): Promise<void> {
  const { infra, database } = config
  const outcomes = await Promise.allSettled([
    env.REDIS_URL === undefined ? undefined : reachRedis(infra),
    reachQueueRedis(infra),
    (env.AUTH_DB_DATABASE_URL ?? env.DATABASE_URL) === undefined
      ? undefined
      : openReachableDatabase(database).then((opened) => opened.close()),
    infra.storage.driver === 's3' ? reachStorage(infra.storage) : undefined,
  ])
  const faults = outcomes.flatMap((outcome) =>
    outcome.status === 'rejected' ? [(outcome.reason as Error).message] : [],
  )
  if (faults.length > 0) throw new Error(faults.join('\n'))
}

/**
 * Names the setting when a process cannot start because of its database. A refused connection has
 * errors of many kinds (network, TLS, authentication), so the database itself is asked.
 */
export async function blameDatabase(env: Env, error: unknown): Promise<never> {
  const database = await openReachableDatabase(loadConfig(env).config.database)
  await database.close()
  throw error
}
