import { setImmediate } from 'node:timers/promises'

import type { CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { WorkerConfig } from '#shared/config/inference.ts'
import type { CandidateDelta, SamplingDefaults } from '#shared/contracts/completion.ts'
import type { JobEnvelope, QueueKind, QueueTable } from '#shared/contracts/job.ts'
import type { JobTimings, StartReport, TokenUsage } from '#shared/contracts/reply.ts'
import type { Logger } from '#shared/logger.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

/** What a model is opened with. */
export interface OpenTools {
  /** Where its files lie. */
  readonly folder: string
  readonly slots: number
  readonly runtime: Runtime
  readonly storage: ObjectStore
  readonly config: WorkerConfig
  readonly clock: Clock
  readonly log: Logger
  /** Receives how many sequences, texts or pairs each run of the model handles together. */
  readonly onBatch?: (size: number) => void
}

/** Jobs and work of an open model, for its heartbeat. */
export interface ModelStats {
  readonly waiting: number
  /** Since the model was opened. */
  readonly tokens: number
  readonly cacheUse: number
}

/** A model that answers the jobs of one queue. */
export interface OpenModel {
  readonly bytes: number
  /** In tokens; absent where the model reads none. */
  readonly contextLength?: number
  /** What the model's files say about sampling. */
  readonly samplingDefaults?: SamplingDefaults
  process(job: JobEnvelope, tools: Omit<JobTools<unknown>, 'model'>): Promise<void>
  stats(): ModelStats
  close(): Promise<void>
}

/** How the jobs of one kind are done. */
export interface ProcessorRow {
  readonly kind: QueueKind
  /** Jobs at a time, unless the catalogue says otherwise. */
  readonly slots: number
  open(model: CatalogueModel, tools: OpenTools): Promise<OpenModel>
}

/** A processor and the model that it asks. */
interface ProcessorSpec<K extends QueueKind, Model> {
  readonly kind: K
  readonly slots: number
  open(model: CatalogueModel, tools: OpenTools): Promise<{ opened: Model; bytes: number }>
  process(job: JobEnvelope<K>, tools: JobTools<Model, K>): Promise<void>
  stats(opened: Model): ModelStats
  /** In tokens; models that read none are without. */
  contextLengthOf?(opened: Model): number
  samplingDefaultsOf?(opened: Model): SamplingDefaults | undefined
  close(opened: Model): Promise<void>
}

/** Makes a row of a processor and its model, whose type stays between the two. */
export function defineProcessor<K extends QueueKind, Model>(
  spec: ProcessorSpec<K, Model>,
): ProcessorRow {
  return {
    kind: spec.kind,
    slots: spec.slots,
    async open(model, tools) {
      const { opened, bytes } = await spec.open(model, tools)
      const contextLength = spec.contextLengthOf?.(opened)
      const samplingDefaults = spec.samplingDefaultsOf?.(opened) ?? {}
      return {
        bytes,
        ...(contextLength !== undefined && { contextLength }),
        ...(Object.keys(samplingDefaults).length > 0 && { samplingDefaults }),
        // The worker checked that the envelope is of this kind.
        process: (job, jobTools) =>
          spec.process(job as JobEnvelope<K>, { ...jobTools, model: opened } as JobTools<Model, K>),
        stats: () => spec.stats(opened),
        close: () => spec.close(opened),
      }
    },
  }
}

/** How the sessions of a model are opened: its own settings before those of the worker. */
export function sessionOptionsOf(
  { options }: CatalogueModel,
  config: WorkerConfig,
): SessionOptions {
  const { executionProvider } = options
  const intraOpThreads = options.intraOpThreads ?? config.intraOpThreads
  return {
    ...(intraOpThreads > 0 && { intraOpThreads }),
    ...(executionProvider !== undefined && { executionProvider }),
  }
}

/** How a processor answers a job; nothing waits, the worker sends what has gathered. */
export interface JobReplies<K extends QueueKind = QueueKind> {
  started(promptTokens: number, report?: StartReport): void
  delta(deltas: readonly CandidateDelta[]): void
  /** Reports new tokens of a candidate for the metrics, whether or not they are sent. */
  noteTokens?(candidate: number, count: number): void
  /** `text` is what a window of a recording says, where that is wanted at once. */
  progress(step: number, steps: number, text?: string): void
  result(result: QueueTable[K]['result'], usage: TokenUsage, timings: JobTimings): void
}

/** What a processor gets beside its job. Failures are thrown; the worker turns them into replies. */
export interface JobTools<Model, K extends QueueKind = QueueKind> {
  readonly model: Model
  readonly reply: JobReplies<K>
  readonly signal: AbortSignal
  readonly clock: Clock
}

/**
 * Does all tasks at once. The first failure aborts the others' signal and is thrown once all of them
 * have ended, so that nothing of a job outlives it.
 */
export async function allOrNone<Value>(
  signal: AbortSignal,
  tasks: readonly ((signal: AbortSignal) => Promise<Value>)[],
): Promise<Value[]> {
  const failed = new AbortController()
  const either = AbortSignal.any([signal, failed.signal])
  const running = tasks.map((task) => task(either))
  try {
    return await Promise.all(running)
  } catch (error) {
    failed.abort()
    await Promise.allSettled(running)
    throw error
  }
}

// Short against the heartbeat of a worker and against one step of the engines beside it.
const TURN_MS = 10

/**
 * For loops that compute without waiting: lets everything else in the process have its turn once the
 * loop has run for a while.
 */
export function yieldToEventLoop(clock: Clock): () => Promise<void> {
  let startedAtMs = clock.monotonic()
  return async () => {
    if (clock.monotonic() - startedAtMs < TURN_MS) return
    await setImmediate()
    startedAtMs = clock.monotonic()
  }
}
