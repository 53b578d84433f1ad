import { createHash } from 'node:crypto'
import type { Writable } from 'node:stream'

import type { Redis } from 'ioredis'

import { QUEUE_REDIS_SETTING } from '#shared/config/queue-redis.ts'
import type { Logger } from '#shared/logger.ts'

import {
  type ClientOptions,
  createRedis,
  describeRedis,
  explain,
  isCluster,
  mastersOf,
  onConnection,
  reasonOf,
} from './redis-client.ts'
import { limitCommands, readBeforeClosing } from './redis-timeouts.ts'

/** The purpose of a connection, which decides how it behaves while Redis is unavailable. */
type ConnectionRole = 'producer' | 'reader' | 'worker' | 'replies'

/** Longer than any command or BLOCK: a socket that is silent for this long is dead. */
const SILENCE_MS = 2500
const RECONNECT_DELAY_MS_MAX = 250
const LOG_INTERVAL_MS = 5000

interface Role {
  readonly options: ClientOptions
  readonly commandTimeoutMs?: number
}

const ROLES: Record<ConnectionRole, Role> = {
  // An HTTP request must fail at once when Redis is unreachable.
  producer: {
    options: { enableOfflineQueue: false, maxRetriesPerRequest: 1 },
    commandTimeoutMs: 2000,
  },
  // Longer than any BLOCK, so that only a dead socket meets it.
  reader: { options: { maxRetriesPerRequest: null }, commandTimeoutMs: 5000 },
  // BullMQ requires null: its commands wait for the connection to return.
  worker: { options: { maxRetriesPerRequest: null } },
  replies: { options: { maxRetriesPerRequest: null } },
}

/** A connection that may not be usable yet. */
interface Connecting {
  readonly redis: Redis
  /** Resolves when it is usable; rejects with the reason when that takes too long. */
  ready(timeoutMs: number): Promise<void>
}

/** Opens a connection and waits until it is usable. Throws when Redis does not answer in time. */
export async function openRedis(
  url: string,
  role: ConnectionRole,
  log: Logger,
  timeoutMs = 10_000,
): Promise<Redis> {
  const { redis, ready } = connectRedis(url, role, log)
  await ready(timeoutMs).catch((error: unknown) => {
    redis.disconnect()
    throw error
  })
  return redis
}

/** Begins a connection. `setting` is named in messages. */
function connectRedis(
  url: string,
  role: ConnectionRole,
  log: Logger,
  setting = 'REDIS_URL',
): Connecting {
  const { options, commandTimeoutMs } = ROLES[role]
  const redis = createRedis(url, {
    ...options,
    // Subscribers resubscribe themselves: see `listenForCancels`.
    autoResubscribe: false,
    // A peer that vanished without closing leaves a socket that appears open for a quarter of an
    // hour.
    socketTimeout: SILENCE_MS,
    retryStrategy: (attempt) => Math.min(attempt * 25, RECONNECT_DELAY_MS_MAX),
    // After a failover the old address answers READONLY until the client reconnects.
    reconnectOnError: (error) => (/^(READONLY|UNBLOCKED|LOADING)/.test(error.message) ? 2 : false),
  })
  readBeforeClosing(redis)
  if (commandTimeoutMs !== undefined) limitCommands(redis, commandTimeoutMs)
  // The reply writer batches its frames and sends them before other commands of the same turn.
  if (role !== 'replies') onConnection(redis, ({ stream }) => joinWrites(stream))
  let loggedAt = 0
  let reason = 'no connection'
  // Without a listener an error event would end the process; one line per outage is enough.
  const onError = (error: Error): void => {
    reason = reasonOf(error)
    if (Date.now() - loggedAt < LOG_INTERVAL_MS) return
    loggedAt = Date.now()
    log.warn({ operation: 'redis.connect', role, reason }, `redis is unreachable: check ${setting}`)
  }
  redis.on('error', onError).on('node error', onError)
  const ready = (timeoutMs: number): Promise<void> =>
    whenReady(redis, timeoutMs).catch(async () => {
      reason = await explain(url, reason)
      throw new Error(
        `Redis at ${describeRedis(url)} did not answer within ${timeoutMs} ms (${reason}): check ${setting}`,
      )
    })
  return { redis, ready }
}

/**
 * Sends the commands of one turn of the event loop in one write per socket. A system call for each,
 * which wakes the other side, costs more than most commands. Code that awaits `setImmediate` after
 * a command continues after the command was sent.
 */
function joinWrites(stream: Pick<Writable, 'cork' | 'uncork' | 'write'>): void {
  const write = stream.write.bind(stream) as Writable['write']
  let isCorked = false
  const uncork = (): void => {
    isCorked = false
    stream.uncork()
  }
  const writeJoined = (...args: Parameters<Writable['write']>): boolean => {
    if (!isCorked) {
      isCorked = true
      stream.cork()
      setImmediate(uncork)
    }
    return write(...args)
  }
  stream.write = writeJoined as Writable['write']
}

function whenReady(redis: Redis, timeoutMs: number): Promise<void> {
  if (redis.status === 'ready') return Promise.resolve()
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('not ready')), timeoutMs)
    redis.once('ready', () => {
      clearTimeout(timer)
      resolve()
    })
  })
}

/** A Redis that does not answer for this long is used as soon as it does. */
const AWAY_MS = 2000

/**
 * Begins the connections to a Redis with the queues of some models. If it answers, it is checked as
 * `checkRedis` does; if it is away, a warning is logged, and they are usable later.
 */
export async function connectQueueRedis<const Roles extends readonly ConnectionRole[]>(
  url: string,
  roles: Roles,
  log: Logger,
): Promise<{ [Index in keyof Roles]: Redis }> {
  const connecting = roles.map((role) => connectRedis(url, role, log, QUEUE_REDIS_SETTING))
  const clients = connecting.map(({ redis }) => redis)
  const isReady = await Promise.all(connecting.map(({ ready }) => ready(AWAY_MS))).then(
    () => true,
    (error: Error) => {
      log.warn({ operation: 'redis.connect', reason: error.message }, 'its queues must wait')
      return false
    },
  )
  try {
    const [first] = clients
    if (isReady && first !== undefined) await checkRedis(first, QUEUE_REDIS_SETTING)
  } catch (error) {
    for (const client of clients) client.disconnect()
    throw error
  }
  return clients as { [Index in keyof Roles]: Redis }
}

/** Refuses a Redis that is too old, may drop jobs, or cannot be written; `setting` names it. */
export async function checkRedis(redis: Redis, setting = 'REDIS_URL'): Promise<void> {
  const isOfCluster = isCluster(redis)
  const checks = mastersOf(redis).map((server) => checkServer(server, { isOfCluster, setting }))
  await Promise.all(checks)
}

async function checkServer(
  redis: Redis,
  { isOfCluster, setting }: { readonly isOfCluster: boolean; readonly setting: string },
): Promise<void> {
  const info = await redis.info()
  const version = /^redis_version:(\d+)\.(\d+)/m.exec(info)
  const [major, minor] = [Number(version?.[1] ?? 0), Number(version?.[2] ?? 0)]
  if (major < 6 || (major === 6 && minor < 2)) {
    throw new Error(`Redis ${major}.${minor} is too old: 6.2 or newer is needed`)
  }
  if (/^cluster_enabled:1/m.test(info) && !isOfCluster) {
    throw new Error(
      `Redis runs in cluster mode: name it as redis+cluster://host:port in ${setting}`,
    )
  }
  if (/^role:slave/m.test(info) && !isOfCluster) {
    throw new Error(`Redis is a read-only replica: name the primary in ${setting}`)
  }
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1]
  if (policy !== undefined && policy !== 'noeviction') {
    throw new Error(
      `Redis has maxmemory-policy ${policy}, which may drop jobs: set it to noeviction`,
    )
  }
}

/** A Lua script. Its hash is sent instead of its text once the server has it. */
export interface Script {
  readonly text: string
  readonly sha: string
}

/** Names a Lua script by its hash. */
export function defineScript(text: string): Script {
  return { text, sha: createHash('sha1').update(text).digest('hex') }
}

/** Runs a script and loads it first when the server does not have it. */
export async function runScript(
  redis: Redis,
  { text, sha }: Script,
  keys: readonly string[],
  args: readonly (string | number)[],
): Promise<unknown> {
  try {
    return await redis.evalsha(sha, keys.length, ...keys, ...args)
  } catch (error) {
    if (!(error instanceof Error) || !error.message.startsWith('NOSCRIPT')) throw error
    return redis.eval(text, keys.length, ...keys, ...args)
  }
}
