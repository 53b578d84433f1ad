import { collectDefaultMetrics, Gauge, Registry } from 'prom-client'

export type { Registry } from 'prom-client'

/** The resource attributes of this process. */
export interface TelemetrySource {
  readonly tier: 'api' | 'worker'
  readonly version: string
}

/**
 * The metrics of one process: Node's own (event-loop delay, memory, garbage collection) and those
 * that the tier registers. Label values come from closed sets (route templates, catalogue models,
 * kinds, states), so that the number of series is bounded.
 */
export function createRegistry(build: TelemetrySource): Registry {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const info = new Gauge({
    name: 'millrace_build_info',
    help: 'Always 1; the version and tier of this process.',
    labelNames: ['tier', 'version'],
    registers: [registry],
  })
  info.set({ ...build }, 1)
  return registry
}

/** Buckets, in seconds, for HTTP and storage operations. */
export const SECONDS_BUCKETS = [
  0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120,
] as const
