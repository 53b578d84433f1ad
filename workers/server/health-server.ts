import type { TelemetryConfig } from '#shared/config/telemetry.ts'
import type { Logger } from '#shared/logger.ts'
import {
  json,
  type MetricsServer,
  metricsHandler,
  openMetricsServer,
  plain,
} from '#shared/telemetry/metrics-server.ts'
import type { Registry } from '#shared/telemetry/registry.ts'
import { vllmNames } from '#shared/telemetry/vllm-names.ts'

/** The state that a worker reports. */
interface HealthServerOptions {
  readonly port: number
  /** The reasons for which models are not served, by model id. */
  unserved(): Readonly<Record<string, string>>
  readonly registry: Registry
  readonly metrics: Pick<TelemetryConfig['metrics'], 'isEnabled' | 'exporter' | 'compatibility'>
  readonly log: Logger
}

/**
 * Serves `/healthz` (the process runs), `/readyz` (every model is served) and the metrics, unless
 * they are switched off or sent by OTLP.
 */
export async function openHealthServer(options: HealthServerOptions): Promise<MetricsServer> {
  const { port, unserved, registry, metrics, log } = options
  const twins = metrics.compatibility === 'vllm' ? () => vllmNames(registry) : undefined
  const scraped = metricsHandler(registry, twins)
  const isScraped = metrics.isEnabled && metrics.exporter === 'prometheus'
  return openMetricsServer({
    port,
    handlers: {
      '/healthz': () => plain(200, 'ok\n'),
      '/readyz': () => readiness(unserved()),
      ...(isScraped && { '/': scraped, '/metrics': scraped }),
    },
    onError: (error) => log.warn({ operation: 'metrics.serve', err: error }, 'metrics failed'),
  }).catch((cause: Error) => {
    const setting = 'MILLRACE_WORKER_METRICS_PORT'
    throw new Error(`The worker cannot listen: ${cause.message}; check ${setting}`, { cause })
  })
}

function readiness(checks: Readonly<Record<string, string>>): ReturnType<typeof plain> {
  if (Object.keys(checks).length === 0) return plain(200, 'ok\n')
  return json(503, { status: 'not ready', checks })
}
