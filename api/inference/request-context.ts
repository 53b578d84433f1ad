import type { FastifyReply, FastifyRequest } from 'fastify'

import { durableOf } from '#api/v1/durable.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'

/**
 * Aborted when the client disconnects before its answer is complete, streamed or not. A complete
 * request under an Idempotency-Key continues without its client, which will ask for the answer
 * again.
 */
export function clientSignal(http: {
  readonly request: FastifyRequest
  readonly reply: FastifyReply
}): AbortSignal {
  const { request, reply } = http
  const abort = new AbortController()
  const { raw } = reply
  const leave = (): void => {
    const isKept = durableOf(request) !== undefined && request.raw.complete
    if (!raw.writableEnded && !isKept) abort.abort()
  }
  raw.once('close', leave)
  if (raw.destroyed) leave()
  return abort.signal
}

/**
 * How long a request may take, in milliseconds: the installation's limit, or less when the client
 * says that it waits no longer. Of a stream the client's limit is per read, so it says nothing; and
 * under an Idempotency-Key the next try waits on.
 */
export function deadlineOf(
  request: FastifyRequest,
  config: { readonly deadlineSeconds: number },
  isStream: boolean,
): number {
  const limitMs = config.deadlineSeconds * 1000
  if (isStream || durableOf(request) !== undefined) return limitMs
  const { headers } = request
  const seconds = Number(headers['x-stainless-timeout'] ?? headers['x-stainless-read-timeout'])
  return seconds > 0 ? Math.min(limitMs, seconds * 1000) : limitMs
}

const TRACEPARENT = /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/
const TRACESTATE_LENGTH_MAX = 512

/** The W3C trace context that the client sent, if it is well formed. */
export function traceOf(request: FastifyRequest): JobEnvelope['trace'] {
  const { traceparent, tracestate } = request.headers
  if (typeof traceparent !== 'string' || !TRACEPARENT.test(traceparent)) return undefined
  const isStateUsable = typeof tracestate === 'string' && tracestate.length <= TRACESTATE_LENGTH_MAX
  return { traceparent, ...(isStateUsable && { tracestate }) }
}
