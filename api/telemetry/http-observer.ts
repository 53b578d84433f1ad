import {
  context,
  type Context,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api'
import type { FastifyRequest } from 'fastify'

import type { Tracing } from '#shared/telemetry/tracing.ts'

import type { ApiMetrics } from './metrics.ts'

/** A request that is being answered. */
export interface ObservedRequest {
  /** Goes on in the trace of the request. */
  run(next: () => void): void
  /** The status that was sent; 499 when the client left before the end. */
  end(status: number): void
}

/** Watches every request: its duration, and a span around it when tracing is on. */
export interface HttpObserver {
  begin(request: FastifyRequest): ObservedRequest
  /** Goes on in the trace of a request after something, such as its body, was waited for. */
  resume(request: FastifyRequest, next: () => void): void
}

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/** The path of a route as the specification writes it, `/admin/users/{user_id}`. */
export function routeOf(request: FastifyRequest): string {
  const url = request.routeOptions.url
  // What no route answers is told apart by nothing: paths are the client's own.
  return url === undefined ? 'unknown' : url.replace(/:(\w+)/g, '{$1}')
}

/** Observes by metrics and traces. */
export function createHttpObserver(
  metrics: Pick<ApiMetrics, 'httpDuration' | 'httpActive'>,
  tracing: Tracing,
): HttpObserver {
  const contexts = new WeakMap<FastifyRequest, Context>()
  return {
    begin(request) {
      const begunAtMs = performance.now()
      const method = METHODS.has(request.method) ? request.method : '_OTHER'
      metrics.httpActive.inc({ http_request_method: method })
      const route = routeOf(request)
      const span = tracing.isEnabled ? startSpan(tracing, request, { method, route }) : undefined
      if (span !== undefined) contexts.set(request, span.context)
      return {
        run: (next) => (span === undefined ? next() : context.with(span.context, next)),
        end(status) {
          metrics.httpActive.dec({ http_request_method: method })
          metrics.httpDuration.observe(
            {
              http_request_method: method,
              http_route: route,
              http_response_status_code: String(status),
            },
            (performance.now() - begunAtMs) / 1000,
          )
          if (span !== undefined) endSpan(span.span, status)
        },
      }
    },
    resume(request, next) {
      const found = contexts.get(request)
      if (found === undefined) next()
      else context.with(found, next)
    },
  }
}

function startSpan(
  { tracer }: Tracing,
  request: FastifyRequest,
  { method, route }: { readonly method: string; readonly route: string },
): { span: Span; context: Context } {
  const parent = propagation.extract(ROOT_CONTEXT, request.headers)
  // Without a route, or behind an asterisk, there are no parameters but whatever somebody typed.
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
  return { span, context: trace.setSpan(parent, span) }
}

function endSpan(span: Span, status: number): void {
  span.setAttribute('http.status_code', status)
  if (status >= 500) span.setStatus({ code: SpanStatusCode.ERROR })
  span.end()
}
