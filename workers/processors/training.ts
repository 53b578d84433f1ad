import type { CatalogueModel } from '#shared/catalogue.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import { readDecoderConfig } from '#workers/engine/model-files.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { loadTextModel } from '#workers/text/text-model.ts'
import { runTraining } from '#workers/training/run-training.ts'

import {
  type JobTools,
  type OpenTools,
  sessionOptionsOf,
  yieldToEventLoop,
} from './processor-row.ts'

/** A model whose adapters are trained. It is loaded for each job and released after it. */
export interface TrainableModel {
  readonly folder: string
  readonly model: CatalogueModel
  readonly runtime: Runtime
  readonly storage: ObjectStore
  readonly session: SessionOptions
}

/**
 * Texts are cut to this length if the context is longer, because attention grows with its square.
 */
const TEXT_TOKENS_MAX = 2048

/** Records the location of the model, which the first job loads. */
export function openTrainableModel(
  model: CatalogueModel,
  { folder, runtime, storage, config }: OpenTools,
): TrainableModel {
  const options = sessionOptionsOf(model, config)
  // Beside inference a training takes one core; a worker only for trainings uses all.
  const isAlone = config.kinds.length === 1
  const session = isAlone ? options : { ...options, intraOpThreads: 1 }
  return { folder, model, runtime, storage, session }
}

/** Trains an adapter. A run that is lost or handed back continues from its last stored state. */
export async function processTraining(
  job: JobEnvelope<'training'>,
  { model: base, reply, signal, clock }: JobTools<TrainableModel, 'training'>,
): Promise<void> {
  const begunMs = clock.now()
  const { folder, runtime, storage, session } = base
  const { onnxFile, maxContextTokens = TEXT_TOKENS_MAX } = base.model.options
  const { contextLength = TEXT_TOKENS_MAX } = await readDecoderConfig(folder)
  const text = await loadTextModel(folder, clock)
  let startedMs = begunMs
  const result = await runTraining(
    {
      modelId: job.modelId,
      folder,
      text,
      runtime,
      session,
      ...(onnxFile !== undefined && { onnxFile }),
      tokensMax: Math.min(contextLength, maxContextTokens, TEXT_TOKENS_MAX),
    },
    job.input,
    {
      storage,
      clock,
      signal,
      yieldNow: yieldToEventLoop(clock),
      onStart: () => {
        startedMs = clock.now()
        reply.started(0)
      },
      onProgress: (training) => reply.progress(training.step, training.steps, { training }),
    },
  )
  reply.result(
    result,
    { promptTokens: result.trainedTokens, completionTokens: 0, cachedTokens: 0 },
    {
      queueMs: begunMs - job.enqueuedAtMs,
      prepareMs: startedMs - begunMs,
      runMs: clock.now() - startedMs,
    },
  )
}
