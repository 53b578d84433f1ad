import type { FastifyReply, FastifyRequest } from 'fastify'

import { reportIgnored } from '#api/http/validation.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { accountOf, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { JobEnvelope, QueueKind, QueueTable } from '#shared/contracts/job.ts'
import type { JobTimings, TokenUsage } from '#shared/contracts/reply.ts'

import type { JobEvent, PriorityClass } from './observers.ts'

/** A request and its answer. */
export interface Http {
  readonly request: FastifyRequest
  readonly reply: FastifyReply
}

type Needs = Pick<InferenceServices, 'submitter' | 'clock' | 'config'>

/** One job of a request. */
export interface RequestJob<K extends QueueKind> {
  readonly kind: K
  readonly model: CatalogueModel
  readonly input: QueueTable[K]['input']
  readonly priorityClass?: PriorityClass
}

/** Submits a job for the caller of a request, until the client leaves or the deadline passes. */
export function submitJob<K extends QueueKind>(
  http: Http,
  { submitter, clock, config }: Needs,
  job: RequestJob<K> & { readonly isStream: boolean },
): { readonly events: AsyncGenerator<JobEvent<K>>; readonly timeLeftMs: number } {
  const { request } = http
  const { kind, model, input, priorityClass, isStream } = job
  const trace = traceOf(request)
  const timeLeftMs = deadlineOf(request, config, isStream)
  const durable = request.context.durable?.nextJob()
  const events = submitter.submit<K>({
    kind,
    model,
    input,
    organizationId: callerOf(request).organizationId,
    account: accountOf(request),
    deadlineAtMs: clock.now() + timeLeftMs,
    signal: clientSignal(http),
    ...(priorityClass !== undefined && { priorityClass }),
    ...(trace !== undefined && { trace }),
    ...(durable !== undefined && { durable }),
  })
  return { events: watched(events, (event) => report(http, event)), timeLeftMs }
}

/** Runs one job for a request without a stream, and writes its timings into the headers. */
export async function runJob<K extends QueueKind>(
  http: Http,
  services: Needs,
  job: RequestJob<K> & {
    /** Observes the events of the job; an error thrown here ends the job. */
    readonly watch?: (event: JobEvent<K>) => void
  },
): Promise<JobOutcome<K>> {
  const { events } = submitJob<K>(http, services, { ...job, isStream: false })
  const outcome = await collectResult<K>(watched(events, job.watch))
  http.reply.header('x-queue-time-ms', Math.round(outcome.timings.queueMs))
  http.reply.header('x-inference-time-ms', Math.round(outcome.timings.runMs))
  return outcome
}

const DROPPED_HEADER = 'x-millrace-dropped-messages'

/**
 * Only the worker knows which fields have no effect on its model, and which messages do not fit.
 */
function report({ request, reply }: Http, event: JobEvent): void {
  if (event.type !== 'started') return
  reportIgnored(request, event.ignored ?? [])
  if (event.droppedMessages !== undefined) reply.header(DROPPED_HEADER, event.droppedMessages)
}

async function* watched<K extends QueueKind>(
  events: AsyncGenerator<JobEvent<K>>,
  watch: (event: JobEvent<K>) => void = () => {},
): AsyncGenerator<JobEvent<K>> {
  for await (const event of events) {
    watch(event)
    yield event
  }
}

/**
 * Aborts when the client disconnects before its answer is complete, streamed or not. A complete
 * request under an Idempotency-Key continues without its client, which will ask for the answer
 * again. The request of a background job ends when the job is cancelled.
 */
export function clientSignal({ request, reply }: Http): AbortSignal {
  const abort = new AbortController()
  const { raw } = reply
  const { stored } = request.context
  stored?.signal.addEventListener('abort', () => abort.abort(), { once: true })
  if (stored?.signal.aborted === true) abort.abort()
  const leave = (): void => {
    const isKept = request.context.durable !== undefined && request.raw.complete
    if (!raw.writableEnded && !isKept) abort.abort()
  }
  raw.once('close', leave)
  if (raw.destroyed) leave()
  return abort.signal
}

/**
 * The time limit of a request in milliseconds: the installation's limit, or less when the client
 * states a shorter time-out. For a stream the client's time-out applies to each read, so it is
 * ignored; under an Idempotency-Key the next try continues to wait.
 */
function deadlineOf(
  request: FastifyRequest,
  config: { readonly deadlineSeconds: number },
  isStream: boolean,
): number {
  const limitMs = config.deadlineSeconds * 1000
  if (isStream || request.context.durable !== undefined) return limitMs
  const { headers } = request
  const seconds = Number(headers['x-stainless-timeout'] ?? headers['x-stainless-read-timeout'])
  return seconds > 0 ? Math.min(limitMs, seconds * 1000) : limitMs
}

const TRACEPARENT = /^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/
const TRACESTATE_LENGTH_MAX = 512

/** The W3C trace context that the client sent, if it is well formed. */
function traceOf(request: FastifyRequest): JobEnvelope['trace'] {
  const { traceparent, tracestate } = request.headers
  if (typeof traceparent !== 'string' || !TRACEPARENT.test(traceparent)) return undefined
  const isStateUsable = typeof tracestate === 'string' && tracestate.length <= TRACESTATE_LENGTH_MAX
  return { traceparent, ...(isStateUsable && { tracestate }) }
}

/** The outcome of a complete job. */
export interface JobOutcome<K extends QueueKind> {
  readonly result: QueueTable[K]['result']
  readonly usage: TokenUsage
  readonly timings: JobTimings
}

/** Waits for the result of a job whose answer is not a stream. */
export async function collectResult<K extends QueueKind>(
  events: AsyncIterable<JobEvent<K>>,
): Promise<JobOutcome<K>> {
  for await (const event of events) {
    if (event.type === 'result') {
      const { result, usage, timings } = event
      return { result: result as QueueTable[K]['result'], usage, timings }
    }
  }
  throw new Error('the job ended without a result')
}
