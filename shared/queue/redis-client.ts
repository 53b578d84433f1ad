import { connect } from 'node:net'

import { Cluster, Redis, type RedisOptions } from 'ioredis'

import { parseRedisUrl, type RedisTarget } from '#shared/config/redis-url.ts'

export type ClientOptions = Omit<RedisOptions, 'replyMapping'>

type SentinelTarget = Extract<RedisTarget, { readonly kind: 'sentinel' }>

const CONNECT_TIMEOUT_MS = 2000
/**
 * The interval at which a client of a cluster asks where the slots are, in case it missed a
 * redirection.
 */
const SLOTS_REFRESH_MS = 5000

/**
 * Makes a client of the server, of the master that Sentinel names, or of the cluster. A client of a
 * cluster has the same commands; the keys of one command, script or pipeline must share a slot.
 */
export function createRedis(url: string, options: ClientOptions): Redis {
  const target = parseRedisUrl(url)
  const common = { connectTimeout: CONNECT_TIMEOUT_MS, ...options }
  switch (target.kind) {
    case 'server':
      return new Redis(target.url, common)
    case 'sentinel':
      return new Redis({ ...common, ...sentinelOptions(target, options) })
    case 'cluster':
      return createCluster(target, common)
  }
}

/** Connects once; the first failure rejects with its reason. */
export async function probeRedis(url: string): Promise<void> {
  const redis = createRedis(url, {
    lazyConnect: true,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
  })
  let reason: string | undefined
  const keepReason = (error: Error): void => {
    reason ??= reasonOf(error)
  }
  redis.on('error', keepReason).on('node error', keepReason).on('sentinelError', keepReason)
  try {
    await redis.connect()
    await redis.ping()
  } catch (error) {
    throw new Error(await explain(url, reason ?? reasonOf(error as Error)), { cause: error })
  } finally {
    redis.disconnect()
  }
}

/**
 * Explains why no connection can be opened. The client reports of sentinels only that none answers,
 * and of a server without TLS, or in protected mode, only that it closed the connection.
 */
export async function explain(url: string, reason: string): Promise<string> {
  const target = parseRedisUrl(url)
  if (target.kind !== 'sentinel') {
    const { nodes, isTls } = nodesOf(target)
    const answers = await Promise.all(nodes.map(answerOf))
    if (isTls) return answers.some((answer) => /^[+-]/.test(answer)) ? NO_TLS : reason
    return answers.some((answer) => answer.startsWith('-DENIED')) ? PROTECTED : reason
  }
  const answers = await Promise.all(target.sentinels.map((node) => askSentinel(target, node)))
  // If a sentinel knows the master, the failure is the master's.
  if (answers.includes(undefined)) return reason
  return [...new Set(answers)].join('; ')
}

const NO_TLS = 'it does not speak TLS: write redis instead of rediss'
const PROTECTED = 'it is in protected mode: give it a password, or set protected-mode to no'

interface Node {
  readonly host: string
  readonly port: number
}

/** The servers of a URL, and whether it asks for TLS. */
function nodesOf(target: Exclude<RedisTarget, SentinelTarget>): {
  readonly nodes: readonly Node[]
  readonly isTls: boolean
} {
  if (target.kind === 'cluster') return target
  // The path of a socket, which other machines cannot reach.
  if (target.url.startsWith('/')) return { nodes: [], isTls: false }
  const { protocol, hostname, port } = new URL(target.url)
  const node = { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || 6379) }
  return { nodes: [node], isTls: protocol === 'rediss:' }
}

/** The answer of a server to a command without TLS; empty if none. */
function answerOf({ host, port }: Node): Promise<string> {
  const socket = connect({ host, port, timeout: CONNECT_TIMEOUT_MS })
  socket.on('connect', () => socket.write('PING\r\n'))
  return new Promise<string>((resolve) => {
    socket.once('data', (answer) => resolve(answer.toString('latin1')))
    for (const end of ['error', 'timeout', 'close']) socket.once(end, () => resolve(''))
  }).finally(() => socket.destroy())
}

/** The fault of a sentinel; undefined when it names a master. */
async function askSentinel(
  target: SentinelTarget,
  { host, port }: SentinelTarget['sentinels'][number],
): Promise<string | undefined> {
  const sentinel = new Redis({
    host,
    port,
    ...target.sentinelCredentials,
    ...(target.isTls && { tls: {} }),
    lazyConnect: true,
    enableReadyCheck: false,
    maxRetriesPerRequest: 0,
    connectTimeout: CONNECT_TIMEOUT_MS,
    commandTimeout: CONNECT_TIMEOUT_MS,
    retryStrategy: () => null,
  })
  let reason: string | undefined
  sentinel.on('error', (error: Error) => {
    reason ??= error.message
  })
  try {
    await sentinel.connect()
    const found = await sentinel.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', target.masterName)
    return found === null ? `the sentinels know no master "${target.masterName}"` : undefined
  } catch (error) {
    return reason ?? (error as Error).message
  } finally {
    sentinel.disconnect()
  }
}

/** The servers of a URL, without credentials. */
export function describeRedis(url: string): string {
  const target = parseRedisUrl(url)
  const list = (nodes: readonly { readonly host: string; readonly port: number }[]): string =>
    nodes.map(({ host, port }) => `${host}:${port}`).join(', ')
  switch (target.kind) {
    case 'server': {
      if (target.url.startsWith('/')) return target.url
      const { hostname, port } = new URL(target.url)
      return `${hostname}:${port || 6379}`
    }
    case 'sentinel':
      return `master ${target.masterName} of ${list(target.sentinels)}`
    case 'cluster':
      return `cluster ${list(target.nodes)}`
  }
}

/** The servers that take writes: one, or the masters of a cluster. */
export function mastersOf(redis: Redis): readonly Redis[] {
  const client: unknown = redis
  return client instanceof Cluster ? client.nodes('master') : [redis]
}

/** Calls back for the client of every server: the client itself, or those of a cluster. */
export function onServer(redis: Redis, listener: (server: Redis) => void): void {
  if (isCluster(redis)) redis.on('+node', listener)
  else listener(redis)
}

/** Calls back for every connection that the client opens to a server. */
export function onConnection(redis: Redis, listener: (server: Redis) => void): void {
  onServer(redis, (server) => server.on('connect', () => listener(server)))
}

/** Whether the client is connected to a cluster, where commands go to several servers. */
export function isCluster(redis: Redis): boolean {
  return (redis as unknown) instanceof Cluster
}

/** The error message of the server that refused the connection. */
export function reasonOf(error: Error): string {
  const { lastNodeError } = error as Error & { readonly lastNodeError?: Error }
  return lastNodeError?.message ?? error.message
}

function sentinelOptions(target: SentinelTarget, { retryStrategy }: ClientOptions): ClientOptions {
  const { credentials, sentinelCredentials, isTls } = target
  return {
    sentinels: target.sentinels.map(({ host, port }) => ({ host, port })),
    name: target.masterName,
    db: target.db,
    ...credentials,
    ...(sentinelCredentials.username !== undefined && {
      sentinelUsername: sentinelCredentials.username,
    }),
    ...(sentinelCredentials.password !== undefined && {
      sentinelPassword: sentinelCredentials.password,
    }),
    sentinelCommandTimeout: CONNECT_TIMEOUT_MS,
    // Applies while no sentinel answers; null ends the attempts, as for the client itself.
    sentinelRetryStrategy: (attempt) => retryStrategy?.(attempt) ?? null,
    ...(isTls && { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true }),
  }
}

function createCluster(
  { nodes, credentials, isTls }: Extract<RedisTarget, { readonly kind: 'cluster' }>,
  { retryStrategy, enableOfflineQueue, lazyConnect, ...options }: ClientOptions,
): Redis {
  const cluster = new Cluster(
    nodes.map(({ host, port }) => ({ host, port })),
    {
      redisOptions: { ...options, ...credentials, ...(isTls && { tls: {} }) },
      // Names are not resolved here, because certificates contain them.
      dnsLookup: (address, callback) => callback(null, address),
      clusterRetryStrategy: (attempt) => retryStrategy?.(attempt) ?? null,
      slotsRefreshInterval: SLOTS_REFRESH_MS,
      // Commands that wait for a connection on a single server wait for a failover in a cluster, a
      // tenth of a second per attempt.
      ...(options.maxRetriesPerRequest === null && { maxRedirections: 10_000 }),
      ...(enableOfflineQueue !== undefined && { enableOfflineQueue }),
      ...(lazyConnect !== undefined && { lazyConnect }),
    },
  )
  // A cluster has the commands and events of a single client; this code uses no other members.
  return cluster as unknown as Redis
}
