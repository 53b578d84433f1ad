import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { openEncoder } from '#workers/embedding/encoder.ts'
import { openReranker } from '#workers/embedding/reranker.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

// Recorded from sentence-transformers and transformers by test/fixtures/build-models.py.
const FIXTURES = join(import.meta.dirname, '../fixtures/models')
const FOREVER = new AbortController().signal
const runtime = openRuntime()

afterAll(() => runtime.close())

function readGolden<T>(family: string): T {
  return JSON.parse(readFileSync(join(FIXTURES, family, 'golden.json'), 'utf8'))
}

describe.each(['minilm', 'bge', 'e5', 'nomic'])('an encoder of the %s family', async (family) => {
  const { texts, ids, embeddings } = readGolden<{
    texts: string[]
    ids: number[][]
    embeddings: number[][]
  }>(family)
  const encoder = await openEncoder({ runtime, folder: join(FIXTURES, family) })
  afterAll(() => encoder.close())

  it('reads texts as the reference does', async () => {
    expect(await Promise.all(texts.map((text) => encoder.encodeText(text)))).toEqual(ids)
  })

  it('gives the vectors of the reference, alone and in a batch', async () => {
    const together = await Promise.all(ids.map((tokenIds) => encoder.embed(tokenIds, FOREVER)))
    for (const [index, tokenIds] of ids.entries()) {
      const alone = await encoder.embed(tokenIds, FOREVER)
      const reference = Float32Array.from(embeddings[index] as number[])
      expect(cosine(alone, reference)).toBeGreaterThan(0.9999)
      expect(cosine(together[index] as Float32Array, alone)).toBeGreaterThan(0.999999)
      expect(length(alone)).toBeCloseTo(length(reference), 3)
    }
  })

  it('refuses a text beyond its context with both numbers', async () => {
    await expect(encoder.encodeText('word '.repeat(encoder.contextLength))).rejects.toMatchObject({
      code: 'context_length_exceeded',
      message: expect.stringContaining(`maximum context length is ${encoder.contextLength} tokens`),
    })
  })

  it('refuses a token id that its vocabulary does not have', () => {
    expect(() => encoder.checkTokenIds([1, 10_000_000])).toThrow(
      '10000000 is not in the vocabulary',
    )
  })
})

describe('a cross-encoder', async () => {
  const golden = readGolden<{
    pairs: [string, string][]
    encoded: { ids: number[]; typeIds: number[] }[]
    logits: number[]
  }>('cross-encoder')
  const reranker = await openReranker({ runtime, folder: join(FIXTURES, 'cross-encoder') })
  afterAll(() => reranker.close())

  it('reads pairs as the reference does', () => {
    const encoded = golden.pairs.map(([query, document]) => reranker.encodePair(query, document))
    expect(encoded).toEqual(golden.encoded.map(({ ids, typeIds }) => ({ tokenIds: ids, typeIds })))
  })

  it('gives the scores of the reference', async () => {
    const pairs = golden.pairs.map(([query, document]) => reranker.encodePair(query, document))
    const scores = await Promise.all(pairs.map((pair) => reranker.score(pair, FOREVER)))
    for (const [index, logit] of golden.logits.entries()) {
      expect(scores[index]).toBeCloseTo(1 / (1 + Math.exp(-logit)), 4)
    }
  })

  it('cuts a long document but refuses a long query', () => {
    expect(() => reranker.encodePair('fox', 'fox '.repeat(10_000))).not.toThrow()
    expect(() => reranker.encodePair('fox '.repeat(10_000), 'fox')).toThrow('The query has')
  })
})

function cosine(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, i) => sum + value * (b[i] as number), 0) / (length(a) * length(b))
}

function length(vector: Float32Array): number {
  return Math.hypot(...vector)
}
