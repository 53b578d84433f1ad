import { describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'
import { NEUTRAL_SAMPLING } from '#test/support/sampling.ts'
import { logprobOf, rankOf } from '#workers/sampling/logprobs.ts'

import { encode, runJob } from './completion-job.ts'
import { babble, scriptedEngine } from './scripted-engine.ts'

const PROMPTS = ['The quick', 'A small river'].map((text) => ({ form: 'text' as const, text }))
const asked = { prompts: PROMPTS, maxTokens: 2, promptLogprobs: 2 }

it('scores and ranks the tokens of each prompt once, with their likeliest alternatives', async () => {
  const { result } = await runJob({ ...asked, n: 2, bestOf: 3 }, { engine: scriptedEngine(babble) })
  expect(result.candidates).toHaveLength(4)
  expect(result.promptLogprobs).toHaveLength(2)
  result.promptLogprobs?.forEach((positions, index) => {
    const tokenIds = encode(PROMPTS[index]?.text ?? '')
    expect(positions).toHaveLength(tokenIds.length)
    expect(positions[0]).toBeNull()
    positions.slice(1).forEach((tokens, before) => {
      const logits = babble(tokenIds.slice(0, before + 1))
      const tokenId = tokenIds[before + 1] as number
      const rank = rankOf(logits, tokenId)
      expect(tokens?.[0]).toMatchObject({ tokenId, rank, logprob: logprobOf(logits, tokenId) })
      const others = tokens?.slice(1).map((token) => token.rank)
      expect(others).toEqual([1, 2].filter((one) => one !== rank))
    })
    const texts = positions.slice(1).map((tokens) => tokens?.[0]?.token)
    expect(PROMPTS[index]?.text.endsWith(texts.join(''))).toBe(true)
  })
  // A scored prompt leaves the scores of the answer as they are.
  expect(result.candidates[0]).not.toHaveProperty('logprobs')
})

it('returns them beside an echo with fewer alternatives', async () => {
  const both = { ...asked, echo: true, logprobs: 1 }
  const { result } = await runJob(both, { engine: scriptedEngine(babble) })
  const alone = await runJob(asked, { engine: scriptedEngine(babble) })
  expect(result.promptLogprobs).toEqual(alone.result.promptLogprobs)
  expect(result.candidates[0]?.logprobs?.[1]?.top).toHaveLength(1)
})

it('scores a prompt again if another worker continues', async () => {
  const whole = await runJob(asked, { engine: scriptedEngine(babble) })
  const tokenIds = whole.result.candidates[0]?.tokenIds ?? []
  const resume = [{ index: 0, tokenIds, finishReason: 'length' as const }]
  const { result } = await runJob({ ...asked, resume }, { engine: scriptedEngine(babble) })
  expect(result).toEqual(whole.result)
})

it('returns none unless the request asks for them', async () => {
  const { result } = await runJob({ prompts: PROMPTS }, { engine: scriptedEngine(babble) })
  expect(result).not.toHaveProperty('promptLogprobs')
})

describe('an answer with more log-probabilities than one may have', () => {
  const long = { form: 'text' as const, text: 'The quick brown fox. '.repeat(5) }
  it.each<[string, Partial<GenerateInput>]>([
    ['of its prompts', { prompts: Array(300).fill(long), promptLogprobs: 20 }],
    ['of an echo', { prompts: [long], n: 1000, bestOf: 1000, echo: true, logprobs: 5 }],
  ])('is refused before it is computed: %s', async (_what, input) => {
    const engine = scriptedEngine(() => {
      throw new Error('the engine ran')
    })
    await expect(runJob({ maxTokens: 1, ...input }, { engine })).rejects.toMatchObject({
      kind: 'invalidRequest',
      code: 'too_many_logprobs',
    })
  })

  const tokens = 16
  const many = {
    n: 1000,
    bestOf: 1000,
    maxTokens: tokens,
    logprobs: 20,
    sampling: { ...NEUTRAL_SAMPLING, temperature: 1, seed: 7 },
  }

  it('is refused while it is computed', async () => {
    const engine = scriptedEngine(babble)
    await expect(runJob(many, { engine })).rejects.toMatchObject({ code: 'too_many_logprobs' })
  })

  it('is sent as a stream, whose result does not repeat them', async () => {
    const engine = scriptedEngine(babble)
    const { deltas, result } = await runJob({ ...many, stream: true }, { engine })
    const sent = deltas.flatMap(({ logprobs = [] }) => logprobs)
    expect(sent.length).toBeGreaterThan(100_000 / 21)
    expect(sent.every(({ top }) => top.length === 20)).toBe(true)
    expect(result.candidates[0]).not.toHaveProperty('logprobs')
  })
})
