import { describe, expect, it } from 'vitest'

import { type DrawParams, drawToken } from '#workers/sampling/draw.ts'
import { exponential } from '#workers/sampling/exponentials.ts'

const VOCABULARY = 3000

/** A row with a few likely tokens, many unlikely ones and some that are banned. */
function row(seed: number): Float32Array {
  return Float32Array.from({ length: VOCABULARY }, (_, id) => {
    if ((id * 31 + seed) % 97 === 0) return Number.NEGATIVE_INFINITY
    const noise = Math.sin(id * 12.9898 + seed * 78.233) * 43_758.5453
    const value = 12 * (noise - Math.floor(noise)) ** 3
    return id % 411 === seed ? value + 7 : value
  })
}

/** As the definitions say: everything sorted, every probability computed, nothing saved. */
function drawPlainly(scores: Float32Array, params: DrawParams, uniform: number): number {
  const max = Math.max(...scores)
  const weigh = (score: number) => Math.exp((score - max) / params.temperature)
  const sorted = [...scores].sort((a, b) => b - a)
  const largest = params.topK > 0 ? sorted.slice(0, params.topK) : sorted
  const total = largest.reduce((sum, score) => sum + weigh(score), 0)
  let lowest = largest.at(-1) as number
  let reached = 0
  for (const score of largest) {
    if (params.topP < 1 && reached >= params.topP * total) break
    reached += weigh(score)
    lowest = Math.max(score, max + params.temperature * Math.log(params.minP))
  }
  const weights = [...scores].map((score) => (score >= lowest ? weigh(score) : 0))
  const wanted = uniform * weights.reduce((sum, weight) => sum + weight, 0)
  let passed = 0
  return weights.findIndex((weight) => {
    passed += weight
    return passed > wanted
  })
}

describe('drawing a token', () => {
  it.each<DrawParams>([
    { temperature: 1, topK: 0, topP: 1, minP: 0 },
    { temperature: 0.3, topK: 0, topP: 1, minP: 0 },
    { temperature: 5, topK: 0, topP: 1, minP: 0 },
    { temperature: 1, topK: 40, topP: 1, minP: 0 },
    { temperature: 2, topK: 700, topP: 1, minP: 0 },
    { temperature: 1, topK: VOCABULARY, topP: 1, minP: 0 },
    { temperature: 0.7, topK: 0, topP: 0.9, minP: 0 },
    { temperature: 3, topK: 0, topP: 0.95, minP: 0 },
    { temperature: 1, topK: 0, topP: 0.9999, minP: 0 },
    { temperature: 1, topK: 0, topP: 1, minP: 0.05 },
    { temperature: 1.5, topK: 50, topP: 0.8, minP: 0.01 },
  ])('finds the token that the definitions give, with %j', (params) => {
    const found: number[] = []
    const expected: number[] = []
    for (let seed = 0; seed < 20; seed += 1) {
      const scores = row(seed)
      for (const uniform of [0, 0.1, 0.37, 0.5, 0.83, 0.999]) {
        found.push(drawToken(scores, params, uniform))
        expected.push(drawPlainly(scores, params, uniform))
      }
    }
    expect(found).toEqual(expected)
  })

  it('never returns a banned token, however close to the end it searches', () => {
    const scores = Float32Array.from([Number.NEGATIVE_INFINITY, 1, Number.NaN, 2, -1e30])
    const params = { temperature: 1, topK: 0, topP: 1, minP: 0 }
    expect(drawToken(scores, params, 0)).toBe(1)
    expect(drawToken(scores, params, 1 - 2 ** -53)).toBe(3)
  })
})

describe('the exponential', () => {
  it('equals that of the platform within 3e-12, down to the smallest normal float', () => {
    for (let x = 0; x > -87; x -= 0.0137) {
      expect(Math.abs(exponential(x) / Math.exp(x) - 1)).toBeLessThan(3e-12)
    }
    expect([0, -0, -88, Number.NEGATIVE_INFINITY, Number.NaN].map(exponential)).toEqual([
      1, 1, 0, 0, 0,
    ])
  })
})
