import type { ServerResponse } from 'node:http'

import { trace } from '@opentelemetry/api'
import type { FastifyInstance } from 'fastify'

import type { Logger } from '#shared/logger.ts'

import type { HttpObserver } from '../telemetry/http-observer.ts'

// The status that proxies log for a client that disconnected before its answer was complete.
const STATUS_CLIENT_LEFT = 499

/**
 * Logs one line per request when its answer ends for any reason, and adds the request id to every
 * answer. The observer receives the same start and end.
 */
export function registerRequestLog(
  app: FastifyInstance,
  log: Logger,
  observer?: HttpObserver,
): void {
  app.addHook('onRequest', (request, reply, next) => {
    reply.header('x-request-id', request.id)
    const observed = observer?.begin(request)
    const goOn = (): void => {
      const traceId = trace.getActiveSpan()?.spanContext().traceId
      whenOver(reply.raw, (isComplete) => {
        const status = isComplete ? reply.statusCode : STATUS_CLIENT_LEFT
        observed?.end(status)
        log.info(
          {
            operation: 'http.request',
            requestId: request.id,
            ...(traceId !== undefined && { traceId }),
            method: request.method,
            route: request.routeOptions.url ?? 'unknown',
            status,
            durationMs: Math.round(reply.elapsedTime * 10) / 10,
          },
          isComplete ? 'request finished' : 'client left',
        )
      })
      next()
    }
    if (observed === undefined) goOn()
    else observed.run(goOn)
  })
  if (observer === undefined) return
  // The body was read in the context of its socket, so the trace context is restored here.
  app.addHook('preValidation', (request, _reply, next) => observer.resume(request, next))
}

/** Calls back once, when an answer is sent or its connection closes. */
function whenOver(response: ServerResponse, onOver: (isComplete: boolean) => void): void {
  let isOver = false
  const end = (): void => {
    if (isOver) return
    isOver = true
    onOver(response.writableFinished)
  }
  response.once('finish', end)
  response.once('close', end)
}
