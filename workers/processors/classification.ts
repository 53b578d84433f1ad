import { type ClassifyInput, checkProbabilityCount } from '#shared/contracts/embedding.ts'
import { failure } from '#shared/errors.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import type { Classifier } from '#workers/embedding/classifier.ts'
import type { EncodedText } from '#workers/embedding/encoder-batch.ts'
import type { ImageClassifier } from '#workers/embedding/image-classifier.ts'
import { PARTS_MAX, tooManyParts } from '#workers/embedding/read-input.ts'

import { countTokens, type Prepared } from './prepared-embedding.ts'
import { type JobTools, yieldToEventLoop } from './processor-row.ts'
import { encodeImages, isImage, readsNoImages, readsNoTexts } from './stored-images.ts'

type Tools = Pick<JobTools<unknown>, 'signal' | 'clock'>

/** Classifies the items of a request. Throws `invalidRequest` if there are too many. */
export async function classify(
  input: ClassifyInput,
  classifier: Classifier,
  tools: Tools,
): Promise<Prepared> {
  const { items, isActivated, zeroShot } = input
  if (zeroShot !== undefined) return classifyFreely({ ...input, zeroShot }, classifier, tools)
  const { signal, clock } = tools
  checkProbabilityCount(items.length, classifier.labels.length)
  const share = yieldToEventLoop(clock)
  const split: (readonly (readonly number[])[])[] = []
  let count = 0
  for (const item of items) {
    await share()
    if (isImage(item)) throw readsNoImages(item)
    const parts = await classifier.read(item, input)
    count += parts.length
    if (count > PARTS_MAX) throw tooManyParts(classifier.contextLength)
    split.push(parts)
  }
  const read = async (part: readonly number[]): Promise<readonly number[]> => {
    const logits = await classifier.logits({ tokenIds: part }, signal)
    return isActivated ? classifier.toProbabilities(logits) : logits
  }
  return {
    promptTokens: countTokens(split.flat()),
    async compute() {
      const probabilities = await Promise.all(
        split.map(async (own) => highest(await Promise.all(own.map(read)))),
      )
      return { task: 'classify', labels: classifier.labels, probabilities }
    },
  }
}

/** Classifies images. Throws `invalidRequest` if there are texts or labels. */
export async function classifyImages(
  { items, isActivated, zeroShot, tokensMax, hasMarkers }: ClassifyInput,
  { classifier, storage }: { readonly classifier: ImageClassifier; readonly storage: ObjectStore },
  { signal }: Tools,
): Promise<Prepared> {
  const { labels, tower } = classifier
  if (zeroShot !== undefined) throw noEntailment(labels)
  const images = items.filter(isImage)
  if (images.length < items.length) throw readsNoTexts()
  checkProbabilityCount(images.length, labels.length)
  return {
    promptTokens: images.length * tower.tokensPerImage,
    ignored: [
      ...(tokensMax === undefined ? [] : ['truncate_prompt_tokens']),
      ...(hasMarkers ? [] : ['add_special_tokens']),
    ],
    async compute() {
      const rows = await encodeImages(images, { tower, storage }, signal)
      const probabilities = rows.map((row) =>
        isActivated ? classifier.toProbabilities([...row]) : [...row],
      )
      return { task: 'classify', labels, probabilities }
    },
  }
}

/** Classifies each pair of a text and a label of the request. */
async function classifyFreely(
  input: ClassifyInput & Required<Pick<ClassifyInput, 'zeroShot'>>,
  { labels: own, zeroShot, logits }: Classifier,
  { signal, clock }: Tools,
): Promise<Prepared> {
  if (zeroShot === undefined) throw noEntailment(own)
  const { labels, hypotheses, isMultiLabel } = input.zeroShot
  const texts = input.items.filter((item) => typeof item === 'string')
  const tokensMax = typeof input.tokensMax === 'number' ? input.tokensMax : undefined
  const share = yieldToEventLoop(clock)
  const pairs: EncodedText[] = []
  for (const pair of zeroShot.readPairs(texts, hypotheses, tokensMax, input.truncationSide)) {
    await share()
    pairs.push(pair)
  }
  return {
    promptTokens: countTokens(pairs.map(({ tokenIds }) => tokenIds)),
    async compute() {
      const rows = await Promise.all(pairs.map((pair) => logits(pair, signal)))
      const probabilities = texts.map((_text, index) =>
        zeroShot.toProbabilities(
          rows.slice(index * labels.length, (index + 1) * labels.length),
          isMultiLabel,
        ),
      )
      return { task: 'classify', labels, probabilities }
    },
  }
}

function noEntailment(labels: readonly string[]): Error {
  return failure.invalidRequest(
    `This model has fixed labels (${labels.slice(0, 10).join(', ')}). Labels of a request need a model of natural language inference, with a label \`entailment\`.`,
    { param: 'candidate_labels', code: 'model_not_supported' },
  )
}

/** The highest probability of each label in any part. */
function highest(parts: readonly (readonly number[])[]): readonly number[] {
  const [first = []] = parts
  return first.map((_, label) => Math.max(...parts.map((part) => part[label] ?? 0)))
}
