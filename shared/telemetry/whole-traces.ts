import type { Context } from '@opentelemetry/api'
import { trace } from '@opentelemetry/api'
import type { ReadableSpan, Span, SpanProcessor } from '@opentelemetry/sdk-trace'

import { DISCARD } from './tracing.ts'

const SPANS_PER_ROOT_MAX = 500
const ROOTS_MAX = 10_000

/**
 * Passes the spans of a request or job on when the first of them in this process ends. A process
 * that is killed in between thereby leaves no spans whose parent never arrives: either all that it
 * did for the request is told, or nothing is.
 */
export class WholeTraces implements SpanProcessor {
  readonly #next: SpanProcessor
  /** Ended spans by the span that must end before they are told. */
  readonly #held = new Map<object, ReadableSpan[]>()
  readonly #rootOf = new WeakMap<object, object>()

  constructor(next: SpanProcessor) {
    this.#next = next
  }

  onStart(span: Span, parentContext: Context): void {
    this.#next.onStart(span, parentContext)
    const parent = trace.getSpan(parentContext)
    const root = parent === undefined ? undefined : this.#rootOf.get(parent)
    this.#rootOf.set(span, root ?? span)
    if (root !== undefined) return
    this.#held.set(span, [])
    const oldest = this.#held.keys().next()
    // A root that never ends, which would be a bug, must not fill the memory.
    if (this.#held.size > ROOTS_MAX && oldest.done !== true) this.#held.delete(oldest.value)
  }

  onEnd(span: ReadableSpan): void {
    const root = this.#rootOf.get(span)
    const held = root === undefined ? undefined : this.#held.get(root)
    if (held === undefined) {
      // Its root was told already.
      this.#next.onEnd(span)
      return
    }
    if (root !== span) {
      if (held.length < SPANS_PER_ROOT_MAX) held.push(span)
      return
    }
    this.#held.delete(root)
    if (span.attributes[DISCARD] === true) return
    for (const inner of withKnownParents(held, span)) this.#next.onEnd(inner)
    this.#next.onEnd(span)
  }

  forceFlush(): Promise<void> {
    return this.#next.forceFlush()
  }

  async shutdown(): Promise<void> {
    this.#held.clear()
    await this.#next.shutdown()
  }
}

/** Leaves out the spans below one that has not ended, which will be told alone or never. */
function withKnownParents(held: readonly ReadableSpan[], root: ReadableSpan): ReadableSpan[] {
  const known = new Set([root, ...held].map((span) => span.spanContext().spanId))
  let spans = [...held]
  for (;;) {
    const kept = spans.filter(({ parentSpanContext }) => known.has(parentSpanContext?.spanId ?? ''))
    if (kept.length === spans.length) return kept
    for (const span of spans) if (!kept.includes(span)) known.delete(span.spanContext().spanId)
    spans = kept
  }
}
