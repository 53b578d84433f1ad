import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Redis } from 'ioredis'

import { findFreePort } from '#launcher/embedded/child.ts'

import { makeCertificates } from './certificates.ts'
import { eventually } from './queue.ts'

/** The passwords of the data nodes and of the sentinels, both of which require one. */
const PASSWORD = 'data-secret'
const SENTINEL_PASSWORD = 'sentinel-secret'
/** How long a server must be silent before its replica takes over. */
const DOWN_AFTER_MS = 700

/** Redis servers that take over from each other. */
export interface RedisTopology {
  /** A `REDIS_URL` that survives the loss of a server. */
  readonly url: string
  /** Kills the server that takes the writes for a key; its replica takes over. */
  killMaster(key: string): Promise<void>
  /** The certificates that clients must trust. */
  readonly caFile?: string
  close(): Promise<void>
}

/** A process of redis-server. */
interface Server {
  readonly port: number
  readonly child: ChildProcess
  kill(): Promise<void>
}

/** Starts a master, a replica and three sentinels, all of which ask for a password. */
export async function startSentinels(
  options: { readonly isTls?: boolean } = {},
): Promise<RedisTopology> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-sentinels-'))
  const tls = options.isTls === true ? redisCertificates(folder) : undefined
  const servers: Server[] = []
  const start = async (lines: readonly string[], args: readonly string[] = []) => {
    const server = await startServer(folder, [...lines, ...(tls?.lines ?? [])], {
      args,
      isTls: tls !== undefined,
    })
    servers.push(server)
    return server
  }
  const data = [`requirepass ${PASSWORD}`, `masterauth ${PASSWORD}`]
  const master = await start(data)
  const replica = await start([...data, `replicaof 127.0.0.1 ${master.port}`])
  const connect = (port: number, password: string) => connectTo(port, password, tls?.ca)
  await waitFor(connect(replica.port, PASSWORD), async (redis) =>
    /master_link_status:up/.test(await redis.info('replication')),
  )
  const sentinels: Server[] = []
  for (let count = 0; count < 3; count += 1) {
    const lines = [
      `sentinel monitor mymaster 127.0.0.1 ${master.port} 2`,
      `sentinel auth-pass mymaster ${PASSWORD}`,
      `sentinel down-after-milliseconds mymaster ${DOWN_AFTER_MS}`,
      'sentinel failover-timeout mymaster 3000',
      `requirepass ${SENTINEL_PASSWORD}`,
    ]
    sentinels.push(await start(lines, ['--sentinel']))
  }
  for (const { port } of sentinels) {
    await waitFor(connect(port, SENTINEL_PASSWORD), async (redis) => {
      const [others, replicas] = await Promise.all([
        redis.call('SENTINEL', 'SENTINELS', 'mymaster'),
        redis.call('SENTINEL', 'REPLICAS', 'mymaster'),
      ])
      return (others as unknown[]).length === 2 && (replicas as unknown[]).length === 1
    })
  }
  const hosts = sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')
  const scheme = tls === undefined ? 'redis+sentinel' : 'rediss+sentinel'
  return {
    url: `${scheme}://:${PASSWORD}@${hosts}/mymaster?sentinel_password=${SENTINEL_PASSWORD}`,
    ...(tls !== undefined && { caFile: tls.caFile }),
    killMaster: () => master.kill(),
    async close() {
      await Promise.all(servers.map((server) => server.kill()))
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Three shards of one master and one replica, each of which can lose its master once. */
interface RedisCluster extends RedisTopology {
  /** Whether each of the keys has a shard of its own. */
  areApart(keys: readonly string[]): Promise<boolean>
}

/** Starts a cluster of three masters with a replica each. */
export async function startCluster(): Promise<RedisCluster> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-cluster-'))
  const lines = ['cluster-enabled yes', 'cluster-node-timeout 1000', `requirepass ${PASSWORD}`]
  const connect = (port: number) => connectTo(port, PASSWORD)
  const servers = await Promise.all(
    Array.from({ length: 6 }, async () => {
      const own = [`masterauth ${PASSWORD}`, `cluster-port ${await findFreePort()}`]
      const server = await startServer(folder, [...lines, ...own], { args: [], isTls: false })
      await waitFor(connect(server.port), async (redis) => (await redis.ping()) === 'PONG')
      return server
    }),
  )
  const addresses = servers.map(({ port }) => `127.0.0.1:${port}`)
  const auth = ['-a', PASSWORD, '--no-auth-warning']
  const made = spawnSync(
    'redis-cli',
    [...auth, '--cluster', 'create', ...addresses, '--cluster-replicas', '1', '--cluster-yes'],
    { encoding: 'utf8' },
  )
  if (made.status !== 0) throw new Error(`no cluster: ${made.stdout}${made.stderr}`)
  for (const { port } of servers) {
    await waitFor(connect(port), async (redis) => {
      const [state, nodes] = [await redis.cluster('INFO'), await redis.cluster('SLOTS')]
      const areReplicated = (nodes as unknown[][]).every((slots) => slots.length === 4)
      // A replica that never reached its master is not promoted.
      const isLinked = /role:master|master_link_status:up/.test(await redis.info('replication'))
      return state.includes('cluster_state:ok') && areReplicated && isLinked
    })
  }
  const masterOf = async (key: string): Promise<Server | undefined> => {
    const living = servers.find(({ child }) => child.signalCode === null)
    const redis = connect(living?.port ?? 0)
    const slot = await redis.cluster('KEYSLOT', key)
    const shards = await redis.cluster('SLOTS')
    redis.disconnect()
    const shard = shards.find(([from, to]) => from <= slot && slot <= to)
    const [, port] = shard?.[2] ?? []
    return servers.find((server) => server.port === port)
  }
  return {
    url: `redis+cluster://:${PASSWORD}@${addresses.slice(0, 2).join(',')}`,
    async areApart(keys) {
      return new Set(await Promise.all(keys.map(masterOf))).size === keys.length
    },
    async killMaster(key) {
      await (await masterOf(key))?.kill()
    },
    async close() {
      await Promise.all(servers.map((server) => server.kill()))
      await rm(folder, { recursive: true, force: true })
    },
  }
}

async function startServer(
  folder: string,
  lines: readonly string[],
  { args, isTls }: { readonly args: readonly string[]; readonly isTls: boolean },
): Promise<Server> {
  const port = await findFreePort()
  const dir = join(folder, String(port))
  await mkdir(dir)
  const file = join(dir, 'redis.conf')
  const listen = isTls ? ['port 0', `tls-port ${port}`] : [`port ${port}`]
  const common = ['bind 127.0.0.1', `dir ${dir}`, 'save ""', 'loglevel warning']
  await writeFile(file, [...common, ...listen, ...lines, ''].join('\n'))
  const child = spawn('redis-server', [file, ...args], { stdio: 'ignore' })
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  const killAtExit = (): void => void child.kill('SIGKILL')
  process.once('exit', killAtExit)
  return {
    port,
    child,
    async kill() {
      child.kill('SIGKILL')
      await exited
      process.off('exit', killAtExit)
    },
  }
}

function connectTo(port: number, password: string, ca?: string): Redis {
  const tls = ca === undefined ? {} : { tls: { ca } }
  return new Redis({ host: '127.0.0.1', port, password, lazyConnect: true, ...tls })
}

/** Waits until a server answers as wanted, and closes the connection. */
async function waitFor(redis: Redis, holds: (redis: Redis) => Promise<boolean>): Promise<void> {
  redis.on('error', () => {})
  try {
    await eventually(() => holds(redis).catch(() => false))
  } finally {
    redis.disconnect()
  }
}

/** An authority and a certificate, as Redis takes them. */
function redisCertificates(folder: string) {
  const { caFile, ca, certFile, keyFile } = makeCertificates(folder)
  const lines = [
    `tls-cert-file ${certFile}`,
    `tls-key-file ${keyFile}`,
    `tls-ca-cert-file ${caFile}`,
    'tls-auth-clients no',
    'tls-replication yes',
  ]
  return { caFile, ca, lines }
}
