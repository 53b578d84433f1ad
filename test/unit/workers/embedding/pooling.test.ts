import { expect, it } from 'vitest'

import { normalize, type PoolingMode, pool } from '#workers/embedding/pooling.ts'

// Two texts of three and one tokens, padded on the right to three.
const VECTORS = {
  data: Float32Array.from([1, 4, 2, 5, 6, 0, -3, 4, 9, 9, 9, 9]),
  width: 3,
  dimensions: 2,
  mask: BigInt64Array.from([1n, 1n, 1n, 1n, 0n, 0n]),
}

const CASES: readonly (readonly [PoolingMode, readonly number[], readonly number[]])[] = [
  ['mean', [3, 3], [-3, 4]],
  ['cls', [1, 4], [-3, 4]],
  ['max', [6, 5], [-3, 4]],
  ['lastToken', [6, 0], [-3, 4]],
  // Weights 1, 2, 3: (1 + 4 + 18) / 6 and (4 + 10 + 0) / 6.
  ['weightedMean', [23 / 6, 14 / 6], [-3, 4]],
  ['meanSqrtLength', [9 / Math.sqrt(3), 9 / Math.sqrt(3)], [-3, 4]],
]

it.each(CASES)('pools by %s without touching padding', (mode, first, second) => {
  for (const [row, expected] of [first, second].entries()) {
    const pooled = [...pool(mode, VECTORS, row)]
    for (const [i, value] of expected.entries()) expect(pooled[i]).toBeCloseTo(value, 5)
  }
})

it('finds the first and the last token behind padding on the left', () => {
  const left = { ...VECTORS, mask: BigInt64Array.from([0n, 1n, 1n, 0n, 0n, 1n]) }
  expect([...pool('cls', left, 0)]).toEqual([2, 5])
  expect([...pool('lastToken', left, 1)]).toEqual([9, 9])
})

it('scales a vector to length one and does not change zero', () => {
  expect([...normalize(Float32Array.from([3, 4]))].map((value) => value.toFixed(4))).toEqual([
    '0.6000',
    '0.8000',
  ])
  expect([...normalize(new Float32Array(2))]).toEqual([0, 0])
})
