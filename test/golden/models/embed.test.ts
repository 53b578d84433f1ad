import { afterAll, describe, expect, it } from 'vitest'

import { openEncoder } from '#workers/embedding/encoder.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

import { measuredScores, modelFolder, readEvals, SCORE_MARGIN } from './shipped.ts'

interface Trial {
  readonly queries: readonly string[]
  readonly documents: readonly string[]
  /** The document of each query. */
  readonly right: readonly number[]
  readonly top: number
}

// Held-out texts and scores of onnxruntime, both by `python -m models.training.tiny_embed
// evaluate`.
const { trials } = readEvals<{ trials: Record<string, Trial> }>('tiny-embed')
const measured = measuredScores('tiny-embed')
const runtime = openRuntime()
const encoder = await openEncoder({
  runtime,
  folder: modelFolder('tiny-embed'),
  session: { intraOpThreads: 1 },
})
const { signal } = new AbortController()

afterAll(async () => {
  await encoder.close()
  await runtime.close()
})

function embed(texts: readonly string[]): Promise<Float32Array[]> {
  return Promise.all(
    texts.map(async (text) => encoder.embed(await encoder.encodeText(text), signal)),
  )
}

/** Vectors have length one, so that the sum of products is their cosine. */
function similarity(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, at) => sum + value * (b[at] as number), 0)
}

describe('tiny-embed finds held-out texts as well as it was measured', () => {
  it.each(Object.entries(trials))('%s', async (name, { queries, documents, right, top }) => {
    const vectors = await embed(documents)
    const asked = await embed(queries)
    const found = asked.filter((query, at) => {
      const wanted = similarity(query, vectors[right[at] as number] as Float32Array)
      return vectors.filter((vector) => similarity(query, vector) > wanted).length < top
    })
    expect(queries.length).toBeGreaterThanOrEqual(20)
    const least = (measured[name] as number) - SCORE_MARGIN
    expect(found.length / queries.length).toBeGreaterThanOrEqual(least)
  })
})
