import { describe, expect, it } from 'vitest'

import type { SamplingParams } from '#shared/contracts/completion.ts'
import { NEUTRAL_SAMPLING } from '#test/support/sampling.ts'
import { Sampler, SamplingWorkspace } from '#workers/sampling/sampler.ts'
import { largestValueAt, selectLargest } from '#workers/sampling/select.ts'

const VOCABULARY = 40
const BASE: SamplingParams = { ...NEUTRAL_SAMPLING, seed: 11 }

/** A row of logits that depends on the position only. */
function logitsAt(position: number): Float32Array {
  return Float32Array.from(
    { length: VOCABULARY },
    (_, id) => 2 * Math.sin(id * 7.3 + position * 1.7),
  )
}

function sampler(
  params: Partial<SamplingParams>,
  candidateIndex = 0,
  logprobs: number | null = null,
) {
  return new Sampler({
    params: { ...BASE, ...params },
    promptTokenIds: [1, 2, 3, 4, 5],
    candidateIndex,
    logprobs,
    workspace: new SamplingWorkspace(),
  })
}

function generate(params: Partial<SamplingParams>, candidateIndex = 0): number[] {
  const own = sampler(params, candidateIndex)
  return Array.from({ length: 60 }, (_, position) => own.next(logitsAt(position), position).tokenId)
}

describe('the sampler', () => {
  it.each<Partial<SamplingParams>>([
    { temperature: 0 },
    { temperature: 0.5 },
    { temperature: 1.9 },
    { topP: 0.4 },
    { topK: 3 },
    { minP: 0.5 },
    { presencePenalty: 2 },
    { frequencyPenalty: 2 },
    { repetitionPenalty: 1.8 },
    { logitBias: { 7: 100 } },
    { logitBias: { 7: -100, 8: -100, 9: -100, 10: -100, 33: -100 } },
    { seed: 12 },
  ])('chooses other tokens with %j', (params) => {
    expect(generate(params)).not.toEqual(generate({}))
    expect(generate(params)).toEqual(generate(params))
  })

  it.each<Partial<SamplingParams>>([
    { presencePenalty: 2 },
    { frequencyPenalty: 1 },
    { repetitionPenalty: 1.8 },
    { logitBias: { 7: 100 } },
  ])('changes greedy decoding with %j', (params) => {
    expect(generate({ ...params, temperature: 0 })).not.toEqual(generate({ temperature: 0 }))
  })

  it('is greedy at temperature 0 with any seed, and with only one token to keep', () => {
    const greedy = Array.from({ length: 60 }, (_, p) => selectLargest(logitsAt(p), 1)[0])
    expect(generate({ temperature: 0, seed: 5 })).toEqual(greedy)
    expect(generate({ topK: 1 })).toEqual(greedy)
    expect(generate({ topP: 0 })).toEqual(greedy)
  })

  it('bans with -100 and forces with 100', () => {
    expect(generate({ logitBias: { 7: 100 } })).toEqual(Array(60).fill(7))
    const likely = new Set(generate({}))
    const banned = Object.fromEntries([...likely].slice(0, 20).map((id) => [id, -100]))
    expect(generate({ logitBias: banned }).some((id) => id in banned)).toBe(false)
  })

  it('applies the frequency penalty for each time a token was chosen, the presence penalty once', () => {
    const nextAfter = (times: number, params: Partial<SamplingParams>): number => {
      const own = sampler({ temperature: 0, ...params })
      for (let time = 0; time < times; time += 1) own.replay(3)
      const logits = new Float32Array(VOCABULARY)
      logits[3] = 5
      logits[4] = 4
      return own.next(logits, times).tokenId
    }
    expect(nextAfter(1, { frequencyPenalty: 0.6 })).toBe(3)
    expect(nextAfter(2, { frequencyPenalty: 0.6 })).toBe(4)
    expect(nextAfter(2, { presencePenalty: 0.6 })).toBe(3)
    expect(nextAfter(1, { presencePenalty: 1.2 })).toBe(4)
  })

  it('gives each candidate a separate random stream', () => {
    expect(generate({}, 1)).not.toEqual(generate({}, 0))
  })

  it('continues after a replay as if it had never stopped', () => {
    const params = { frequencyPenalty: 1.5, repetitionPenalty: 1.2, temperature: 1.3 }
    const whole = generate(params)
    const resumed = sampler(params)
    for (const id of whole.slice(0, 25)) resumed.replay(id)
    const rest = Array.from(
      { length: 35 },
      (_, k) => resumed.next(logitsAt(25 + k), 25 + k).tokenId,
    )
    expect(rest).toEqual(whole.slice(25))
  })

  it('reports log-probabilities of the model itself, with any parameters', () => {
    const plain = sampler({ temperature: 0, logitBias: { 3: 50 } }, 0, 2).next(logitsAt(0), 0)
    const logits = [...logitsAt(0)]
    const normalizer = Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit), 0))
    expect(plain.tokenId).toBe(3)
    expect(plain.logprob).toBeCloseTo((logits[3] as number) - normalizer, 5)
    expect(plain.top?.map(({ tokenId }) => tokenId)).toEqual(selectLargest(logitsAt(0), 2))
  })

  it('does not change the logits', () => {
    const logits = logitsAt(0)
    sampler({ temperature: 0.3, topK: 4, topP: 0.5 }).next(logits, 0)
    expect(logits).toEqual(logitsAt(0))
  })

  it('refuses a row without a single number', () => {
    const row = new Float32Array(VOCABULARY).fill(Number.NaN)
    expect(() => sampler({ temperature: 0 }).next(row, 0)).toThrow('no finite logits')
    expect(() => sampler({}).next(row, 0)).toThrow('no finite logits')
  })
})

describe('partial selection', () => {
  it('equals a full sort for every length, lower indices first among equals', () => {
    const values = Float32Array.from({ length: 500 }, (_, k) => Math.round(20 * Math.sin(k * k)))
    const sorted = [...values.keys()].toSorted(
      (a, b) => (values[b] as number) - (values[a] as number) || a - b,
    )
    for (const count of [1, 2, 5, 64, 65, 499, 500]) {
      expect(selectLargest(values, count)).toEqual(sorted.slice(0, count))
      expect(largestValueAt(values, count)).toBe(values[sorted[count - 1] as number])
    }
  })
})

describe('values at the edge of a float', () => {
  it.each<Partial<SamplingParams>>([
    { temperature: 1e-9 },
    { temperature: 1e-40 },
    { temperature: Number.MIN_VALUE },
    { temperature: 1e-40, topP: 0.9, minP: 0.1, topK: 2 },
    { topP: 0 },
    { minP: 1 },
    { topP: Number.MIN_VALUE, minP: Number.MIN_VALUE, temperature: 2 },
  ])('take the likeliest token: %j', (params) => {
    expect(generate(params)).toEqual(generate({ temperature: 0 }))
  })

  it.each<Partial<SamplingParams>>([
    { repetitionPenalty: 1e-300 },
    { repetitionPenalty: 1e-300, temperature: 0 },
    { repetitionPenalty: 1e-40, temperature: 1e-40, topP: 0.5 },
  ])('choose among the tokens that they prefer: %j', (params) => {
    const own = sampler(params)
    const logits = Float32Array.from({ length: VOCABULARY }, (_, id) => (id === 30 ? 9 : 1))
    for (let position = 0; position < 20; position += 1) {
      // Tokens 1 to 5 of the prompt are the ones that a penalty below one favours.
      expect([1, 2, 3, 4, 5]).toContain(own.next(logits, position).tokenId)
    }
  })

  it('are drawn like others', () => {
    const own = sampler({ repetitionPenalty: 1e-300 })
    const logits = new Float32Array(VOCABULARY).fill(1)
    const chosen = Array.from({ length: 40 }, (_, position) => own.next(logits, position).tokenId)
    expect(new Set(chosen).size).toBeGreaterThan(1)
  })
})
