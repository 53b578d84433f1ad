import type { FastifyPluginAsync } from 'fastify'

import type { DependencyState } from '#shared/dependencies.ts'

export interface HealthServices {
  readonly dependencies: { states(): Promise<readonly DependencyState[]> }
  /** True once the process has started to stop. */
  isDraining(): boolean
}

/**
 * `/healthz` reports the process only. `/readyz` is 503 while the process drains or a required
 * dependency fails; other failures are reported as `degraded`, because requests that do not need
 * the failed service can still be served.
 */
export function healthPlugin(services: HealthServices): FastifyPluginAsync {
  return async (app) => {
    // Probes need no compiled serializer: the answers have the fields of their schemas alone.
    app.setSerializerCompiler(() => JSON.stringify)
    app.get('/healthz', { schema: LIVENESS }, async () => ({ status: 'ok' }))
    app.get('/readyz', { schema: READINESS }, async (_request, reply) => {
      if (services.isDraining()) return reply.code(503).send({ status: 'draining', checks: {} })
      const states = await services.dependencies.states()
      const checks = Object.fromEntries(
        states.map(({ name, isOk }) => [name, isOk ? 'ok' : 'failed']),
      )
      const failed = states.filter(({ isOk }) => !isOk)
      if (failed.some(({ isRequired }) => isRequired)) {
        return reply.code(503).send({ status: 'unavailable', checks })
      }
      return { status: failed.length === 0 ? 'ready' : 'degraded', checks }
    })
  }
}

const STATUS = { type: 'object', properties: { status: { type: 'string' } } } as const
const READINESS_BODY = {
  type: 'object',
  properties: {
    status: { type: 'string' },
    checks: { type: 'object', additionalProperties: { type: 'string' } },
  },
} as const
const LIVENESS = {
  tags: ['Health'],
  summary: 'Report whether the process is alive',
  response: { 200: STATUS },
}
const READINESS = {
  tags: ['Health'],
  summary: 'Report whether requests can be served',
  description: 'The status is `degraded` (with 200) if only some kinds of requests can be served.',
  response: { 200: READINESS_BODY, 503: READINESS_BODY },
}
