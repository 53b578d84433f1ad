import { setImmediate } from 'node:timers/promises'

import type { CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { WorkerConfig } from '#shared/config/inference.ts'
import type { SpokenToken } from '#shared/contracts/audio.ts'
import type { CandidateDelta, SamplingDefaults } from '#shared/contracts/completion.ts'
import type { PartialImage } from '#shared/contracts/image.ts'
import type { JobEnvelope, QueueKind, QueueTable } from '#shared/contracts/job.ts'
import type { JobTimings, StartReport, TokenUsage } from '#shared/contracts/reply.ts'
import type { SpeechAudio } from '#shared/contracts/speech.ts'
import type { TrainingProgress } from '#shared/contracts/training.ts'
import type { Logger } from '#shared/logger.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import type { StoredOptions } from '#workers/models/stored-cache.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'

/** The arguments of `open`. */
export interface OpenTools {
  /** The folder of its files. */
  readonly folder: string
  readonly slots: number
  /** The most slots while the memory of `slots` holds their texts. */
  readonly slotsMax: number
  readonly runtime: Runtime
  readonly storage: ObjectStore
  /** How further files of the model are fetched. */
  readonly fetchOptions: StoredOptions
  readonly config: WorkerConfig
  readonly clock: Clock
  readonly log: Logger
  /**
   * Receives the number of sequences, texts or pairs of each run and, for text models, the tokens
   * that the run reads and writes.
   */
  readonly onBatch?: (size: number, tokens?: number) => void
}

/** Jobs and work of an open model, for its heartbeat. */
export interface ModelStats {
  /** Jobs that currently fit into memory; absent if their number is fixed. */
  readonly slots?: number
  readonly waiting: number
  /** Since the model was opened. */
  readonly tokens: number
  readonly cacheUse: number
}

/** A model that answers the jobs of one queue. */
export interface OpenModel {
  readonly bytes: number
  /** In tokens; absent if the model reads none. */
  readonly contextLength?: number
  /** The number of labels of a classifier. */
  readonly labelCount?: number
  /** Sampling defaults of the model's files. */
  readonly samplingDefaults?: SamplingDefaults
  /** The names of the voices of a model that speaks. */
  readonly voices?: readonly string[]
  process(job: JobEnvelope, tools: Omit<JobTools<unknown>, 'model'>): Promise<void>
  stats(): ModelStats
  close(): Promise<void>
}

/** The processor of one kind of job. */
export interface ProcessorRow {
  readonly kind: QueueKind
  /** Jobs at a time, unless the catalogue says otherwise. */
  readonly slots: number
  /** Jobs at a time while memory allows, unless the catalogue says otherwise. */
  readonly slotsMax?: number
  open(model: CatalogueModel, tools: OpenTools): Promise<OpenModel>
}

/** A processor and the functions of its model. */
interface ProcessorSpec<K extends QueueKind, Model> {
  readonly kind: K
  readonly slots: number
  readonly slotsMax?: number
  open(model: CatalogueModel, tools: OpenTools): Promise<{ opened: Model; bytes: number }>
  process(job: JobEnvelope<K>, tools: JobTools<Model, K>): Promise<void>
  stats(opened: Model): ModelStats
  /** In tokens; absent for models that read none. */
  contextLengthOf?(opened: Model): number | undefined
  /** Undefined for models without labels. */
  labelCountOf?(opened: Model): number | undefined
  samplingDefaultsOf?(opened: Model): SamplingDefaults | undefined
  /** Undefined for models that do not speak. */
  voicesOf?(opened: Model): readonly string[] | undefined
  close(opened: Model): Promise<void>
}

/** The most voices of a model in a heartbeat. */
const VOICES_MAX = 1000

/** Creates the row of a processor; the type of its model is hidden. */
export function defineProcessor<K extends QueueKind, Model>(
  spec: ProcessorSpec<K, Model>,
): ProcessorRow {
  return {
    kind: spec.kind,
    slots: spec.slots,
    ...(spec.slotsMax !== undefined && { slotsMax: spec.slotsMax }),
    async open(model, tools) {
      const { opened, bytes } = await spec.open(model, tools)
      const contextLength = spec.contextLengthOf?.(opened)
      const labelCount = spec.labelCountOf?.(opened)
      const voices = spec.voicesOf?.(opened)?.slice(0, VOICES_MAX)
      const samplingDefaults = spec.samplingDefaultsOf?.(opened) ?? {}
      return {
        bytes,
        ...(contextLength !== undefined && { contextLength }),
        ...(labelCount !== undefined && { labelCount }),
        ...(Object.keys(samplingDefaults).length > 0 && { samplingDefaults }),
        ...(voices !== undefined && { voices }),
        // The worker checked that the envelope is of this kind.
        process: (job, jobTools) =>
          spec.process(job as JobEnvelope<K>, { ...jobTools, model: opened } as JobTools<Model, K>),
        stats: () => spec.stats(opened),
        close: () => spec.close(opened),
      }
    },
  }
}

/** The session options of a model: its own settings take precedence over those of the worker. */
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

/** The replies of a processor. Calls return at once; the worker sends accumulated replies. */
export interface JobReplies<K extends QueueKind = QueueKind> {
  started(promptTokens: number, report?: StartReport): void
  delta(deltas: readonly CandidateDelta[]): void
  /** Reports new tokens of a candidate for the metrics, whether or not they are sent. */
  noteTokens?(candidate: number, count: number): void
  /**
   * `text` is the transcript of a window of a recording, when the client streams it, and `logprobs`
   * are its tokens; `audio` is a part of a speech; `training` has the losses of a training;
   * `partialImage` is an unfinished image.
   */
  progress(
    step: number,
    steps: number,
    report?: {
      readonly text?: string
      readonly logprobs?: readonly SpokenToken[]
      readonly audio?: SpeechAudio
      readonly training?: TrainingProgress
      readonly partialImage?: PartialImage
    },
  ): void
  result(result: QueueTable[K]['result'], usage: TokenUsage, timings: JobTimings): void
}

/** The arguments of a processor besides its job. The worker converts thrown errors to replies. */
export interface JobTools<Model, K extends QueueKind = QueueKind> {
  readonly model: Model
  readonly reply: JobReplies<K>
  readonly signal: AbortSignal
  readonly clock: Clock
}

/**
 * Runs all tasks concurrently. The first failure aborts the signal of the others and is thrown
 * after all of them have ended, so that no task outlives its job.
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

// Short compared with the heartbeat of a worker and with one step of the engines beside it.
const TURN_MS = 10

/**
 * Long synchronous loops await the returned function: it yields to the event loop every 10 ms.
 */
export function yieldToEventLoop(clock: Clock): () => Promise<void> {
  let startedAtMs = clock.monotonic()
  return async () => {
    if (clock.monotonic() - startedAtMs < TURN_MS) return
    await setImmediate()
    startedAtMs = clock.monotonic()
  }
}
