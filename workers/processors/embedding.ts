import type { ModelOptions } from '#shared/catalogue-options.ts'
import type { EmbedInput, ImageItem, RerankInput } from '#shared/contracts/embedding.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import { failure } from '#shared/errors.ts'
import { defined } from '#shared/json.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import type { Classifier } from '#workers/embedding/classifier.ts'
import type { Encoder } from '#workers/embedding/encoder.ts'
import type { ImageClassifier } from '#workers/embedding/image-classifier.ts'
import type { ImageTower } from '#workers/embedding/image-tower.ts'
import { sigmoid } from '#workers/embedding/labels.ts'
import { normalize } from '#workers/embedding/pooling.ts'
import type { Reranker } from '#workers/embedding/reranker.ts'

import { classify, classifyImages } from './classification.ts'
import { cutTo, refuseDimensions } from './embedding-dimensions.ts'
import { purposeOf } from './embedding-purpose.ts'
import { embedTokens, type MultiVectorModel, rankByTokens } from './multi-vector.ts'
import { answerPrepared, countTokens, type Prepared, toBase64 } from './prepared-embedding.ts'
import { type JobTools, yieldToEventLoop } from './processor-row.ts'
import { embedSparse, type SparseModel } from './sparse-embedding.ts'
import { encodeImages, isImage, readsNoImages, readsNoTexts } from './stored-images.ts'

/**
 * The services of an embedding queue: vectors of texts and images, labels, or relevance of pairs.
 */
export type EmbeddingModel =
  | {
      readonly task: 'embed'
      readonly reads: 'texts'
      readonly encoder: Encoder
      readonly options: ModelOptions
      /** Present for a model that also embeds images. */
      readonly images?: { readonly tower: ImageTower; readonly storage: ObjectStore }
    }
  | {
      readonly task: 'embed'
      readonly reads: 'images'
      readonly options: ModelOptions
      readonly tower: ImageTower
      readonly storage: ObjectStore
    }
  | SparseModel
  | MultiVectorModel
  | { readonly task: 'rerank'; readonly reranker: Reranker }
  | { readonly task: 'classify'; readonly reads: 'texts'; readonly classifier: Classifier }
  | {
      readonly task: 'classify'
      readonly reads: 'images'
      readonly classifier: ImageClassifier
      readonly storage: ObjectStore
    }

/** Answers one embedding job. Batches are shared with concurrent jobs. */
export async function processEmbedding(job: JobEnvelope<'embedding'>, tools: Tools): Promise<void> {
  const { input } = job
  const { model } = tools
  const isRanking = input.task === 'rerank' && model.task === 'multi-vector'
  if (input.task !== model.task && !isRanking) {
    throw failure.invalidRequest(`The model \`${job.modelId}\` cannot ${input.task}.`, {
      param: 'model',
    })
  }
  return answerPrepared(job, tools, async () => {
    if (input.task === 'embed' && model.task === 'embed') {
      return model.reads === 'images'
        ? embedImages(input, model, tools)
        : embed(input, model, tools)
    }
    if (input.task === 'sparse' && model.task === 'sparse') return embedSparse(input, model, tools)
    if (model.task === 'multi-vector') {
      if (input.task === 'multi-vector') return embedTokens(input, model, tools)
      if (input.task === 'rerank') return rankByTokens(input, model, tools)
    }
    if (input.task === 'rerank' && model.task === 'rerank') return rerank(input, model, tools)
    if (input.task === 'classify' && model.task === 'classify') {
      if (model.reads === 'images') return classifyImages(input, model, tools)
      return classify(input, model.classifier, tools)
    }
    throw new Error(`no answer to ${input.task}`)
  })
}

type Tools = JobTools<EmbeddingModel, 'embedding'>

async function embed(
  input: EmbedInput,
  {
    encoder,
    options,
    images,
  }: EmbeddingModel & { readonly task: 'embed'; readonly reads: 'texts' },
  { signal, clock }: Tools,
): Promise<Prepared> {
  refuseDimensions(input.dimensions, encoder)
  const { prefix, taskId, ignored } = purposeOf(input, encoder, options)
  const tokensMax = input.tokensMax === 'context' ? encoder.contextLength : input.tokensMax
  const { truncationSide: side } = input
  const items: (readonly number[] | ImageItem)[] = []
  const share = yieldToEventLoop(clock)
  for (const item of input.items) {
    await share()
    if (typeof item === 'string')
      items.push(await encoder.encodeText(prefix + item, tokensMax, side))
    else if (!isImage(item)) items.push(encoder.checkTokenIds(item, tokensMax, side))
    else if (images !== undefined) items.push(item)
    else throw readsNoImages(item)
  }
  const texts = items.filter((item): item is readonly number[] => !isImage(item))
  const imageCount = items.length - texts.length
  return {
    promptTokens: countTokens(texts) + imageCount * (images?.tower.tokensPerImage ?? 0),
    ...(ignored !== undefined && { ignored }),
    async compute() {
      const [ofTexts, ofImages] = await Promise.all([
        Promise.all(texts.map((tokenIds) => encoder.embed(tokenIds, signal, taskId))),
        images === undefined ? [] : encodeImages(items.filter(isImage), images, signal),
      ])
      const rest = { texts: ofTexts, images: ofImages.map(normalize) }
      const vectors = items.map((item) => defined(rest[isImage(item) ? 'images' : 'texts'].shift()))
      const cut = vectors.map((vector) => cutTo(vector, input.dimensions))
      return { task: 'embed', vectors: cut.map(toBase64), dimensions: cut[0]?.length ?? 0 }
    },
  }
}

async function embedImages(
  { items, dimensions, role, taskName }: EmbedInput,
  {
    options,
    tower,
    storage,
  }: EmbeddingModel & { readonly task: 'embed'; readonly reads: 'images' },
  { signal }: Tools,
): Promise<Prepared> {
  const images = items.filter((item) => isImage(item))
  if (images.length < items.length) throw readsNoTexts()
  refuseDimensions(dimensions, {
    dimensions: tower.width,
    isTruncatable: options.matryoshka === true,
  })
  return {
    promptTokens: images.length * tower.tokensPerImage,
    ignored: [
      ...(role === 'none' ? [] : ['input_type']),
      ...(taskName === undefined ? [] : ['task']),
    ],
    async compute() {
      const rows = await encodeImages(images, { tower, storage }, signal)
      const cut = rows.map((row) => cutTo(normalize(row), dimensions))
      return { task: 'embed', vectors: cut.map(toBase64), dimensions: cut[0]?.length ?? 0 }
    },
  }
}

async function rerank(
  input: RerankInput,
  { reranker }: EmbeddingModel & { readonly task: 'rerank' },
  { signal, clock }: Tools,
): Promise<Prepared> {
  const cut = { isCut: input.isCut ?? true, side: input.truncationSide }
  const pairs: ReturnType<Reranker['encodePair']>[] = []
  const share = yieldToEventLoop(clock)
  for (const [index, document] of input.documents.entries()) {
    await share()
    pairs.push(reranker.encodePair(input.queries?.[index] ?? input.query, document, cut))
  }
  return {
    promptTokens: countTokens(pairs.map(({ tokenIds }) => tokenIds)),
    async compute() {
      const logits = await Promise.all(pairs.map((pair) => reranker.logit(pair, signal)))
      return { task: 'rerank', scores: input.isActivated === false ? logits : logits.map(sigmoid) }
    },
  }
}
