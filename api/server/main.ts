import { drain } from '#api/http/connections.ts'
import { openApiTelemetry } from '#api/telemetry/open-telemetry.ts'
import { serveMetrics } from '#api/telemetry/serve-metrics.ts'
import { type Config, type Env, loadConfig } from '#shared/config/config.ts'
import { createLogger, type Logger } from '#shared/logger.ts'
import { collectGarbage, readVersion } from '#shared/process.ts'

import { buildApp } from './app.ts'
import { startMaintenance } from './maintenance.ts'
import { openServices } from './services.ts'
import { loadSurfaces } from './surfaces.ts'
import { openUserServer } from './user-server.ts'

// The drain starts a second and a half after the signal, once clients have been notified.
const LAST_CALL_MS = 1000

/** A process that has just started answers first, and makes the pauses of `settle` later. */
const SETTLE_MS = 1000

/** A running API process. */
interface RunningApi {
  /** The URL it listens on. */
  readonly url: string
  /** Finishes open requests within the drain time, then closes everything; idempotent. */
  stop(): Promise<void>
}

/** Starts an API process: configuration → services → listen. */
export async function runApi(env: Env): Promise<RunningApi> {
  const { config, warnings } = loadConfig(env)
  const log = createLogger({ ...config.log, base: { tier: 'api' } })
  for (const warning of warnings) log.warn({ operation: 'config.read' }, warning)
  const version = await readVersion()
  const telemetry = await openApiTelemetry(config, version, log)
  const services = await openServices(config, log, telemetry)
  const users = await openUserServer(services, version, telemetry)
  const stopMetrics = await serveMetrics(telemetry, services, users)
  const { surfaces, start } = await loadSurfaces(services, users, version)
  let isDraining = false
  const app = await buildApp({
    server: config.server,
    version,
    publicUrl: config.auth.site.externalUrl,
    log,
    observer: telemetry.http,
    health: { dependencies: services.dependencies, isDraining: () => isDraining },
    surfaces,
    corsAllowedHeaders: config.auth.site.corsAllowedHeaders,
    watchers: [services.incidentWatch],
  })
  const watching = new AbortController()
  services.dependencies.watch(watching.signal)
  const stopMaintenance = startMaintenance(services)
  const work = start(app)
  const { host, port } = config.server
  const url = await app.listen({ host, port }).catch((cause: Error) => {
    const settings = 'AUTH_API_HOST and AUTH_API_PORT'
    throw new Error(`The API cannot listen: ${cause.message}; check ${settings}`, { cause })
  })
  log.info({ operation: 'api.start', url }, 'API started')
  const settling = setTimeout(() => void settle(config, log), SETTLE_MS)
  let stopping: Promise<void> | undefined
  const stop = async () => {
    isDraining = true
    clearTimeout(settling)
    stopMaintenance()
    watching.abort()
    const drainMs = config.server.drainTimeoutSeconds * 1000
    // Ends open requests with a 503 before they would be cut off.
    const lastCall = setTimeout(() => services.submitter.failPending(), drainMs + LAST_CALL_MS)
    // Released leases are adopted by other processes.
    await Promise.all([work.stop(), services.background.stop(), drain(app, drainMs, log)]).finally(
      () => clearTimeout(lastCall),
    )
    await users.close()
    await Promise.all([stopMetrics(), services.close()])
    await telemetry.close()
    log.info({ operation: 'api.stop' }, 'API stopped')
  }
  return { url, stop: () => (stopping ??= stop()) }
}

/** Loads the queue library before the first job needs it, then frees the memory of the start. */
async function settle({ surfaces }: Config, log: Logger): Promise<void> {
  try {
    if (surfaces.includes('inference')) await import('bullmq')
  } catch (err) {
    log.error({ operation: 'api.settle', err }, 'the queue library cannot be loaded')
  }
  collectGarbage()
}
