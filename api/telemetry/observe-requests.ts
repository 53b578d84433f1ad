import type { Context, Span } from '@opentelemetry/api'
import type { FastifyRequest } from 'fastify'

import { reportedFields } from '#api/http/validation.ts'
import type { JobEnd, JobObserver, SubmitRequest } from '#api/jobs/observers.ts'
import { type QueueKind, queueName } from '#shared/contracts/job.ts'
import { genAiLabels } from '#shared/telemetry/gen-ai.ts'
import {
  carrierOf,
  type EnabledTracing,
  errorType,
  failSpan,
  type Tracing,
} from '#shared/telemetry/tracing.ts'

import type { ApiMetrics } from './metrics.ts'

/** A request in flight. */
interface ObservedRequest {
  /** The id of its trace; undefined where it has none. */
  readonly traceId: string | undefined
  /** Runs work in the trace context of the request. */
  run(next: () => void): void
  /** Ends the observation with the sent status; 499 when the client disconnected first. */
  end(status: number): void
}

/** Observes every request: its duration, and a span when tracing is on. */
export interface HttpObserver {
  begin(request: FastifyRequest): ObservedRequest
  /**
   * Restores the trace context of a request after an asynchronous step, such as reading the body.
   */
  resume(request: FastifyRequest, next: () => void): void
}

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/** A route template in the form of the specification, `/admin/users/{user_id}`. */
function routeOf(request: FastifyRequest): string {
  const url = request.routeOptions.url
  // One label for all unknown paths, because clients choose them.
  return url === undefined ? 'unknown' : url.replace(/:(\w+)/g, '{$1}')
}

/** Records metrics and traces. */
export function createHttpObserver(
  metrics: Pick<ApiMetrics, 'httpDuration' | 'httpActive' | 'ignoredParameters'>,
  tracing: Tracing,
): HttpObserver {
  return {
    begin(request) {
      const begunAtMs = performance.now()
      const method = METHODS.has(request.method) ? request.method : '_OTHER'
      metrics.httpActive.inc({ http_request_method: method })
      const route = routeOf(request)
      const span = tracing.isEnabled ? startSpan(tracing, request, { method, route }) : undefined
      if (span !== undefined) request.context.trace = span.context
      return {
        traceId: span?.span.spanContext().traceId,
        run: (next) => (span === undefined ? next() : span.within(next)),
        end(status) {
          metrics.httpActive.dec({ http_request_method: method })
          if (reportedFields(request).length > 0)
            metrics.ignoredParameters.inc({ http_route: route })
          metrics.httpDuration.observe(
            {
              http_request_method: method,
              http_route: route,
              http_response_status_code: String(status),
            },
            (performance.now() - begunAtMs) / 1000,
          )
          span?.end(status)
        },
      }
    },
    resume(request, next) {
      const { trace } = request.context
      if (trace === undefined || !tracing.isEnabled) next()
      else tracing.api.context.with(trace, next)
    },
  }
}

interface RequestSpan {
  readonly span: Span
  readonly context: Context
  within(next: () => void): void
  end(status: number): void
}

function startSpan(
  { tracer, api }: EnabledTracing,
  request: FastifyRequest,
  { method, route }: { readonly method: string; readonly route: string },
): RequestSpan {
  const { context, propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } = api
  const parent = propagation.extract(ROOT_CONTEXT, request.headers)
  // Without a route, or behind a wildcard, parameters are arbitrary client input.
  const isKnown = request.routeOptions.url !== undefined
  const params = Object.entries((request.params ?? {}) as Record<string, unknown>).filter(
    ([key]) => isKnown && key !== '*',
  )
  const span = tracer.startSpan(
    `${method} ${route}`,
    {
      kind: SpanKind.SERVER,
      attributes: {
        'http.method': method,
        'http.route': route,
        'millrace.request_id': request.id,
        ...Object.fromEntries(
          params.map(([key, value]) => [`http.route.params.${key}`, String(value)]),
        ),
      },
    },
    parent,
  )
  const own = trace.setSpan(parent, span)
  return {
    span,
    context: own,
    within: (next) => context.with(own, next),
    end(status) {
      span.setAttribute('http.status_code', status)
      if (status >= 500) span.setStatus({ code: SpanStatusCode.ERROR })
      span.end()
    },
  }
}

type JobMetrics = Pick<ApiMetrics, 'jobDuration' | 'resubmissions' | 'cancellations'>

/** Records the duration and outcome of jobs, and a span over all runs of each. */
export function createJobObserver(metrics: JobMetrics, tracing: Tracing): JobObserver {
  /** The spans of jobs in flight. */
  const spans = new Map<string, Span>()
  return {
    begin(request) {
      const { jobId, kind, model, input } = request
      const labels = genAiLabels({ kind, modelId: model.id, input })
      const begunAtMs = performance.now()
      const span = tracing.isEnabled ? startJobSpan(tracing, request) : undefined
      if (span !== undefined) spans.set(jobId, span.span)
      return {
        trace: span?.carrier,
        onEnd(end) {
          if (end.outcome === 'left') {
            metrics.cancellations.inc({ kind, gen_ai_request_model: model.id })
            span?.span.setAttribute('millrace.job.outcome', 'cancelled')
          }
          if (end.outcome === 'failed' && span !== undefined) span.fail(end.error)
          const seconds = (performance.now() - begunAtMs) / 1000
          metrics.jobDuration.observe({ ...labels, error_type: errorTypeOf(end) }, seconds)
          spans.delete(jobId)
          span?.span.end()
        },
      }
    },
    onResubmit({ jobId, kind, modelId, epoch }) {
      metrics.resubmissions.inc({ kind, gen_ai_request_model: modelId })
      spans.get(jobId)?.addEvent('job.resubmit', { 'millrace.job.epoch': epoch })
    },
  }
}

/** The label of an ending; empty for a job that finished. */
function errorTypeOf(end: JobEnd): string {
  if (end.outcome === 'failed') return errorType(end.error)
  return end.outcome === 'left' ? 'cancelled' : ''
}

interface JobSpan {
  readonly span: Span
  /** Continues the trace in the worker. */
  readonly carrier: ReturnType<typeof carrierOf>
  fail(error: unknown): void
}

function startJobSpan(tracing: EnabledTracing, { kind, model }: SubmitRequest<QueueKind>): JobSpan {
  const { context, SpanKind, trace } = tracing.api
  // A child of the request's span; a batch job has no request and starts its own trace.
  const parent = context.active()
  const queue = queueName(kind, model.id)
  const span = tracing.tracer.startSpan(
    `send ${queue}`,
    {
      kind: SpanKind.PRODUCER,
      attributes: {
        'messaging.system': 'bullmq',
        'messaging.destination.name': queue,
        'gen_ai.request.model': model.id,
      },
    },
    parent,
  )
  return {
    span,
    carrier: carrierOf(tracing, trace.setSpan(parent, span)),
    fail: (error) => failSpan(tracing, span, error),
  }
}
