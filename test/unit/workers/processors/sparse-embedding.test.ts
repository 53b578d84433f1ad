import { expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import { SPARSE_VALUES_MAX } from '#shared/contracts/embedding.ts'
import { embedSparse } from '#workers/processors/sparse-embedding.ts'

const signal = new AbortController().signal

/** A model that weighs this many tokens for every text. */
const modelOf = (weightCount: number, signals: AbortSignal[] = []) => ({
  ...({ task: 'sparse', options: {} } as const),
  encoder: {
    contextLength: 8,
    prompts: {},
    waitingCount: 0,
    encodeText: async () => [1, 2],
    checkTokenIds: (tokenIds: readonly number[]) => tokenIds,
    async embed(_tokenIds: readonly number[], own: AbortSignal) {
      signals.push(own)
      return { indices: new Uint32Array(weightCount), values: new Float32Array(weightCount) }
    },
    close: async () => {},
  },
})
const read = (model: ReturnType<typeof modelOf>, items: readonly string[]) =>
  embedSparse({ task: 'sparse', items, role: 'none' }, model, { signal, clock: systemClock })

it('answers weights as base64, in the order of the texts', async () => {
  const { promptTokens, compute } = await read(modelOf(1), ['a', 'b'])
  expect(promptTokens).toBe(4)
  const vector = { indices: 'AAAAAA==', values: 'AAAAAA==' }
  expect(await compute()).toEqual({ task: 'sparse', vectors: [vector, vector] })
})

it('refuses more weights than one answer may have, and ends the work for the others', async () => {
  const signals: AbortSignal[] = []
  const { compute } = await read(modelOf(SPARSE_VALUES_MAX / 2, signals), ['a', 'b', 'c'])
  await expect(compute()).rejects.toMatchObject({ param: 'inputs', code: 'array_above_max_length' })
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, true, true])
})
