import { isDeepStrictEqual } from 'node:util'

import { afterAll, expect, it } from 'vitest'

import { openClassifier } from '#workers/embedding/classifier.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { measuredScores, modelFolder, readEvals, SCORE_MARGIN } from './shipped.ts'

interface Judged {
  readonly text: string
  readonly labels: readonly string[]
}

// Held-out texts and scores of onnxruntime, both by `python -m models.training.tiny_moderation
// evaluate`.
const { texts, handWritten } = readEvals<{ texts: Judged[]; handWritten: Judged[] }>(
  'tiny-moderation',
)
const measured = measuredScores('tiny-moderation')
const runtime = openRuntime()
const folder = modelFolder('tiny-moderation')
const session = { intraOpThreads: 1 }
const classifier = await openClassifier({ runtime, folder, session })
const { signal } = new AbortController()

afterAll(async () => {
  await classifier.close()
  await runtime.close()
})

/** Whether the categories of a text are flagged and no others. */
async function isRight({ text, labels }: Judged): Promise<boolean> {
  const [tokenIds = []] = await classifier.read(text, { hasMarkers: true })
  const flagged = classifier
    .toProbabilities(await classifier.logits({ tokenIds }, signal))
    .flatMap((probability, at) => (probability >= 0.5 ? [classifier.labels[at]] : []))
  return isDeepStrictEqual(flagged.toSorted(), labels)
}

it.each([
  ['exact', texts],
  ['handWritten', handWritten],
])('tiny-moderation is right as often as it was measured: %s', async (name, judged) => {
  const right = (await Promise.all(judged.map(isRight))).filter(Boolean).length
  // Some texts of one kind are kept here: one more may be wrong.
  const least = (measured[name] as number) - SCORE_MARGIN - 1 / judged.length
  expect(right / judged.length).toBeGreaterThanOrEqual(least)
})

it('tiny-moderation reaches the goals of its card', () => {
  expect(measured.precision).toBeGreaterThanOrEqual(0.9)
  expect(measured.recall).toBeGreaterThanOrEqual(0.9)
})
