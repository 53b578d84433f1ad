import type { JobObserver } from '#api/jobs/observers.ts'
import type { Config } from '#shared/config/config.ts'
import type { Logger } from '#shared/logger.ts'
import { openTelemetry, type Telemetry } from '#shared/telemetry/telemetry.ts'

import { type ApiMetrics, createApiMetrics } from './metrics.ts'
import { createHttpObserver, createJobObserver, type HttpObserver } from './observe-requests.ts'

/** The metrics and traces of an API process. */
export interface ApiTelemetry extends Telemetry {
  readonly metrics: ApiMetrics
  readonly jobs: JobObserver
  readonly http: HttpObserver
}

/** Opens metrics and traces of an API process; nothing listens yet. */
export async function openApiTelemetry(
  { telemetry: config }: Pick<Config, 'telemetry'>,
  version: string,
  log: Logger,
): Promise<ApiTelemetry> {
  const telemetry = await openTelemetry(config, { tier: 'api', version }, log)
  const metrics = createApiMetrics(telemetry.registry)
  return {
    ...telemetry,
    metrics,
    jobs: createJobObserver(metrics, telemetry.tracing),
    http: createHttpObserver(metrics, telemetry.tracing),
  }
}
