import { join, resolve } from 'node:path'

import type { Env } from '#shared/config/config.ts'

import { lockDataDir, loadSecrets, type Secrets } from '../data-dir.ts'
import { rememberEnvironment } from '../running.ts'
import { findFreePort, waitUntil } from '../embedded/child.ts'
import { startMailbox, type Mailbox } from '../embedded/mailbox.ts'
import { startPostgres } from '../embedded/postgres.ts'
import { startRedis } from '../embedded/redis.ts'
import { superviseTier } from '../supervisor.ts'

const READY_TIMEOUT_MS = 120_000
const API_GRACE_MS = 35_000
const WORKER_GRACE_MS = 10_000
const DEFAULT_PORT = 8081

/** Something that was started and has to be stopped. */
type Stop = () => Promise<unknown>

/** `millrace up`: everything on this machine; what is not configured runs embedded. */
export async function up(env: Env): Promise<void> {
  const dataDir = resolve(env.MILLRACE_DATA_DIR ?? '.data')
  const stops: Stop[] = [await lockDataDir(dataDir)]
  const signal = onStopSignal()
  try {
    const started = await startEverything(env, dataDir, stops, signal)
    if (!signal.aborted) print(started)
    await signal.stopped
    note('stopping: open requests are finished first; press Ctrl-C again to stop at once')
  } finally {
    for (const stop of stops.reverse()) {
      await stop().catch((error: unknown) => note(`a part could not be stopped: ${String(error)}`))
    }
  }
}

interface Started {
  readonly url: string
  readonly apiKey: string
  readonly adminToken: string
  readonly mailbox: Mailbox | undefined
  readonly seconds: number
}

async function startEverything(
  env: Env,
  dataDir: string,
  stops: Stop[],
  signal: StopSignal,
): Promise<Started> {
  const startedAt = performance.now()
  const secrets = await loadSecrets(dataDir)
  const [redisUrl, databaseUrl, mailbox] = await Promise.all([
    env.REDIS_URL ??
      embed(stops, startRedis(dataDir, { password: secrets.redisPassword, onProgress: note })),
    env.AUTH_DB_DATABASE_URL ??
      env.DATABASE_URL ??
      embed(stops, startPostgres(dataDir, { password: secrets.postgresPassword })),
    env.AUTH_SMTP_HOST === undefined ? startMailbox(join(dataDir, 'mail')) : undefined,
  ])
  if (mailbox !== undefined) stops.push(() => mailbox.stop())
  const port = Number(env.AUTH_API_PORT ?? env.PORT ?? DEFAULT_PORT)
  await assertPortIsFree(port)
  const ports = {
    api: port,
    apiMetrics: await findFreePort(9100),
    workerMetrics: await findFreePort(9101),
  }
  const tierEnv = composeEnv(env, { dataDir, redisUrl, databaseUrl, mailbox, secrets, ports })
  stops.push(await rememberEnvironment(dataDir, tierEnv))
  if (signal.aborted) throw new Error('stopped while starting')
  await startTiers(tierEnv, dataDir, stops, {
    apiPort: port,
    workerPort: Number(tierEnv.MILLRACE_WORKER_METRICS_PORT),
    signal,
  })
  return {
    url: `http://localhost:${port}`,
    apiKey: tierEnv.MILLRACE_BOOTSTRAP_API_KEY ?? '',
    adminToken: tierEnv.MILLRACE_ADMIN_TOKEN ?? '',
    mailbox,
    seconds: (performance.now() - startedAt) / 1000,
  }
}

async function embed(
  stops: Stop[],
  starting: Promise<{ url: string; stop(): Promise<void> }>,
): Promise<string> {
  const service = await starting
  stops.push(() => service.stop())
  return service.url
}

async function startTiers(
  env: Readonly<Record<string, string | undefined>>,
  dataDir: string,
  stops: Stop[],
  options: { readonly apiPort: number; readonly workerPort: number; readonly signal: StopSignal },
): Promise<void> {
  const common = { env, logFolder: join(dataDir, 'logs'), onNote: note }
  const [worker, api] = await Promise.all([
    superviseTier({ ...common, name: 'worker' }),
    superviseTier({ ...common, name: 'api' }),
  ])
  // Stopped in the reverse order: the API finishes its requests while the worker still answers.
  stops.push(() => worker.stop(WORKER_GRACE_MS))
  stops.push(() => api.stop(API_GRACE_MS))
  const ready = Promise.all([
    whenReady(options.apiPort, dataDir, options.signal),
    whenReady(options.workerPort, dataDir, options.signal),
  ])
  // What cannot even start would crash again and again: nobody should have to wait for that.
  await Promise.race([ready, ...[api, worker].map(({ firstCrash }) => firstCrash.then(giveUp))])
}

async function whenReady(port: number, dataDir: string, signal: StopSignal): Promise<void> {
  await waitUntil(
    async () => {
      if (signal.aborted) return
      const answer = await fetch(`http://127.0.0.1:${port}/readyz`)
      await answer.body?.cancel()
      if (!answer.ok) throw new Error(`port ${port} is not ready; see ${join(dataDir, 'logs')}`)
    },
    { timeoutMs: READY_TIMEOUT_MS },
  )
}

function giveUp(logFile: string): never {
  throw new Error(`Millrace cannot start; the reason is above and in ${logFile}.`)
}

/** What the tiers read; whatever the user has set stays. */
function composeEnv(
  env: Env,
  parts: {
    readonly dataDir: string
    readonly redisUrl: string
    readonly databaseUrl: string
    readonly mailbox: Mailbox | undefined
    readonly secrets: Secrets
    readonly ports: {
      readonly api: number
      readonly apiMetrics: number
      readonly workerMetrics: number
    }
  },
): Record<string, string | undefined> {
  const { secrets, mailbox, ports } = parts
  const publicUrl = `http://localhost:${ports.api}`
  const defaults: Record<string, string> = {
    MILLRACE_DATA_DIR: parts.dataDir,
    REDIS_URL: parts.redisUrl,
    AUTH_DB_DATABASE_URL: parts.databaseUrl,
    AUTH_DB_DRIVER: 'postgres',
    AUTH_SITE_URL: publicUrl,
    AUTH_API_EXTERNAL_URL: publicUrl,
    AUTH_JWT_SECRET: secrets.jwtSecret,
    MILLRACE_BOOTSTRAP_API_KEY: secrets.apiKey,
    MILLRACE_URL_SIGNING_SECRET: secrets.urlSigningSecret,
    MILLRACE_ADMIN_TOKEN: secrets.adminToken,
    OTEL_EXPORTER_PROMETHEUS_PORT: String(ports.apiMetrics),
    OTEL_EXPORTER_PROMETHEUS_HOST: '127.0.0.1',
    MILLRACE_WORKER_METRICS_PORT: String(ports.workerMetrics),
    UV_THREADPOOL_SIZE: '16',
    ...(mailbox !== undefined && {
      AUTH_SMTP_HOST: '127.0.0.1',
      AUTH_SMTP_PORT: String(mailbox.smtpPort),
      AUTH_SMTP_ADMIN_EMAIL: 'no-reply@localhost.localdomain',
    }),
  }
  const given = Object.fromEntries(
    Object.entries(env).filter(([, value]) => value !== undefined && value !== ''),
  )
  // Any free port: it is chosen here, where the start looks whether the worker is ready.
  if (given.MILLRACE_WORKER_METRICS_PORT === '0') delete given.MILLRACE_WORKER_METRICS_PORT
  return { ...defaults, ...given }
}

async function assertPortIsFree(port: number): Promise<void> {
  if ((await findFreePort(port)) === port) return
  throw new Error(`Port ${port} is taken: stop what listens there, or set PORT.`)
}

interface StopSignal {
  readonly aborted: boolean
  readonly stopped: Promise<void>
}

/** The first signal to stop asks, the second insists. */
function onStopSignal(): StopSignal {
  let aborted = false
  const stopped = new Promise<void>((resolve) => {
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(name, () => {
        // The children's pipes close with this process, and they end.
        if (aborted) process.exit(130)
        aborted = true
        resolve()
      })
    }
  })
  return {
    get aborted() {
      return aborted
    },
    stopped,
  }
}

function print(started: Started): void {
  const { url, apiKey, mailbox } = started
  console.log(`
Millrace is ready (${started.seconds.toFixed(1)} s).

  address     ${url}            OpenAI clients: ${url}/v1      Supabase auth clients: ${url}/auth/v1
  playground  ${url}/
  docs        ${url}/docs
  admin       ${url}/admin     jobs ${url}/admin/queues     admin token ${started.adminToken}
  mail        ${mailbox === undefined ? 'through AUTH_SMTP_HOST' : `${mailbox.pageUrl}     files in ${mailbox.folder}`}

Try it:

curl -N ${url}/v1/chat/completions -H 'Authorization: Bearer ${apiKey}' -H 'Content-Type: application/json' -d '{"model":"tiny-chat","stream":true,"temperature":0,"messages":[{"role":"user","content":"What is the capital of France?"}]}'

Ctrl-C stops everything.`)
}

function note(text: string): void {
  console.error(text)
}
