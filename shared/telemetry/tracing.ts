import type { Attributes, Context, Span, SpanKind, Tracer } from '@opentelemetry/api'

/** W3C trace context, in request headers and job envelopes. */
interface TraceCarrier {
  readonly traceparent: string
  readonly tracestate?: string
}

/** Creates spans, by OpenTelemetry's API. */
export interface EnabledTracing {
  readonly isEnabled: true
  readonly tracer: Tracer
  readonly api: typeof import('@opentelemetry/api')
}

/** Only a process with tracing loads OpenTelemetry's API, which has a hundred modules. */
export type Tracing = EnabledTracing | { readonly isEnabled: false }

/** A span with this attribute and all spans below it are dropped: its client has disconnected. */
export const DISCARD = 'millrace.discard'

/** Disabled tracing. */
export const NO_TRACING: Tracing = { isEnabled: false }

/** The context of a carrier; the root context when it has none. */
export function contextFrom(
  { api: { propagation, ROOT_CONTEXT } }: EnabledTracing,
  carrier: TraceCarrier | undefined,
): Context {
  return carrier === undefined ? ROOT_CONTEXT : propagation.extract(ROOT_CONTEXT, carrier)
}

/** The carrier of a context; undefined outside a trace. */
export function carrierOf(
  { api: { propagation } }: EnabledTracing,
  from: Context,
): TraceCarrier | undefined {
  const carrier: { traceparent?: string; tracestate?: string } = {}
  propagation.inject(from, carrier)
  const { traceparent, tracestate } = carrier
  if (traceparent === undefined) return undefined
  return { traceparent, ...(tracestate !== undefined && { tracestate }) }
}

/**
 * Runs work in a child span of the current one and ends it. Work outside a trace, such as that of
 * timers, gets no span.
 */
export async function inChildSpan<T>(
  tracing: Tracing,
  span: {
    readonly name: string
    readonly kind: keyof typeof SpanKind
    readonly attributes: Attributes
  },
  work: () => Promise<T>,
): Promise<T> {
  if (!tracing.isEnabled) return work()
  const { trace, context, SpanKind } = tracing.api
  if (trace.getActiveSpan() === undefined) return work()
  const { name, attributes } = span
  const child = tracing.tracer.startSpan(name, { kind: SpanKind[span.kind], attributes })
  try {
    return await context.with(trace.setSpan(context.active(), child), work)
  } catch (error) {
    failSpan(tracing, child, error)
    throw error
  } finally {
    child.end()
  }
}

/** Marks a span as failed with the kind of the error, because messages may quote the request. */
export function failSpan({ api }: EnabledTracing, span: Span, error: unknown): void {
  span.setStatus({ code: api.SpanStatusCode.ERROR })
  span.setAttribute('error.type', errorType(error))
}

/** The kind of an error, from a closed set. */
export function errorType(error: unknown): string {
  if (typeof error !== 'object' || error === null) return '_OTHER'
  if ('kind' in error && typeof error.kind === 'string') return error.kind
  return error instanceof Error ? error.name : '_OTHER'
}
