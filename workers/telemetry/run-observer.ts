import type { Context, Span } from '@opentelemetry/api'

import type { Clock } from '#shared/clock.ts'
import type { ResumePoint } from '#shared/contracts/completion.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import { queueName } from '#shared/contracts/job.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import { type GenAiLabels, genAiLabels } from '#shared/telemetry/gen-ai.ts'
import {
  contextFrom,
  DISCARD,
  type EnabledTracing,
  failSpan,
  type Tracing,
} from '#shared/telemetry/tracing.ts'

import type { WorkerMetrics } from './metrics.ts'
import type { SpanSettler } from './span-settler.ts'

/** How a run ended on this worker. */
type RunOutcome = 'finished' | 'failed' | 'cancelled' | 'yielded' | 'orphaned'

/** Observes the runs of a worker. */
export interface RunObserver {
  begin(envelope: JobEnvelope): ObservedRun
}

/** One run of a job. */
export interface ObservedRun {
  /** Runs work in the trace of the job. */
  within<T>(work: () => Promise<T>): Promise<T>
  started(promptTokens: number): void
  /** New tokens of one candidate, streamed or not. */
  tokens(candidate: number, count: number): void
  result(usage: TokenUsage): void
  /** Ends the observation; later calls are ignored. */
  end(outcome: RunOutcome, error?: unknown): void
}

/** Collaborators of an observer. */
interface RunObserverTools {
  readonly metrics: WorkerMetrics
  readonly tracing: Tracing
  readonly settler: SpanSettler
  readonly clock: Clock
}

/** Records metrics and traces. */
export function createRunObserver(tools: RunObserverTools): RunObserver {
  return { begin: (envelope) => new Run(envelope, tools) }
}

class Run implements ObservedRun {
  readonly #envelope: JobEnvelope
  readonly #tools: RunObserverTools
  readonly #labels: GenAiLabels
  readonly #model: { readonly kind: string; readonly gen_ai_request_model: string }
  /** Bound to its labels once, because it is recorded for every token. */
  readonly #perToken: { observe(seconds: number): void }
  readonly #traced: TracedRun | undefined
  /** The model's share, starting when the input is known to be valid. */
  #modelSpan: Span | undefined
  readonly #startedAtMs: number
  #firstTokenAtMs: number | undefined
  readonly #lastTokenAtMs = new Map<number, number>()
  /** The tokens of each candidate, including those of earlier runs. */
  readonly #candidateTokens = new Map<number, number>()
  #promptTokens: number | undefined
  #outputTokens = 0
  #hasEnded = false

  constructor(envelope: JobEnvelope, tools: RunObserverTools) {
    this.#envelope = envelope
    this.#tools = tools
    this.#labels = genAiLabels(envelope)
    this.#perToken = tools.metrics.timePerOutputToken.labels({ ...this.#labels })
    this.#model = { kind: envelope.kind, gen_ai_request_model: envelope.modelId }
    this.#startedAtMs = tools.clock.monotonic()
    for (const { index, tokenIds } of resumePointsOf(envelope)) {
      this.#candidateTokens.set(index, tokenIds.length)
    }
    const waitMs = Math.max(tools.clock.now() - envelope.enqueuedAtMs, 0)
    // A resubmitted job waited once already, in its first epoch.
    if (envelope.epoch === 1) {
      tools.metrics.queueWait.observe({ ...this.#labels }, waitMs / 1000)
      this.#observeAmounts()
    }
    const { tracing } = tools
    this.#traced = tracing.isEnabled ? traceRun(tracing, envelope, waitMs) : undefined
  }

  within<T>(work: () => Promise<T>): Promise<T> {
    if (this.#traced === undefined) return work()
    const { tracing, context } = this.#traced
    return tracing.api.context.with(context, work)
  }

  started(promptTokens: number): void {
    this.#promptTokens = promptTokens
    if (this.#traced === undefined) return
    const { tracing, context } = this.#traced
    const { gen_ai_operation_name: operation, gen_ai_request_model: model } = this.#labels
    this.#modelSpan = tracing.tracer.startSpan(
      `${operation} ${model}`,
      {
        attributes: {
          'gen_ai.operation.name': operation,
          'gen_ai.provider.name': this.#labels.gen_ai_provider_name,
          'gen_ai.request.model': model,
          'gen_ai.usage.input_tokens': promptTokens,
        },
      },
      context,
    )
  }

  tokens(candidate: number, count: number): void {
    if (count === 0) return
    const { metrics, clock } = this.#tools
    const nowMs = clock.monotonic()
    const lastMs = this.#lastTokenAtMs.get(candidate)
    const isFirst = this.#lastTokenAtMs.size === 0
    this.#firstTokenAtMs ??= nowMs
    this.#lastTokenAtMs.set(candidate, nowMs)
    this.#outputTokens += count
    const written = this.#candidateTokens.get(candidate) ?? 0
    this.#candidateTokens.set(candidate, written + count)
    if (lastMs !== undefined) {
      // Several tokens of one speculative step share its time.
      const seconds = (nowMs - lastMs) / count / 1000
      for (let n = 0; n < count; n += 1) this.#perToken.observe(seconds)
    } else if (isFirst && this.#envelope.epoch === 1) {
      const sinceMs = Math.max(clock.now() - this.#envelope.enqueuedAtMs, 0)
      metrics.timeToFirstToken.observe({ ...this.#labels }, sinceMs / 1000)
      this.#modelSpan?.addEvent('gen_ai.first_token')
    }
  }

  result({ promptTokens, completionTokens, cachedTokens }: TokenUsage): void {
    const { prefixQueries, prefixHits } = this.#tools.metrics
    if (this.#envelope.kind === 'completion') {
      prefixQueries.inc(this.#model, promptTokens)
      prefixHits.inc(this.#model, cachedTokens)
    }
    this.#promptTokens = promptTokens
    this.#outputTokens = completionTokens
    this.#modelSpan?.setAttribute('millrace.usage.cached_tokens', cachedTokens)
  }

  end(outcome: RunOutcome, error?: unknown): void {
    if (this.#hasEnded) return
    this.#hasEnded = true
    const { metrics } = this.#tools
    metrics.runs.inc({ ...this.#model, outcome })
    const isOver = outcome !== 'yielded' && this.#promptTokens !== undefined
    if (isOver) {
      const usage = { input: this.#promptTokens ?? 0, output: this.#outputTokens }
      for (const [type, count] of Object.entries(usage)) {
        metrics.tokenUsage.observe({ ...this.#labels, gen_ai_token_type: type }, count)
      }
      if (this.#candidateTokens.size > 0) {
        const longest = Math.max(...this.#candidateTokens.values())
        metrics.longestCandidate.observe({ ...this.#labels }, longest)
      }
    }
    if (outcome === 'finished') this.#observePhases()
    this.#endSpans(outcome, error)
  }

  #observeAmounts(): void {
    const { input } = this.#envelope
    if (!('maxTokens' in input)) return
    const { requestedAmounts } = this.#tools.metrics
    const { n, maxTokens } = input
    requestedAmounts.observe({ ...this.#labels, parameter: 'n' }, n)
    if (maxTokens === null) return
    requestedAmounts.observe({ ...this.#labels, parameter: 'max_tokens' }, maxTokens)
  }

  #observePhases(): void {
    if (this.#firstTokenAtMs === undefined) return
    const endedAtMs = this.#tools.clock.monotonic()
    const phases = {
      prefill: this.#firstTokenAtMs - this.#startedAtMs,
      decode: endedAtMs - this.#firstTokenAtMs,
      inference: endedAtMs - this.#startedAtMs,
    }
    for (const [phase, ms] of Object.entries(phases)) {
      this.#tools.metrics.runPhases.observe({ ...this.#labels, phase }, ms / 1000)
    }
  }

  #endSpans(outcome: RunOutcome, error: unknown): void {
    if (this.#traced === undefined) return
    const { tracing, span } = this.#traced
    this.#modelSpan?.setAttribute('gen_ai.usage.output_tokens', this.#outputTokens)
    span.setAttribute('millrace.run.outcome', outcome)
    if (outcome === 'failed') {
      for (const each of [this.#modelSpan, span]) if (each) failSpan(tracing, each, error)
    }
    const [modelSpan, endedAtMs] = [this.#modelSpan, Date.now()]
    const settle = (isOwnerAlive: boolean): void => {
      if (!isOwnerAlive) span.setAttribute(DISCARD, true)
      modelSpan?.end(endedAtMs)
      span.end(endedAtMs)
    }
    const { isOwnerless, replyTo } = this.#envelope
    if (isOwnerless === true || outcome === 'orphaned') settle(isOwnerless === true)
    else this.#tools.settler.settle(replyTo, settle)
  }
}

/** The span of a run, and the context in which the run works. */
interface TracedRun {
  readonly tracing: EnabledTracing
  readonly span: Span
  readonly context: Context
}

function traceRun(tracing: EnabledTracing, envelope: JobEnvelope, waitMs: number): TracedRun {
  const { SpanKind, trace } = tracing.api
  const { kind, modelId, epoch, jobId } = envelope
  const parent = contextFrom(tracing, envelope.trace)
  const queue = queueName(kind, modelId)
  const span = tracing.tracer.startSpan(
    `process ${queue}`,
    {
      kind: SpanKind.CONSUMER,
      attributes: {
        'messaging.system': 'bullmq',
        'messaging.destination.name': queue,
        'messaging.message.id': jobId,
        'millrace.job.epoch': epoch,
        'millrace.queue.wait_ms': waitMs,
      },
    },
    parent,
  )
  return { tracing, span, context: trace.setSpan(parent, span) }
}

/** The tokens that earlier runs of a job have delivered. */
function resumePointsOf({ input }: JobEnvelope): readonly ResumePoint[] {
  return ('resume' in input ? input.resume : undefined) ?? []
}
