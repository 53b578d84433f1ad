import type { Context } from '@opentelemetry/api'
import { trace } from '@opentelemetry/api'
import type { ReadableSpan, Span, SpanProcessor } from '@opentelemetry/sdk-trace'

import { DISCARD } from './tracing.ts'

const SPANS_PER_ROOT_MAX = 500
const ROOTS_MAX = 10_000

/**
 * Exports the spans of a request or job together when its first span in this process ends, so that
 * a killed process leaves no span without its parent.
 */
export class WholeTraces implements SpanProcessor {
  readonly #next: SpanProcessor
  /** Ended spans by the root span that releases them. */
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
    // Bounds the memory of a root that never ends.
    if (this.#held.size > ROOTS_MAX && oldest.done !== true) this.#held.delete(oldest.value)
  }

  onEnd(span: ReadableSpan): void {
    const root = this.#rootOf.get(span)
    const held = root === undefined ? undefined : this.#held.get(root)
    if (held === undefined) {
      // The root has already been exported.
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

/** Omits spans below an unfinished span; they are exported alone or never. */
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
