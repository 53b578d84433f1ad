import {
  type Attributes,
  context,
  type Context,
  propagation,
  ROOT_CONTEXT,
  type Span,
  type SpanKind,
  SpanStatusCode,
  trace,
  type Tracer,
} from '@opentelemetry/api'

/** W3C trace context as it travels: in the headers of a request and in the envelope of a job. */
export interface TraceCarrier {
  readonly traceparent: string
  readonly tracestate?: string
}

/** How spans are made; without an SDK behind it, everything here costs next to nothing. */
export interface Tracing {
  readonly isEnabled: boolean
  readonly tracer: Tracer
}

/** A span of this attribute, and all below it, is not told: whoever waited for it is gone. */
export const DISCARD = 'millrace.discard'

/** Tracing that is switched off. */
export const NO_TRACING: Tracing = { isEnabled: false, tracer: trace.getTracer('millrace') }

/** The context that a carrier brings; the root when it brings none. */
export function contextFrom(carrier: TraceCarrier | undefined): Context {
  return carrier === undefined ? ROOT_CONTEXT : propagation.extract(ROOT_CONTEXT, carrier)
}

/** What takes a context elsewhere; undefined when it is of no trace. */
export function carrierOf(from: Context): TraceCarrier | undefined {
  const carrier: { traceparent?: string; tracestate?: string } = {}
  propagation.inject(from, carrier)
  const { traceparent, tracestate } = carrier
  if (traceparent === undefined) return undefined
  return { traceparent, ...(tracestate !== undefined && { tracestate }) }
}

/**
 * Runs work in a span below the present one, which it ends. Work that belongs to no trace, such as
 * that of timers, gets none: it would only be noise.
 */
export async function inChildSpan<T>(
  { isEnabled, tracer }: Tracing,
  span: { readonly name: string; readonly kind: SpanKind; readonly attributes: Attributes },
  work: () => Promise<T>,
): Promise<T> {
  if (!isEnabled || trace.getActiveSpan() === undefined) return work()
  const { name, kind, attributes } = span
  const child = tracer.startSpan(name, { kind, attributes })
  try {
    return await context.with(trace.setSpan(context.active(), child), work)
  } catch (error) {
    failSpan(child, error)
    throw error
  } finally {
    child.end()
  }
}

/** Marks a span as failed by the kind of the error: messages may quote what was sent. */
export function failSpan(span: Span, error: unknown): void {
  span.setStatus({ code: SpanStatusCode.ERROR })
  span.setAttribute('error.type', errorType(error))
}

/** A word of a closed set that says what went wrong. */
export function errorType(error: unknown): string {
  if (typeof error !== 'object' || error === null) return '_OTHER'
  if ('kind' in error && typeof error.kind === 'string') return error.kind
  return error instanceof Error ? error.name : '_OTHER'
}
