import { expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import { type EmbeddingResult, MULTI_VECTOR_VALUES_MAX } from '#shared/contracts/embedding.ts'
import type { MultiVectorText } from '#workers/embedding/multi-vector-reader.ts'
import { embedTokens, rankByTokens } from '#workers/processors/multi-vector.ts'

const tools = { signal: new AbortController().signal, clock: systemClock }
const DIMENSIONS = 2

/** A model that gives each letter a vector of its code and one of zero before it. */
function modelOf(signals: AbortSignal[] = []) {
  const read: string[] = []
  const encoder = {
    ...{ contextLength: 8, dimensions: DIMENSIONS, isTruncatable: true, waitingCount: 0 },
    async read(text: string): Promise<MultiVectorText> {
      read.push(text)
      const tokenIds = [...text].map((letter) => letter.charCodeAt(0))
      return { tokenIds, kept: [...tokenIds.keys()], textTokens: tokenIds.length }
    },
    async embed({ tokenIds }: MultiVectorText, own: AbortSignal) {
      signals.push(own)
      if (tokenIds.includes(33)) throw new Error('a run failed')
      return {
        values: Float32Array.from(tokenIds.flatMap((id) => [id - 96, 4])),
        dimensions: DIMENSIONS,
      }
    },
    close: async () => {},
  }
  return { model: { task: 'multi-vector', encoder } as const, read }
}

const embed = (items: readonly string[], dimensions: number | null = null) =>
  embedTokens(
    { task: 'multi-vector', items, role: 'passage', isCut: true, dimensions },
    modelOf().model,
    tools,
  )
const floats = (base64: string) => {
  const bytes = Buffer.from(base64, 'base64')
  return Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(at * 4))
}
function matricesOf(result: EmbeddingResult) {
  if (result.task !== 'multi-vector') throw new Error('answered otherwise')
  return { width: result.width, matrices: result.matrices.map(floats) }
}

it('answers the vectors of each text, in the order of the texts', async () => {
  const { promptTokens, compute } = await embed(['ab', 'c'])
  const { matrices, width } = matricesOf(await compute())
  expect([promptTokens, width]).toEqual([3, 2])
  expect(matrices).toEqual([
    [1, 4, 2, 4],
    [3, 4],
  ])
})

it('cuts each vector to leading dimensions and scales it again', async () => {
  const { compute } = await embed(['ab'], 1)
  expect(matricesOf(await compute())).toEqual({ width: 1, matrices: [[1, 1]] })
  await expect(embed(['ab'], 3)).rejects.toMatchObject({ param: 'dimensions' })
})

it('refuses more values than one answer may have before it computes any', async () => {
  const most = 'a'.repeat(MULTI_VECTOR_VALUES_MAX / DIMENSIONS)
  await expect(embed([most, 'b'])).rejects.toMatchObject({
    param: 'input',
    code: 'array_above_max_length',
  })
  expect(await embed([most])).toMatchObject({ promptTokens: most.length })
})

it('sums the largest products of the tokens of a query', async () => {
  const { model } = modelOf()
  const input = { task: 'rerank', query: 'ab', documents: ['ac', 'b', ''] } as const
  const { promptTokens, compute } = await rankByTokens(input, model, tools)
  expect(promptTokens).toBe(5)
  expect(await compute()).toEqual({ task: 'rerank', scores: [3 + 16 + 6 + 16, 2 + 16 + 4 + 16, 0] })
})

it('reads each query once, and compares it with its own document', async () => {
  const { model, read } = modelOf()
  const documents = ['a', 'b', 'c']
  const input = { task: 'rerank', query: 'a', queries: ['a', 'b', 'a'], documents } as const
  const { compute } = await rankByTokens(input, model, tools)
  expect(await compute()).toEqual({ task: 'rerank', scores: [1 + 16, 4 + 16, 3 + 16] })
  expect(read).toEqual(['a', 'b', ...documents])
})

it('ends the work for the other texts when one fails', async () => {
  const signals: AbortSignal[] = []
  const { model } = modelOf(signals)
  const input = { task: 'rerank', query: 'a', documents: ['!', 'b'] } as const
  const { compute } = await rankByTokens(input, model, tools)
  await expect(compute()).rejects.toThrow('a run failed')
  expect(signals.slice(1).map(({ aborted }) => aborted)).toEqual([true, true])
})
