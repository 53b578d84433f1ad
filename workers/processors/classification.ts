import { type ClassifyInput, checkProbabilityCount } from '#shared/contracts/embedding.ts'
import { failure } from '#shared/errors.ts'
import type { Classifier } from '#workers/embedding/classifier.ts'

import { countTokens, type Prepared } from './prepared-embedding.ts'
import { type JobTools, yieldToEventLoop } from './processor-row.ts'

/** Parts of all texts of one request. */
const PARTS_MAX = 2048

/** Reads the items of a classification. Throws `invalidRequest` where they are too many. */
export async function classify(
  input: ClassifyInput,
  classifier: Classifier,
  { signal, clock }: Pick<JobTools<unknown>, 'signal' | 'clock'>,
): Promise<Prepared> {
  const { items, isActivated } = input
  checkProbabilityCount(items.length, classifier.labels.length)
  const share = yieldToEventLoop(clock)
  const split: (readonly (readonly number[])[])[] = []
  let count = 0
  for (const item of items) {
    await share()
    const parts = await classifier.read(item, input)
    count += parts.length
    if (count > PARTS_MAX) throw tooManyParts(classifier)
    split.push(parts)
  }
  const read = async (part: readonly number[]): Promise<readonly number[]> => {
    const logits = await classifier.logits(part, signal)
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

/** The highest probability of each label in any part. */
function highest(parts: readonly (readonly number[])[]): readonly number[] {
  const [first = []] = parts
  return first.map((_, label) => Math.max(...parts.map((part) => part[label] ?? 0)))
}

function tooManyParts({ contextLength }: Classifier): Error {
  return failure.invalidRequest(
    `The texts need more than ${PARTS_MAX} parts of ${contextLength} tokens. Please send fewer or shorter ones.`,
    { param: 'input', code: 'context_length_exceeded' },
  )
}
