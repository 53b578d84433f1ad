import type { TelemetryConfig } from '#shared/config/telemetry.ts'
import type { Logger } from '#shared/logger.ts'

import { createRegistry, type Registry, type TelemetrySource } from './registry.ts'
import { NO_TRACING, type Tracing } from './tracing.ts'

/** Metrics and traces of one process. */
export interface Telemetry {
  readonly registry: Registry
  readonly tracing: Tracing
  /** Exports pending data, within two seconds. */
  close(): Promise<void>
}

/**
 * Opens the metrics of a process, and its exporters when configured. The OpenTelemetry SDK is
 * loaded only with an exporter, because it adds a sixth of a second to the start.
 */
export async function openTelemetry(
  config: TelemetryConfig,
  source: TelemetrySource,
  log: Logger,
): Promise<Telemetry> {
  const registry = createRegistry(source)
  const { tracing, metrics } = config
  const sendsMetrics = metrics.isEnabled && metrics.exporter === 'opentelemetry'
  if (!tracing.isEnabled && !sendsMetrics) {
    return { registry, tracing: NO_TRACING, close: async () => {} }
  }
  const { openSdk } = await import('./sdk.ts')
  const sdk = openSdk({ config, source, registry: sendsMetrics ? registry : undefined, log })
  return { registry, ...sdk }
}
