import { afterAll, describe, expect, it } from 'vitest'

import { sigmoid } from '#workers/embedding/labels.ts'
import { openReranker } from '#workers/embedding/reranker.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { modelFolder, readEvals, readJson, SCORE_MARGIN } from './shipped.ts'

interface Group {
  readonly query: string
  /** The ten that tiny-embed finds nearest, best first. */
  readonly documents: readonly string[]
  readonly right: number
}

// Held-out texts and scores of onnxruntime, both by `python -m models.training.tiny_rerank
// evaluate`.
const { groups } = readEvals<{ groups: Record<string, Group[]> }>('tiny-rerank')
const { gates } = readJson<{ gates: Record<string, { after: number }> }>(
  `${modelFolder('tiny-rerank')}/eval.json`,
)
const runtime = openRuntime()
const reranker = await openReranker({
  runtime,
  folder: modelFolder('tiny-rerank'),
  session: { intraOpThreads: 1 },
})
const { signal } = new AbortController()

afterAll(async () => {
  await reranker.close()
  await runtime.close()
})

/** Whether the right document comes first. */
async function isFirst({ query, documents, right }: Group): Promise<boolean> {
  const scores = await Promise.all(
    documents.map(async (document) =>
      sigmoid(await reranker.logit(reranker.encodePair(query, document), signal)),
    ),
  )
  return scores.every((score, at) => at === right || score < (scores[right] as number))
}

describe('tiny-rerank puts the right document of ten first as often as it was measured', () => {
  it.each(Object.entries(groups))('%s', async (name, problems) => {
    const first = await Promise.all(problems.map(isFirst))
    const share = first.filter(Boolean).length / problems.length
    // Up to twenty of the problems are kept here: one more may be among the wrong ones.
    const least = (gates[name] as { after: number }).after - SCORE_MARGIN - 1 / problems.length
    expect(share).toBeGreaterThanOrEqual(least)
  })

  it('more often than tiny-embed', async () => {
    const problems = Object.values(groups).flat()
    const first = await Promise.all(problems.map(isFirst))
    const before = problems.filter(({ right }) => right === 0).length
    expect(first.filter(Boolean).length - before).toBeGreaterThanOrEqual(0.05 * problems.length)
  })
})
