import type { FastifyPluginAsync } from 'fastify'

/** A dependency that must work before this process may take requests. */
interface ReadinessCheck {
  readonly name: string
  /** Rejects when it does not work. */
  run(): Promise<unknown>
}

export interface HealthServices {
  readonly checks: readonly ReadinessCheck[]
  /** True once the process has started to stop. */
  isDraining(): boolean
}

const CHECK_TIMEOUT_MS = 2000

/** `/healthz` reports the process only; `/readyz` reports every dependency of a request. */
export function healthPlugin(services: HealthServices): FastifyPluginAsync {
  return async (app) => {
    app.get('/healthz', { schema: LIVENESS }, async () => ({ status: 'ok' }))
    app.get('/readyz', { schema: READINESS }, async (_request, reply) => {
      if (services.isDraining()) return reply.code(503).send({ status: 'draining', checks: {} })
      const results = await Promise.all(services.checks.map(runCheck))
      const checks = Object.fromEntries(
        results.map(({ name, isOk }) => [name, isOk ? 'ok' : 'failed']),
      )
      const isReady = results.every(({ isOk }) => isOk)
      return reply
        .code(isReady ? 200 : 503)
        .send({ status: isReady ? 'ready' : 'unavailable', checks })
    })
  }
}

async function runCheck(check: ReadinessCheck): Promise<{ name: string; isOk: boolean }> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('timed out')), CHECK_TIMEOUT_MS)
  })
  try {
    await Promise.race([check.run(), timeout])
    return { name: check.name, isOk: true }
  } catch {
    // The answer names the failed check; its reason is in the log of that component.
    return { name: check.name, isOk: false }
  } finally {
    clearTimeout(timer)
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
  summary: 'Whether the process lives',
  response: { 200: STATUS },
}
const READINESS = {
  tags: ['Health'],
  summary: 'Whether requests can be served',
  response: { 200: READINESS_BODY, 503: READINESS_BODY },
}
