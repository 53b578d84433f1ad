import { type ChildProcess, spawn } from 'node:child_process'
import { createWriteStream, readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { Redis } from 'ioredis'

import { findFreePort } from '#launcher/embedded/child.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { listWorkers, type WorkerHeartbeat } from '#shared/queue/liveness.ts'

import { spawnToyWorker, type ToyProcess } from './queue.ts'
import { apiEnv } from './tiers.ts'

/** Settings of an installation that offers the toy model alone. */
export async function toyCatalogue(folder: string): Promise<Record<string, string>> {
  const file = join(folder, 'toy-models.json')
  const toy = { id: 'toy', kind: 'completion', source: 'none', capabilities: ['completion'] }
  await writeFile(file, JSON.stringify({ models: [toy] }))
  return { MILLRACE_CATALOGUE: file }
}

const READY_TIMEOUT_MS = 180_000

/** One API or worker process, without anything between it and its signals. */
export interface TierProcess {
  readonly url: string
  readonly pid: number
  readonly logFile: string
  kill(signal: NodeJS.Signals): void
  /** How it ended; `atMs` is on the monotonic clock. */
  readonly exited: Promise<{ code: number | null; atMs: number }>
  isRunning(): boolean
}

/** Real processes of both tiers that a test may kill, freeze and replace. */
export interface FaultTiers {
  startApi(env?: Readonly<Record<string, string>>): Promise<TierProcess>
  startWorker(env?: Readonly<Record<string, string>>): Promise<TierProcess>
  /** Starts a worker whose answers cost nothing; see `toyCatalogue`. */
  startToyWorker(slots?: number): Promise<ToyProcess>
  /** The heartbeats of the live workers. */
  heartbeats(): Promise<WorkerHeartbeat[]>
  /** Jobs that occupy a slot, over all living workers. */
  numActive(): Promise<number>
  stop(): Promise<void>
}

/** Where tiers keep their data, and their further settings. */
export interface FaultTiersOptions {
  readonly databaseUrl: string
  readonly redisUrl: string
  readonly keyPrefix: string
  readonly folder: string
  readonly env?: Readonly<Record<string, string>>
}

/** Prepares to start processes; nothing runs yet. */
export function openFaultTiers(options: FaultTiersOptions): FaultTiers {
  const running: TierProcess[] = []
  const redis = new Redis(options.redisUrl)
  redis.on('error', () => {})
  const keys = queueKeys(options.keyPrefix)
  const toys: ToyProcess[] = []
  let count = 0
  const start = async (name: 'api' | 'worker', port: number, env: Record<string, string>) => {
    count += 1
    const logFile = join(options.folder, `${name}-${count}.log`)
    const process = spawnTier(name, { port, logFile, env: { ...env, ...options.env } })
    running.push(process)
    await whenReady(process)
    return process
  }
  const common = {
    MILLRACE_DATA_DIR: options.folder,
    MILLRACE_REDIS_PREFIX: options.keyPrefix,
    REDIS_URL: options.redisUrl,
    LOG_LEVEL: 'warn',
  }
  const heartbeats = () => listWorkers(redis, keys)
  return {
    heartbeats,
    async numActive() {
      const found = await heartbeats()
      return found.flatMap(({ queues }) => queues).reduce((sum, { active }) => sum + active, 0)
    },
    async startApi(env = {}) {
      const port = await findFreePort()
      return start('api', port, {
        ...common,
        ...apiEnv(options.databaseUrl, port),
        OTEL_EXPORTER_PROMETHEUS_PORT: '0',
        ...env,
      })
    },
    async startWorker(env = {}) {
      const port = await findFreePort()
      return start('worker', port, {
        ...common,
        MILLRACE_WORKER_METRICS_PORT: String(port),
        MILLRACE_WORKER_MODELS: 'tiny-chat',
        MILLRACE_INTRA_OP_THREADS: '1',
        ...env,
      })
    },
    async startToyWorker(slots = 16) {
      const toy = await spawnToyWorker(options.redisUrl, options.keyPrefix, slots)
      toys.push(toy)
      return toy
    },
    async stop() {
      for (const process of [...running, ...toys]) process.kill('SIGKILL')
      await Promise.all(running.map(({ exited }) => exited))
      redis.disconnect()
    },
  }
}

function spawnTier(
  name: 'api' | 'worker',
  { port, logFile, env }: { port: number; logFile: string; env: Record<string, string> },
): TierProcess {
  const script = join(import.meta.dirname, '../../launcher/cli.ts')
  const child: ChildProcess = spawn(process.execPath, [script, name], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const log = createWriteStream(logFile, { flags: 'a' })
  child.stdout?.pipe(log)
  child.stderr?.pipe(log)
  const killAtExit = (): void => void child.kill('SIGKILL')
  process.once('exit', killAtExit)
  const exited = new Promise<{ code: number | null; atMs: number }>((resolve) => {
    child.once('exit', (code) => {
      process.off('exit', killAtExit)
      resolve({ code, atMs: performance.now() })
    })
  })
  return {
    url: `http://127.0.0.1:${port}`,
    pid: child.pid ?? 0,
    logFile,
    exited,
    kill: (signal) => void child.kill(signal),
    isRunning: () => child.exitCode === null && child.signalCode === null,
  }
}

async function whenReady(tier: TierProcess): Promise<void> {
  const until = performance.now() + READY_TIMEOUT_MS
  for (;;) {
    const isReady = await fetch(`${tier.url}/readyz`).then(
      async (answer) => {
        await answer.body?.cancel()
        return answer.ok
      },
      () => false,
    )
    if (isReady) return
    if (!tier.isRunning() || performance.now() > until) {
      throw new Error(`it did not become ready: ${readFileSync(tier.logFile, 'utf8').slice(-2000)}`)
    }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}
