import type { Services } from '#api/server/services.ts'
import type { UserServer } from '#api/server/user-server.ts'
import { queuesOf } from '#shared/catalogue.ts'
import { type QueueRef, readDepth, readOldestWaitMs } from '#shared/queue/depth.ts'
import { BACKLOG_PATH, backlogHandler } from '#shared/telemetry/backlog-handler.ts'
import { metricsHandler, openMetricsServer } from '#shared/telemetry/metrics-server.ts'
import { vllmNames } from '#shared/telemetry/vllm-names.ts'

import { registerGauges } from './gauges.ts'
import { beginSeries } from './metrics.ts'
import type { ApiTelemetry } from './open-telemetry.ts'

/**
 * Serves the metrics and the backlog of every queue on their own port. Returns the function that
 * stops it. A port in use is logged as an error; the API still serves.
 */
export async function serveMetrics(
  telemetry: ApiTelemetry,
  services: Services,
  users: UserServer,
): Promise<() => Promise<void>> {
  const { config, catalogue, submitter, database, log } = services
  const queues = () => queuesOf(catalogue).map(({ kind, id }) => ({ kind, modelId: id }))
  const serverOf = ({ kind, modelId }: QueueRef) => submitter.of(kind, modelId)
  const depthOf = (queue: QueueRef) => readDepth(serverOf(queue), queue)
  const { registry } = telemetry
  const begin = (): void => beginSeries(telemetry.metrics, queuesOf(catalogue))
  begin()
  catalogue.onChange(begin)
  registerGauges(registry, {
    queues,
    readDepth: depthOf,
    readOldestWait: (queue) => readOldestWaitMs(serverOf(queue), queue),
    workers: () => submitter.workersSeen,
    pool: database.pool,
    hashing: () => users.services.passwords.load(),
    jobsInFlight: () => submitter.jobsInFlight,
    dependencies: () => services.dependencies.states(),
    outbox: () => users.services.outbox.state(),
  })
  const { metrics, prometheus } = config.telemetry
  if (!metrics.isEnabled) return async () => {}
  const twins = metrics.compatibility === 'vllm' ? () => vllmNames(registry) : undefined
  const scraped = metricsHandler(registry, twins)
  try {
    const server = await openMetricsServer({
      ...prometheus,
      handlers: {
        ...(metrics.exporter === 'prometheus' && { '/': scraped, '/metrics': scraped }),
        [BACKLOG_PATH]: backlogHandler(queues, depthOf),
      },
      onError: (error) => log.warn({ operation: 'metrics.serve', err: error }, 'metrics failed'),
    })
    log.info({ operation: 'metrics.start', port: server.port }, 'metrics are served')
    return () => server.close()
  } catch (error) {
    log.error({ operation: 'metrics.start', err: error, ...prometheus }, 'metrics are not served')
    return async () => {}
  }
}
