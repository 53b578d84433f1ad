import type { SamplingParams } from '#shared/contracts/completion.ts'

import { exponential, type Shape, sumWeights } from './exponentials.ts'
import { nucleusThreshold } from './nucleus.ts'
import { argmax, largestValueAt } from './select.ts'

/** The parameters that select the candidate tokens and the temperature. */
export type DrawParams = Pick<SamplingParams, 'temperature' | 'topK' | 'topP' | 'minP'>

const TEMPERATURE_MIN = 1e-30
const BLOCK = 512

/**
 * The token at `uniform` (0 to 1) of the cumulated probabilities of the candidate tokens, by rising
 * id; -1 when no score is a number above -∞.
 */
export function drawToken(scores: Float32Array, params: DrawParams, uniform: number): number {
  const likeliest = argmax(scores)
  if (likeliest < 0) return -1
  const shape = shapeOf(scores[likeliest] as number, params)
  const least = leastDrawn(scores, params, shape.max)
  const sums = new Float64Array(Math.ceil(scores.length / BLOCK))
  let total = 0
  for (let block = 0; block < sums.length; block += 1) {
    const from = block * BLOCK
    sums[block] = sumWeights(scores, shape, least, from, Math.min(from + BLOCK, scores.length))
    total += sums[block] as number
  }
  // The block sums locate the block of the token.
  let remaining = uniform * total
  let block = 0
  while (block < sums.length && remaining >= (sums[block] as number)) {
    remaining -= sums[block] as number
    block += 1
  }
  for (let id = block * BLOCK; id < scores.length; id += 1) {
    const score = scores[id] as number
    const weight = score >= least ? exponential((score - shape.max) * shape.scale) : 0
    remaining -= weight
    if (remaining < 0 && weight > 0) return id
  }
  return likeliest // rounding left a remainder at the very end
}

/**
 * The lowest score that may be drawn: among the `topK` largest, those whose probabilities reach
 * `topP`, and those at least `minP` times as likely as the likeliest, whose score is `max`.
 */
export function leastDrawn(scores: Float32Array, params: DrawParams, max: number): number {
  const { topK, topP, minP } = params
  const shape = shapeOf(max, params)
  let least = Number.NEGATIVE_INFINITY
  if (topK > 0 && topK < scores.length) least = largestValueAt(scores, topK)
  if (topP < 1) least = leastOfNucleus(scores, least, shape, topP)
  if (minP > 0) least = Math.max(least, shape.max + Math.log(minP) / shape.scale)
  return least
}

function shapeOf(max: number, { temperature }: DrawParams): Shape {
  return { max, scale: 1 / Math.max(temperature, TEMPERATURE_MIN) }
}

function leastOfNucleus(scores: Float32Array, floor: number, shape: Shape, topP: number): number {
  const total = sumWeights(scores, shape, floor)
  // Tokens below this weight sum to less than the cut-off share, so the nucleus is above.
  const weight = ((1 - topP) * total) / scores.length / 2
  const least = Math.max(floor, shape.max + Math.log(weight) / shape.scale)
  return nucleusThreshold(scores, shape, { wanted: topP * total, least })
}
