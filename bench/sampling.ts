import assert from 'node:assert/strict'

import { drawToken } from '#workers/sampling/draw.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'

const VOCABULARY = 49_152
const ROWS = 16
const TIMES = 20
const WAYS = [
  { temperature: 1, topP: 1 },
  { temperature: 0.7, topP: 0.9 },
]

/**
 * Tokens drawn from rows of a large vocabulary, against the definition over typed arrays: same
 * tokens.
 */
export async function benchSampling(): Promise<readonly Figure[]> {
  const rows = Array.from({ length: ROWS }, (_, seed) => row(seed))
  const figures: Figure[] = []
  for (const { temperature, topP } of WAYS) {
    const params = { temperature, topP, topK: 0, minP: 0 }
    const ours = (scores: Float32Array, uniform: number) => drawToken(scores, params, uniform)
    const plain = (scores: Float32Array, uniform: number) =>
      drawPlainly(scores, temperature, topP, uniform)
    for (const [at, scores] of rows.entries()) {
      assert.equal(ours(scores, at / ROWS), plain(scores, at / ROWS), 'the two sides disagree')
    }
    const name = `a token of ${VOCABULARY} at temperature ${temperature} and top_p ${topP} ÷ softmax, ${topP < 1 ? 'sort ' : ''}and sum`
    const found = await alternate(
      async () => time(rows, ours),
      async () => time(rows, plain),
    )
    figures.push({ name, unit: 'µs', ...found, target: { atMost: 0.5 } })
  }
  return figures
}

/** A few likely tokens over many unlikely ones, as a trained model has them. */
function row(seed: number): Float32Array {
  return Float32Array.from({ length: VOCABULARY }, (_, id) => {
    const noise = Math.sin(id * 12.9898 + seed * 78.233) * 43_758.5453
    return 12 * (noise - Math.floor(noise)) ** 3 + (id % 4099 === seed ? 7 : 0)
  })
}

/** Microseconds for one token. */
function time(
  rows: readonly Float32Array[],
  draw: (scores: Float32Array, uniform: number) => number,
): number {
  const startedAt = performance.now()
  for (let turn = 0; turn < TIMES; turn += 1) {
    for (const scores of rows) draw(scores, turn / TIMES)
  }
  return ((performance.now() - startedAt) * 1000) / (TIMES * rows.length)
}

function drawPlainly(
  scores: Float32Array,
  temperature: number,
  topP: number,
  uniform: number,
): number {
  let max = Number.NEGATIVE_INFINITY
  for (const score of scores) if (score > max) max = score
  const weights = new Float64Array(scores.length)
  let total = 0
  for (let id = 0; id < scores.length; id += 1) {
    weights[id] = Math.exp(((scores[id] as number) - max) / temperature)
    total += weights[id] as number
  }
  const least = topP < 1 ? leastKept(weights, topP * total) : 0
  let kept = 0
  for (const weight of weights) if (weight >= least) kept += weight
  let rest = uniform * kept
  for (let id = 0; id < weights.length; id += 1) {
    const weight = weights[id] as number
    if (weight >= least) rest -= weight
    if (rest < 0) return id
  }
  return -1
}

function leastKept(weights: Float64Array, wanted: number): number {
  const sorted = weights.toSorted()
  let reached = 0
  for (let at = sorted.length - 1; at >= 0; at -= 1) {
    reached += sorted[at] as number
    if (reached >= wanted) return sorted[at] as number
  }
  return 0
}
