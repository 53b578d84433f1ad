import { expect, it } from 'vitest'

import { createLogger } from '#shared/logger.ts'
import { createRegistry } from '#shared/telemetry/registry.ts'
import { openHealthServer } from '#workers/server/health-server.ts'

const METRICS = { isEnabled: false, exporter: 'prometheus', compatibility: 'none' } as const

const open = (port: number) =>
  openHealthServer({
    port,
    unserved: () => ({}),
    registry: createRegistry({ tier: 'worker', version: '0' }),
    metrics: METRICS,
    log: createLogger({ level: 'silent' }),
  })

it('names the setting of a port in use', async () => {
  const server = await open(0)
  await expect(open(server.port)).rejects.toThrow(/cannot listen.*MILLRACE_WORKER_METRICS_PORT/)
  await server.close()
})
