import type { CatalogueModel } from '#shared/catalogue.ts'
import { openAdapterLibrary } from '#workers/adapters/adapter-library.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { EngineStats, TextEngine } from '#workers/engine/types.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { modelFileBytes } from '#workers/runtime/session-pool.ts'
import { loadTextModel } from '#workers/text/text-model.ts'
import { readVisionRules } from '#workers/vision/vision-rules.ts'

import { type AudioModel, processAudio } from './audio.ts'
import { processCompletion } from './completion.ts'
import { type CompletionModel, createCompletionModel } from './completion-model.ts'
import { type EmbeddingModel, processEmbedding } from './embedding.ts'
import { type ImageModel, processImage } from './image.ts'
import {
  openAudioModel,
  openEmbeddingModel,
  openImageModel,
  openSpeechModel,
  openVision,
} from './open-models.ts'
import {
  defineProcessor,
  type ModelStats,
  type OpenTools,
  type ProcessorRow,
  sessionOptionsOf,
} from './processor-row.ts'
import { processSpeech, type SpeechQueueModel } from './speech.ts'
import { openTrainableModel, processTraining, type TrainableModel } from './training.ts'

export type { ModelStats, OpenModel, OpenTools, ProcessorRow } from './processor-row.ts'
export { defineProcessor } from './processor-row.ts'

const IDLE: ModelStats = { waiting: 0, tokens: 0, cacheUse: 0 }

/** The processors of all kinds that this build can run. */
export const PROCESSORS: readonly ProcessorRow[] = [
  defineProcessor<'completion', CompletionModel>({
    kind: 'completion',
    slots: 16,
    // A burst starts at once instead of waiting for other texts to end.
    slotsMax: 64,
    open: openCompletionModel,
    process: processCompletion,
    stats: ({ engine }) => presentStats(engine.stats()),
    contextLengthOf: ({ engine }) => engine.contextLength,
    samplingDefaultsOf: ({ text }) => text.samplingDefaults,
    async close({ engine, vision }) {
      await engine.close()
      await vision?.encoder.close()
    },
  }),
  defineProcessor<'embedding', EmbeddingModel>({
    kind: 'embedding',
    // Jobs share batches, so that many small ones fill one.
    slots: 64,
    open: openEmbeddingModel,
    process: processEmbedding,
    stats: (model) => ({
      ...IDLE,
      waiting: (encoderOf(model)?.waitingCount ?? 0) + (towerOf(model)?.waitingCount ?? 0),
    }),
    contextLengthOf: (model) => encoderOf(model)?.contextLength,
    labelCountOf: (model) =>
      model.task === 'classify' ? model.classifier.labels.length : undefined,
    async close(model) {
      await encoderOf(model)?.close()
      await towerOf(model)?.close()
    },
  }),
  defineProcessor<'audio', AudioModel>({
    kind: 'audio',
    slots: 8,
    open: openAudioModel,
    process: processAudio,
    stats: () => IDLE,
    close: ({ recognizer }) => recognizer.close(),
  }),
  defineProcessor<'image', ImageModel>({
    kind: 'image',
    // One is encoded or decoded while the other is denoised, and both share runs of the U-Net; more
    // would only slow all of them down.
    slots: 2,
    open: openImageModel,
    process: processImage,
    stats: () => IDLE,
    close: ({ pipeline }) => pipeline.close(),
  }),
  defineProcessor<'speech', SpeechQueueModel>({
    kind: 'speech',
    slots: 4,
    open: openSpeechModel,
    process: processSpeech,
    voicesOf: ({ voices }) => voices.names,
    stats: () => IDLE,
    close: ({ voices }) => voices.close(),
  }),
  defineProcessor<'training', TrainableModel>({
    kind: 'training',
    slots: 1,
    open: async (model, tools) => ({ opened: openTrainableModel(model, tools), bytes: 0 }),
    process: processTraining,
    stats: () => IDLE,
    close: async () => {},
  }),
]

/** The part of a model that reads texts. */
function encoderOf(model: EmbeddingModel) {
  if (model.task === 'classify') return model.reads === 'texts' ? model.classifier : undefined
  if (model.task === 'embed') return model.reads === 'texts' ? model.encoder : undefined
  return model.task === 'rerank' ? model.reranker : model.encoder
}

/** The part of a model that reads images. */
function towerOf(model: EmbeddingModel) {
  if (model.task === 'classify')
    return model.reads === 'images' ? model.classifier.tower : undefined
  if (model.task !== 'embed') return undefined
  return model.reads === 'images' ? model.tower : model.images?.tower
}

async function openCompletionModel(
  model: CatalogueModel,
  tools: OpenTools,
): Promise<{ opened: CompletionModel; bytes: number }> {
  const { folder, slots, slotsMax, runtime, config, clock } = tools
  const { fetchOptions, storage, log, onBatch } = tools
  const { options } = model
  const { onnxFile, maxContextTokens, toolParser, reasoningParser } = options
  // Checked first, because the graphs of a refused family would fail with a less useful message.
  const rules = model.capabilities.includes('vision')
    ? await readVisionRules(folder, options)
    : undefined
  // The tokenizer is read here while a thread loads the graph.
  const [opening, reading] = await Promise.allSettled([
    openTextEngine({
      runtime,
      folder,
      slots,
      slotsMax,
      ...(onnxFile !== undefined && { onnxFile }),
      ...(maxContextTokens !== undefined && { maxContextTokens }),
      ...(config.memoryBytesMax > 0 && { memoryBytes: config.memoryBytesMax }),
      ...sessionOptionsOf(model, config),
    }),
    loadTextModel(folder, clock, {
      ...(toolParser !== undefined && { toolParser }),
      ...(reasoningParser !== undefined && { reasoningParser }),
    }),
  ])
  // A folder without a graph is of no use with any tokenizer.
  if (opening.status === 'rejected') throw opening.reason
  if (reading.status === 'rejected') {
    await opening.value.close()
    throw reading.reason
  }
  const [engine, text] = [opening.value, reading.value]
  if (onBatch !== undefined) reportSteps(engine, onBatch)
  const operation = 'model.context'
  const { contextLength, context, cachePath } = engine
  const limits = { slots, slotsMax: engine.slotsMax ?? slots, contextLength }
  const chosen = { ...limits, cachePath, ...context }
  log.info({ operation, modelId: model.id, ...chosen }, 'context chosen')
  const ignored = text.generation?.ignored ?? []
  if (ignored.length > 0) {
    const reported = { operation: 'model.generation', modelId: model.id, ignored }
    log.warn(reported, 'settings of generation_config.json are not followed')
  }
  return closeOnFailure(engine, async () => {
    const vision = await openVision(model, { folder, runtime, config }, { engine, rules })
    const { sharedPrefixCache: sharesCaches, promptLookup: draftsFromPrompt } = options
    const adapters = openAdapterLibrary({
      bytesMax: config.adapterBytesMax,
      rankMax: config.adapterRankMax,
      fetchOptions,
      log,
      fit: (adapter) => engine.fitAdapter(adapter),
    })
    return {
      opened: createCompletionModel(engine, text, {
        ...(sharesCaches && { sharesCaches }),
        ...(draftsFromPrompt && { draftsFromPrompt }),
        adapters,
        ...(vision !== undefined && { vision: { encoder: vision.encoder, storage } }),
      }),
      bytes: await modelFileBytes([...engine.modelFiles, ...(vision?.files ?? [])]),
    }
  })
}

function reportSteps(engine: TextEngine, onBatch: (size: number, tokens: number) => void): void {
  let counted = 0
  engine.onStep(() => {
    const { active, tokens, promptTokens } = engine.stats()
    const total = tokens + promptTokens
    onBatch(Math.max(active, 1), total - counted)
    counted = total
  })
}

function presentStats({ slots, active, waiting, tokens }: EngineStats): ModelStats {
  return { slots, waiting, tokens, cacheUse: slots === 0 ? 0 : active / slots }
}
