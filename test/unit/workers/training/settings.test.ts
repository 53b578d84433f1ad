import { expect, it } from 'vitest'

import { settle } from '#workers/training/settings.ts'

const OPEN = {
  epochs: null,
  batchSize: null,
  learningRateMultiplier: null,
  rank: null,
  alpha: null,
}
const examples = (length: number) => Array.from({ length }, () => ({ tokenIds: [], isTarget: [] }))
const module = (inSize: number) => ({ inSize }) as Parameters<typeof settle>[2][number]

it.each([
  ['few examples', 10, {}, { epochs: 20, batchSize: 4 }],
  ['hundreds', 1600, {}, { epochs: 6, batchSize: 25 }],
  ['very many', 100_000, {}, { epochs: 3, batchSize: 32 }],
  ['what is stated', 10, { epochs: 2, batchSize: 3 }, { epochs: 2, batchSize: 3 }],
])('settles epochs and batch size for %s', (_name, count, stated, settled) => {
  const hyperparameters = { ...OPEN, ...stated }
  expect(settle({ hyperparameters, epochsMax: 50 }, examples(count), [module(2048)])).toMatchObject(
    settled,
  )
})

it('decides no more epochs than the limit', () => {
  const wanted = { hyperparameters: OPEN, epochsMax: 4 }
  expect(settle(wanted, examples(10), [module(2048)]).epochs).toBe(4)
})

it.each([
  [2048, null, 2e-4],
  [2048, 1, 2e-4],
  [2048, 0.5, 1e-4],
  [1024, null, 4e-4],
  [64, null, 3e-3],
  [64, 2, 6e-3],
])('at width %i a multiplier of %s is the learning rate %f', (width, multiplier, rate) => {
  const hyperparameters = { ...OPEN, learningRateMultiplier: multiplier }
  const { learningRate } = settle({ hyperparameters, epochsMax: 50 }, examples(100), [
    module(width),
    module(4096),
  ])
  expect(learningRate).toBeCloseTo(rate, 9)
})
