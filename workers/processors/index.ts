import { stat } from 'node:fs/promises'

import type { CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { WorkerConfig } from '#shared/config/inference.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { QueueKind } from '#shared/contracts/queues.ts'
import type { Logger } from '#shared/logger.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import { findDecoderFile } from '#workers/engine/model-files.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { EngineStats } from '#workers/engine/types.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

import { createCompletionModel, type CompletionModel } from './completion-model.ts'
import { processCompletion } from './completion.ts'
import type { JobTools } from './job-tools.ts'

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

/** Every kind that this build can run, each with its one processor. */
export const PROCESSORS: readonly ProcessorRow[] = [
  defineProcessor<'completion', CompletionModel>({
    kind: 'completion',
    slots: 16,
    open: openCompletionModel,
    process: processCompletion,
    stats: ({ engine }) => presentStats(engine.stats()),
    close: ({ engine }) => engine.close(),
  }),
]

interface ProcessorSpec<K extends QueueKind, Model> {
  readonly kind: K
  readonly slots: number
  open(model: CatalogueModel, tools: OpenTools): Promise<{ opened: Model; bytes: number }>
  process(job: JobEnvelope<K>, tools: JobTools<Model, K>): Promise<void>
  stats(opened: Model): ModelStats
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
      return {
        bytes,
        // The worker checked that the envelope is of this kind.
        process: (job, jobTools) =>
          spec.process(job as JobEnvelope<K>, { ...jobTools, model: opened } as JobTools<Model, K>),
        stats: () => spec.stats(opened),
        close: () => spec.close(opened),
      }
    },
  }
}

async function openCompletionModel(
  { options }: CatalogueModel,
  { folder, slots, runtime, config, clock }: OpenTools,
): Promise<{ opened: CompletionModel; bytes: number }> {
  const { onnxFile, maxContextTokens, executionProvider } = options
  const intraOpThreads = options.intraOpThreads ?? config.intraOpThreads
  const text = await loadTextModel(folder, clock)
  const engine = await openTextEngine({
    runtime,
    folder,
    slots,
    ...(onnxFile !== undefined && { onnxFile }),
    ...(maxContextTokens !== undefined && { maxContextTokens }),
    ...(executionProvider !== undefined && { executionProvider }),
    ...(intraOpThreads > 0 && { intraOpThreads }),
  })
  const file = await findDecoderFile(folder, { onnxFile, executionProvider })
  return { opened: createCompletionModel(engine, text), bytes: await bytesOf(file) }
}

/** A model file with the data that large exports keep beside it. */
async function bytesOf(file: string): Promise<number> {
  const sizes = await Promise.all(
    [file, `${file}_data`, `${file}.data`].map((path) =>
      stat(path).then(
        ({ size }) => size,
        () => 0,
      ),
    ),
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}

function presentStats({ slots, active, waiting, tokens }: EngineStats): ModelStats {
  return { waiting, tokens, cacheUse: slots === 0 ? 0 : active / slots }
}
