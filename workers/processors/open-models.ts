import type { CatalogueModel } from '#shared/catalogue.ts'
import { systemClock } from '#shared/clock.ts'
import { findShipped } from '#shared/load-catalogue.ts'
import { findAudioDecoder } from '#workers/audio/decode.ts'
import { openRecognizer } from '#workers/audio/open-recognizer.ts'
import { openCausalReranker } from '#workers/embedding/causal-reranker.ts'
import { openClassifier } from '#workers/embedding/classifier.ts'
import { openEncoder } from '#workers/embedding/encoder.ts'
import { readEncoderFiles } from '#workers/embedding/encoder-files.ts'
import { openImageClassifier } from '#workers/embedding/image-classifier.ts'
import {
  IMAGE_OUTPUTS,
  type ImageTower,
  openImageTower,
  type TowerOptions,
} from '#workers/embedding/image-tower.ts'
import { readsOf } from '#workers/embedding/joint-towers.ts'
import { openMultiVectorEncoder } from '#workers/embedding/multi-vector-encoder.ts'
import { openReranker } from '#workers/embedding/reranker.ts'
import { openSparseEncoder } from '#workers/embedding/sparse-encoder.ts'
import { findCompanion } from '#workers/engine/model-files.ts'
import type { TextEngine } from '#workers/engine/types.ts'
import { prepareImageLibrary } from '#workers/image/image-file.ts'
import { openPipeline } from '#workers/image/pipeline.ts'
import { findModelFile } from '#workers/models/find-model-file.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import { bytesOfPool, modelFileBytes } from '#workers/runtime/session-pool.ts'
import { findSpeechEncoder } from '#workers/speech/encode-speech.ts'
import { openVoices } from '#workers/speech/open-voices.ts'
import type { VisionRules } from '#workers/vision/families.ts'
import { openVisionModel, type VisionModel } from '#workers/vision/vision-model.ts'

import { type AudioModel, sweepClips } from './audio.ts'
import type { EmbeddingModel } from './embedding.ts'
import type { ImageModel } from './image.ts'
import { type OpenTools, sessionOptionsOf } from './processor-row.ts'
import type { SpeechQueueModel } from './speech.ts'

interface Opened<Model> {
  readonly opened: Model
  readonly bytes: number
}

/** Opens an encoder of any kind, a reranker or a classifier, by the model's capabilities. */
export async function openEmbeddingModel(
  model: CatalogueModel,
  tools: OpenTools,
): Promise<Opened<EmbeddingModel>> {
  const { folder, runtime, config, onBatch } = tools
  const { onnxFile, maxContextTokens, maxBatchTokens } = model.options
  const options = {
    runtime,
    folder,
    session: sessionOptionsOf(model, config),
    ...(onnxFile !== undefined && { onnxFile }),
    ...(maxContextTokens !== undefined && { maxContextTokens }),
    ...(maxBatchTokens !== undefined && { maxBatchTokens }),
    ...(onBatch !== undefined && { onBatch }),
  }
  const can = (capability: string): boolean => model.capabilities.includes(capability)
  if (can('classify') && can('vision')) return openImageClassifierModel(tools, options)
  const file = await findModelFile(folder, onnxFile)
  const reads = await readsOf(file)
  if ((can('embedding') || can('vision')) && reads.images && !reads.texts) {
    return openImageEmbeddingModel(model, tools, file)
  }
  const { modelFile } = await readEncoderFiles(folder, onnxFile)
  const bytes = await bytesOfParts([modelFile])
  if (can('multi-vector')) {
    const encoder = await openMultiVectorEncoder({ ...options, ...tokenOptionsOf(model) })
    return { opened: { task: 'multi-vector', encoder }, bytes }
  }
  if (can('rerank')) {
    const reranker = (await openCausalReranker(options)) ?? (await openReranker(options))
    return { opened: { task: 'rerank', reranker }, bytes }
  }
  if (can('classify')) {
    const classifier = await openClassifier(options)
    return { opened: { task: 'classify', reads: 'texts', classifier }, bytes }
  }
  if (can('sparse')) {
    const encoder = await openSparseEncoder(options)
    return { opened: { task: 'sparse', encoder, options: model.options }, bytes }
  }
  const { pooling, matryoshka: isTruncatable } = model.options
  const encoder = await openEncoder({
    ...options,
    ...(pooling !== undefined && { pooling }),
    ...(isTruncatable !== undefined && { isTruncatable }),
  })
  const { assumedPooling } = encoder
  if (assumedPooling !== undefined) {
    tools.log.warn(
      { operation: 'model.pooling', modelId: model.id, pooling: assumedPooling },
      'no file of the model names its pooling; options.pooling sets it',
    )
  }
  const plain = { task: 'embed', reads: 'texts', encoder, options: model.options } as const
  if (!can('vision')) return { opened: plain, bytes }
  return closeOnFailure(encoder, async () => {
    const isJoint = reads.images && reads.texts
    const file = isJoint ? modelFile : await findCompanion(modelFile, 'vision_model')
    const { dimensions: width } = encoder
    const tower = await openTower(model, tools, { file, outputs: IMAGE_OUTPUTS, width })
    const images = { tower, storage: tools.storage }
    const ofImages = isJoint ? 0 : await bytesOfParts([file])
    return { opened: { ...plain, images }, bytes: bytes + ofImages }
  })
}

/** Opens a classifier of images. */
async function openImageClassifierModel(
  { storage }: OpenTools,
  options: Parameters<typeof openImageClassifier>[0],
): Promise<Opened<EmbeddingModel>> {
  prepareImageLibrary()
  const classifier = await openImageClassifier(options)
  const opened = { task: 'classify', reads: 'images', classifier, storage } as const
  return { opened, bytes: await bytesOfParts([classifier.modelFile]) }
}

/** Opens a model that embeds images and no texts, such as DINOv2. */
async function openImageEmbeddingModel(
  model: CatalogueModel,
  tools: OpenTools,
  file: string,
): Promise<Opened<EmbeddingModel>> {
  const { pooling } = model.options
  if (!model.capabilities.includes('vision')) {
    throw new ModelLoadError(file, 'it reads images alone: add the capability "vision"')
  }
  if (pooling !== undefined && pooling !== 'cls' && pooling !== 'mean') {
    throw new ModelLoadError(file, `options.pooling of images is cls or mean, not ${pooling}`)
  }
  const features = ['last_hidden_state']
  const outputs = pooling === undefined ? [...IMAGE_OUTPUTS, ...features] : features
  const tower = await openTower(model, tools, { file, outputs, pooling })
  const { storage } = tools
  const opened = { task: 'embed', reads: 'images', options: model.options, tower, storage } as const
  return { opened, bytes: await bytesOfParts([file]) }
}

/** Options that only multi-vector models have. */
function tokenOptionsOf({ options }: CatalogueModel) {
  const { documentLength, matryoshka, queryPrefix, passagePrefix } = options
  return {
    ...(documentLength !== undefined && { documentLength }),
    ...(matryoshka !== undefined && { isTruncatable: matryoshka }),
    prompts: {
      ...(queryPrefix !== undefined && { query: queryPrefix }),
      ...(passagePrefix !== undefined && { passage: passagePrefix }),
    },
  }
}

async function openTower(
  model: CatalogueModel,
  { folder, runtime, config, onBatch }: OpenTools,
  tower: Pick<TowerOptions, 'file' | 'outputs'> & Partial<Pick<TowerOptions, 'width' | 'pooling'>>,
): Promise<ImageTower> {
  prepareImageLibrary()
  return openImageTower({
    runtime,
    folder,
    width: undefined,
    ...tower,
    session: sessionOptionsOf(model, config),
    ...(onBatch !== undefined && { onBatch }),
  })
}

/** Opens a speech model and finds the decoder of this machine. */
export async function openAudioModel(
  model: CatalogueModel,
  { folder, runtime, config, storage, log }: OpenTools,
): Promise<Opened<AudioModel>> {
  const { onnxFile, voiceActivityModel } = model.options
  await sweepClips(systemClock)
  const { decode } = await findAudioDecoder()
  const recognizer = await openRecognizer({
    runtime,
    folder,
    session: sessionOptionsOf(model, config),
    ...(onnxFile !== undefined && { onnxFile }),
    ...(voiceActivityModel !== undefined && { activityFolder: findShipped(voiceActivityModel) }),
  })
  const { noWordTimes: reason, modelFiles } = recognizer
  if (reason !== undefined) log.info({ model: model.id, reason }, 'words get no times')
  return { opened: { recognizer, decode, storage }, bytes: await bytesOfParts(modelFiles) }
}

/** Opens a speech synthesis model and finds the formats that this machine can encode. */
export async function openSpeechModel(
  model: CatalogueModel,
  { folder, runtime, config }: OpenTools,
): Promise<Opened<SpeechQueueModel>> {
  const { onnxFile } = model.options
  const encoder = await findSpeechEncoder()
  const voices = await openVoices({
    runtime,
    folder,
    session: sessionOptionsOf(model, config),
    ...(onnxFile !== undefined && { onnxFile }),
  })
  return { opened: { voices, encoder }, bytes: await bytesOfParts([voices.modelFile]) }
}

/** Opens a model of images. */
export async function openImageModel(
  model: CatalogueModel,
  { folder, runtime, config, storage, onBatch }: OpenTools,
): Promise<Opened<ImageModel>> {
  const session = sessionOptionsOf(model, config)
  const { steps, guidance, tileSize } = model.options
  const defaults = {
    ...(steps !== undefined && { steps }),
    ...(guidance !== undefined && { guidance }),
  }
  prepareImageLibrary()
  const pipeline = await openPipeline({
    runtime,
    folder,
    session,
    defaults,
    ...(tileSize !== undefined && { tileSize }),
    ...(onBatch !== undefined && { onBatch }),
  })
  return { opened: { pipeline, storage }, bytes: await bytesOfParts(pipeline.modelFiles) }
}

/**
 * Opens the image encoder of a language model that has rules for images; its files include those of
 * the token embeddings.
 */
export async function openVision(
  model: CatalogueModel,
  { folder, runtime, config }: Pick<OpenTools, 'folder' | 'runtime' | 'config'>,
  { engine, rules }: { readonly engine: TextEngine; readonly rules: VisionRules | undefined },
): Promise<{ readonly encoder: VisionModel; readonly files: readonly string[] } | undefined> {
  if (rules === undefined) return undefined
  const {
    embeddingSize,
    modelFiles: [file = folder],
  } = engine
  if (embeddingSize === undefined) {
    throw new ModelLoadError(file, 'the decoder reads no embeddings, so that images have no place')
  }
  const encoderFile = await findCompanion(file, 'vision_encoder')
  const session = sessionOptionsOf(model, config)
  prepareImageLibrary()
  const encoder = await openVisionModel({ runtime, encoderFile, session, embeddingSize, rules })
  return { encoder, files: [encoderFile, await findCompanion(file, 'embed_tokens')] }
}

/** The memory of models with these files, once all sessions are loaded. */
async function bytesOfParts(files: readonly string[]): Promise<number> {
  const sizes = await Promise.all(files.map((file) => modelFileBytes([file])))
  return sizes.reduce((sum, size) => sum + bytesOfPool(size), 0)
}
