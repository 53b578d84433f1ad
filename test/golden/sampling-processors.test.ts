import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { describe, expect, it } from 'vitest'

import type { SamplingParams } from '#shared/contracts/completion.ts'
import { NEUTRAL_SAMPLING } from '#test/support/sampling.ts'
import { leastDrawn } from '#workers/sampling/draw.ts'
import { logprobOf } from '#workers/sampling/logprobs.ts'
import { buildLogitsProcessors } from '#workers/sampling/sampler.ts'

// Recorded by make-sampling-processors.py beside this file, from transformers' own LogitsProcessor
// classes.
interface Golden {
  readonly logits: number[]
  readonly prompt: number[]
  readonly generated: number[]
  readonly logSoftmax: number[]
  readonly results: Readonly<Record<string, (number | null)[]>>
}

const golden = JSON.parse(
  readFileSync(join(import.meta.dirname, 'sampling-processors.json'), 'utf8'),
) as Golden

const CASES: Readonly<Record<string, Partial<SamplingParams>>> = {
  'temperature 0.5': { temperature: 0.5 },
  'temperature 1.7': { temperature: 1.7 },
  'topK 5': { topK: 5 },
  'topK 1': { topK: 1 },
  'topP 0.5': { topP: 0.5 },
  'topP 0.9': { topP: 0.9 },
  'topP 0.99': { topP: 0.99 },
  'minP 0.1': { minP: 0.1 },
  'repetitionPenalty 1.3': { repetitionPenalty: 1.3 },
  logitBias: { logitBias: { 4: 2.5, 11: -100 } },
  all: { repetitionPenalty: 1.2, temperature: 0.8, topK: 12, topP: 0.95, minP: 0.02 },
}

describe('logits processors', () => {
  it.each(Object.entries(CASES))('agree with the reference for %s', (name, params) => {
    const scores = Float32Array.from(golden.logits)
    const counts = new Map<number, number>()
    for (const id of golden.generated) counts.set(id, (counts.get(id) ?? 0) + 1)
    const history = { counts, position: golden.generated.length }
    for (const process of buildLogitsProcessors(
      { ...NEUTRAL_SAMPLING, ...params },
      golden.prompt,
    )) {
      process(scores, history)
    }
    const expected = golden.results[name] as (number | null)[]
    const sampling = { ...NEUTRAL_SAMPLING, ...params }
    const lowest = leastDrawn(scores, sampling, Math.max(...scores))
    const left = [...scores].map((score) => (score < lowest ? null : score / sampling.temperature))
    expect(left).toEqual(
      expected.map((value) => (value === null ? null : expect.closeTo(value, 3))),
    )
  })

  it('covers every recorded case', () => {
    expect(Object.keys(CASES).toSorted()).toEqual(Object.keys(golden.results).toSorted())
  })

  it('gives the reference log-probabilities', () => {
    const logits = Float32Array.from(golden.logits)
    const logprobs = golden.logits.map((_, tokenId) => logprobOf(logits, tokenId))
    expect(logprobs).toEqual(golden.logSoftmax.map((value) => expect.closeTo(value, 4)))
  })
})
