import type { FastifyInstance } from 'fastify'

import type { Logger } from '#shared/logger.ts'

/** One line per finished request, and the request id on every answer. */
export function registerRequestLog(app: FastifyInstance, log: Logger): void {
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id)
  })
  app.addHook('onResponse', async (request, reply) => {
    log.info(
      {
        operation: 'http.request',
        requestId: request.id,
        method: request.method,
        route: request.routeOptions.url ?? 'unknown',
        status: reply.statusCode,
        durationMs: Math.round(reply.elapsedTime * 10) / 10,
      },
      'request finished',
    )
  })
  app.addHook('onRequestAbort', async (request) => {
    log.info(
      { operation: 'http.request', requestId: request.id, route: request.routeOptions.url },
      'client left',
    )
  })
}
