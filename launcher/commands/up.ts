import { join, resolve } from 'node:path'

import { loadSecrets, lockDataDir } from '#launcher/data-dir.ts'
import { claimPortNumber, findFreePort, waitUntil } from '#launcher/embedded/child.ts'
import { type Mailbox, startMailbox } from '#launcher/embedded/mailbox.ts'
import { startPostgres } from '#launcher/embedded/postgres.ts'
import { type EmbeddedService, startRedis } from '#launcher/embedded/redis.ts'
import { keepService } from '#launcher/embedded/supervised-service.ts'
import { rememberEnvironment } from '#launcher/running.ts'
import { superviseTier } from '#launcher/supervisor.ts'
import { checkSettings, composeEnv, readSettings } from '#launcher/tier-env.ts'
import type { Env } from '#shared/config/config.ts'
import type { ServerConfig } from '#shared/config/server.ts'
import { loadCatalogue } from '#shared/load-catalogue.ts'
import { CANNOT_BE_LOADED } from '#shared/queue/liveness.ts'

const READY_TIMEOUT_MS = 120_000
/** After this time, models that are still being downloaded no longer delay the others. */
const MODELS_TIMEOUT_MS = 30_000
// A start that takes longer reports what it waits for.
const REPORT_AFTER_MS = 10_000
const API_GRACE_MS = 35_000
const WORKER_GRACE_MS = 10_000
const GIVEN_SERVICES = ['REDIS_URL', 'AUTH_DB_DATABASE_URL', 'DATABASE_URL', 'S3_ENDPOINT']

/** Stops a part that was started. */
type Stop = () => Promise<unknown>

/** `millrace up`: everything on this machine; services that are not configured run embedded. */
export async function up(environment: Env): Promise<void> {
  const env = readSettings(environment)
  const dataDir = resolve(env.MILLRACE_DATA_DIR ?? '.data')
  const config = checkSettings(env, dataDir)
  await loadCatalogue(config.inference.catalogueFile)
  const isGiven = GIVEN_SERVICES.some((name) => env[name] !== undefined)
  // Loaded on demand, because the drivers of all services take time to load.
  if (isGiven) await (await import('#launcher/reach.ts')).reachWhatIsGiven(env, config)
  const { server } = config
  const stops: Stop[] = [await lockDataDir(dataDir)]
  const signal = onStopSignal()
  try {
    const started = await startEverything(env, { dataDir, server, stops, signal })
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
  {
    dataDir,
    server,
    stops,
    signal,
  }: {
    readonly dataDir: string
    readonly server: ServerConfig
    readonly stops: Stop[]
    readonly signal: StopSignal
  },
): Promise<Started> {
  const startedAt = performance.now()
  // Checked first, so that nothing is started that could not be reached.
  if (server.port !== 0) await assertPortIsFree(server.port)
  const secrets = await loadSecrets(dataDir)
  const [redisUrl, databaseUrl, mailbox] = await Promise.all([
    env.REDIS_URL ??
      embed(stops, 'redis', (port) =>
        startRedis(dataDir, { password: secrets.redisPassword, onProgress: note, port }),
      ),
    env.AUTH_DB_DATABASE_URL ??
      env.DATABASE_URL ??
      embed(stops, 'postgres', (port) =>
        startPostgres(dataDir, { password: secrets.postgresPassword, port }),
      ),
    env.AUTH_SMTP_HOST === undefined ? startMailbox(join(dataDir, 'mail')) : undefined,
  ])
  if (mailbox !== undefined) stops.push(() => mailbox.stop())
  const port = server.port === 0 ? await findFreePort() : server.port
  const ports = {
    api: port,
    apiMetrics: await claimPort(9100, port, stops),
    workerMetrics: await claimPort(9101, port, stops),
  }
  const tierEnv = composeEnv(env, { dataDir, redisUrl, databaseUrl, mailbox, secrets, ports })
  stops.push(await rememberEnvironment(dataDir, tierEnv))
  if (signal.aborted) throw new Error('stopped while starting')
  await startTiers(tierEnv, dataDir, stops, {
    api: `http://${reachable(server.host)}:${port}`,
    worker: `http://127.0.0.1:${tierEnv.MILLRACE_WORKER_METRICS_PORT}`,
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
  name: string,
  start: (port?: number) => Promise<EmbeddedService>,
): Promise<string> {
  const service = await keepService(name, start, note)
  stops.push(() => service.stop())
  return service.url
}

async function startTiers(
  env: Readonly<Record<string, string | undefined>>,
  dataDir: string,
  stops: Stop[],
  options: { readonly api: string; readonly worker: string; readonly signal: StopSignal },
): Promise<void> {
  const common = { env, logFolder: join(dataDir, 'logs'), onNote: note }
  const [worker, api] = await Promise.all([
    superviseTier({ ...common, name: 'worker' }),
    superviseTier({ ...common, name: 'api' }),
  ])
  // Stopped in the reverse order: the API finishes its requests while the worker still answers.
  stops.push(() => worker.stop(WORKER_GRACE_MS))
  stops.push(() => api.stop(API_GRACE_MS))
  options.signal.onInsist(() => Promise.all([api.stop(0), worker.stop(0)]))
  const ready = Promise.all([
    whenReady('the API', options.api, { dataDir, signal: options.signal }),
    whenReady('the worker', options.worker, {
      dataDir,
      signal: options.signal,
      goesOnAfterMs: MODELS_TIMEOUT_MS,
    }),
  ])
  await Promise.race([ready, ...[api, worker].map(({ failedStart }) => failedStart.then(fail))])
  for (const tier of [api, worker]) tier.keepRunning()
}

async function whenReady(
  name: string,
  address: string,
  {
    dataDir,
    signal,
    goesOnAfterMs = Number.POSITIVE_INFINITY,
  }: {
    readonly dataDir: string
    readonly signal: StopSignal
    /** The time after which a service that is partly ready counts as ready. */
    readonly goesOnAfterMs?: number
  },
): Promise<void> {
  const startedAt = performance.now()
  let reported = ''
  await waitUntil(
    async () => {
      if (signal.aborted) return
      const answer = await fetch(`${address}/readyz`)
      const { faults, areLasting } = faultsOf(await answer.text())
      if (answer.ok) return
      const waitedMs = performance.now() - startedAt
      if (areLasting || waitedMs > goesOnAfterMs)
        return note(`${faults}; loaded models are already served`)
      const isLong = waitedMs > REPORT_AFTER_MS
      if (isLong && faults !== reported) note(`${name} is not ready yet: ${faults}`)
      if (isLong) reported = faults
      throw new Error(`${name} is not ready: ${faults}; see ${join(dataDir, 'logs')}`)
    },
    { timeoutMs: READY_TIMEOUT_MS },
  )
}

/** The problems that `/readyz` reports, and whether none of them can resolve by waiting. */
function faultsOf(body: string): { readonly faults: string; readonly areLasting: boolean } {
  try {
    const { status, checks = {} } = JSON.parse(body) as {
      status?: string
      checks?: Record<string, string>
    }
    const faults = Object.entries(checks).filter(([, state]) => state !== 'ok')
    return {
      faults: faults.map(([name, state]) => `${name} ${state}`).join(', ') || String(status),
      areLasting: faults.length > 0 && faults.every(([, state]) => state === CANNOT_BE_LOADED),
    }
  } catch {
    return { faults: 'it answers with something else', areLasting: false }
  }
}

/** A free port that no other `up` chooses at the same time, and never the one of the API. */
async function claimPort(preferred: number, apiPort: number, stops: Stop[]): Promise<number> {
  if (preferred === apiPort) return findFreePort()
  const release = await claimPortNumber(preferred)
  if (release === undefined) return findFreePort()
  stops.push(release)
  return findFreePort(preferred)
}

/** The host at which this listener is reachable from this machine. */
function reachable(host: string): string {
  if (host === '0.0.0.0' || host === '::') return '127.0.0.1'
  return host.includes(':') ? `[${host}]` : host
}

function fail(logFile: string): never {
  throw new Error(`Millrace cannot start; the reason is above and in ${logFile}.`)
}

async function assertPortIsFree(port: number): Promise<void> {
  const free = await findFreePort(port).catch((error: Error) => {
    throw new Error(`Port ${port} cannot be used: ${error.message}. Set PORT.`, { cause: error })
  })
  if (free === port) return
  throw new Error(`Port ${port} is taken: stop the process that listens there, or set PORT.`)
}

interface StopSignal {
  readonly aborted: boolean
  readonly stopped: Promise<void>
  /** Registers how to stop the remaining work at once. */
  onInsist(cut: () => Promise<unknown>): void
}

/** The first signal drains, the second stops at once, the third ends this process only. */
function onStopSignal(): StopSignal {
  let numSignals = 0
  let cutShort: (() => Promise<unknown>) | undefined
  const stopped = Promise.withResolvers<void>()
  const onSignal = () => {
    numSignals += 1
    stopped.resolve()
    if (numSignals === 1) return
    process.exitCode = 130
    // The children end because their pipes close with this process.
    if (numSignals > 2 || cutShort === undefined) process.exit()
    cutShort().catch((error: unknown) => note(`a part could not be stopped: ${String(error)}`))
  }
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, onSignal)
  return {
    get aborted() {
      return numSignals > 0
    },
    stopped: stopped.promise,
    onInsist(cut) {
      cutShort = cut
    },
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
