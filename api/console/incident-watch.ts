import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import { normalizeError } from '#api/http/normalize-error.ts'
import type { JobObserver } from '#api/jobs/observers.ts'
import { ERROR_KINDS, type ErrorKind } from '#shared/errors.ts'

import type { IncidentLog } from './incident-log.ts'
import type { SeriesLog } from './series-log.ts'

/** The recorded state of a request in flight. */
interface Watched {
  modelId?: string
  queueMs?: number
  firstTokenMs?: number
  completionTokens?: number
  /** The failure of its job, which the status of a started stream cannot show. */
  failure?: ErrorKind
}

/** The number of requests that one process tracks at a time. */
const WATCHED_MAX = 10_000
const TEXT_LENGTH_MAX = 200

/** Observes requests and their jobs: records those that fail or are slow, and counts all. */
export class IncidentWatch {
  readonly #log: IncidentLog
  readonly #series: SeriesLog
  readonly #slowMs: number
  readonly #watched = new Map<string, Watched>()

  constructor(log: IncidentLog, options: { readonly slowMs: number; readonly series: SeriesLog }) {
    this.#log = log
    this.#series = options.series
    this.#slowMs = options.slowMs
  }

  /** The number of tracked requests in flight. */
  get size(): number {
    return this.#watched.size
  }

  /** Tracks every request that arrives after this call. */
  register(app: FastifyInstance): void {
    app.addHook('onRequest', async (request, reply) => {
      if (this.#watched.size >= WATCHED_MAX) return
      this.#watched.set(request.id, {})
      // `onResponse` does not run for a client that disconnects before its answer.
      reply.raw.once('close', () => this.#watched.delete(request.id))
    })
    app.addHook('onResponse', async (request, reply) => this.#conclude(request, reply))
  }

  /** Records the job of a tracked request: its model, waiting times and failure. */
  readonly jobs: JobObserver = {
    begin: ({ account, model }) => {
      const series = this.#series
      // Jobs of batches and background requests are counted, but belong to no tracked request.
      const watched: Watched = this.#watched.get(account?.requestId ?? '') ?? {}
      watched.modelId = model.id
      const beganAt = performance.now()
      const sinceBegin = (): number => Math.round(performance.now() - beganAt)
      return {
        onEvent(event) {
          if (event.type === 'started') {
            series.time('queue', sinceBegin())
            watched.queueMs ??= sinceBegin()
          } else if (event.type === 'delta') watched.firstTokenMs ??= sinceBegin()
          else if (event.type === 'result') {
            const { promptTokens, completionTokens } = event.usage
            series.count('prompt_tokens', promptTokens)
            series.count('completion_tokens', completionTokens)
            watched.completionTokens = (watched.completionTokens ?? 0) + completionTokens
          }
        },
        onEnd(end) {
          if (end.outcome === 'failed') watched.failure = normalizeError(end.error).kind
        },
      }
    },
  }

  #countRequest({ durationMs, status }: { durationMs: number; status: number }): void {
    this.#series.count('requests')
    if (status >= 500) this.#series.count('errors')
    else if (status >= 400) this.#series.count('refusals')
    this.#series.time('latency', durationMs)
  }

  #conclude(request: FastifyRequest, reply: FastifyReply): void {
    const watched = this.#watched.get(request.id) ?? {}
    this.#watched.delete(request.id)
    const { failure, ...known } = watched
    const route = request.routeOptions.url ?? ''
    const common = {
      atMs: Date.now(),
      requestId: request.id.slice(0, TEXT_LENGTH_MAX),
      method: request.method,
      route: route.slice(0, TEXT_LENGTH_MAX),
      status: reply.statusCode,
    }
    const { modelId } = known
    const kind = failure ?? KINDS_BY_STATUS.get(reply.statusCode)
    // Pages ask users to sign in with a 401, and probes report an outage: neither is an incident.
    const isExpected = isProbe(route) || (kind === 'unauthenticated' && isPage(route))
    if (kind !== undefined && route !== '' && !isExpected) {
      this.#log.noteFailed({ ...common, kind, ...(modelId !== undefined && { modelId }) })
    }
    const durationMs = Math.round(reply.elapsedTime)
    if (isServed(route))
      this.#countRequest({
        durationMs,
        status: failure === undefined ? reply.statusCode : ERROR_KINDS[failure].status,
      })
    if (durationMs >= this.#slowMs) this.#log.noteSlow({ ...common, durationMs, ...known })
  }
}

/** Probes and pages would hide the requests of clients. */
function isServed(route: string): boolean {
  return route !== '' && !isPage(route) && !isProbe(route) && !/^\/(docs|assets)\b/.test(route)
}

function isProbe(route: string): boolean {
  return /^\/(health|healthz|readyz)$/.test(route)
}

/** Each kind of error has a status of its own. */
const KINDS_BY_STATUS: ReadonlyMap<number, ErrorKind> = new Map(
  Object.entries(ERROR_KINDS).map(([kind, { status }]) => [status, kind as ErrorKind]),
)

function isPage(route: string): boolean {
  return route.startsWith('/admin')
}
