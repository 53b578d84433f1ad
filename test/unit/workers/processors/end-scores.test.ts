import { describe, expect, it } from 'vitest'

import { logprobOf } from '#workers/sampling/logprobs.ts'

import { encode, runJob, text } from './completion-job.ts'
import { scriptedEngine, writes } from './scripted-engine.ts'

const PROMPT = encode('The quick')
const ANSWER = encode(' brown fox')
const [END_TOKEN = 2] = text.endTokenIds
const logitsOf = writes(ANSWER, PROMPT.length)
const engine = () => scriptedEngine(logitsOf)

describe('the token that ends a text', () => {
  it('has its score behind those of the text, of which it is not a part', async () => {
    const { result, usage } = await runJob({ logprobs: 1 }, { engine: engine() })
    const [candidate] = result.candidates
    expect(candidate).toMatchObject({ text: ' brown fox', tokenIds: ANSWER, finishReason: 'stop' })
    expect(candidate?.logprobs?.map(({ tokenId }) => tokenId)).toEqual([...ANSWER, END_TOKEN])
    const end = candidate?.logprobs?.at(-1)
    expect(end?.logprob).toBe(logprobOf(logitsOf([...PROMPT, ...ANSWER]), END_TOKEN))
    expect(end?.top.map(({ tokenId }) => tokenId)).toEqual([END_TOKEN])
    expect(usage.completionTokens).toBe(ANSWER.length)
  })

  it('replaces the one requested token behind a scored prompt', async () => {
    const prompts = [{ form: 'tokenIds' as const, tokenIds: [...PROMPT, ...ANSWER] }]
    const input = { prompts, maxTokens: 1, echo: true, logprobs: 1 }
    const { result } = await runJob(input, { engine: engine() })
    const tokenIds = result.candidates[0]?.logprobs?.map(({ tokenId }) => tokenId)
    expect(tokenIds).toEqual([...PROMPT, ...ANSWER, END_TOKEN])
  })

  it('is sent in the last chunk of a stream', async () => {
    const { deltas, result } = await runJob({ logprobs: 0, stream: true }, { engine: engine() })
    const sent = deltas.flatMap(({ logprobs }) => logprobs ?? [])
    expect(sent).toEqual(result.candidates[0]?.logprobs)
    expect(deltas.at(-1)).toMatchObject({ finishReason: 'stop' })
    expect(deltas.at(-1)?.logprobs?.at(-1)?.tokenId).toBe(END_TOKEN)
  })

  it.each([true, false])('is listed with the token ids on request (stream %s)', async (stream) => {
    const asked = { stream, returnsPromptTokens: true }
    const { deltas, result } = await runJob(asked, { engine: engine() })
    const named = stream ? deltas.at(-1) : result.candidates[0]
    expect(named).toMatchObject({ endTokenId: END_TOKEN, finishReason: 'stop' })
    const cut = await runJob({ ...asked, maxTokens: 1 }, { engine: engine() })
    expect(cut.deltas.at(-1) ?? cut.result.candidates[0]).not.toHaveProperty('endTokenId')
    const { result: unasked } = await runJob({ stream }, { engine: engine() })
    expect(unasked.candidates[0]).not.toHaveProperty('endTokenId')
  })

  it.each([true, false])('names tokens of scores by their ids (stream %s)', async (stream) => {
    const asked = { stream, logprobs: 1, echo: true, namesTokensById: true }
    const { deltas, result } = await runJob(asked, { engine: engine() })
    const entries = stream
      ? deltas.flatMap(({ logprobs }) => logprobs ?? [])
      : (result.candidates[0]?.logprobs ?? [])
    const ids = [...PROMPT, ...ANSWER, END_TOKEN]
    expect(entries.map(({ token }) => token)).toEqual(ids.map((id) => `token_id:${id}`))
    for (const { top } of entries) {
      for (const { token, tokenId } of top) expect(token).toBe(`token_id:${tokenId}`)
    }
  })

  it('is absent from a text that ends in another way, and from chats', async () => {
    const chat = [{ form: 'chat' as const, messages: [{ role: 'user' as const, content: 'hi' }] }]
    for (const input of [{ maxTokens: 2 }, { stop: ['fox'] }, { prompts: chat }]) {
      const { result } = await runJob({ ...input, logprobs: 0 }, { engine: engine() })
      const tokenIds = result.candidates[0]?.logprobs?.map(({ tokenId }) => tokenId)
      expect(tokenIds, JSON.stringify(input)).not.toContain(END_TOKEN)
    }
  })

  it.each([true, false])('is the same if another worker continues (stream %s)', async (stream) => {
    const whole = await runJob({ logprobs: 1, stream: true }, { engine: engine() })
    for (let cut = 1; cut <= ANSWER.length; cut += 1) {
      const resume = [{ index: 0, tokenIds: ANSWER.slice(0, cut) }]
      const { result } = await runJob({ logprobs: 1, stream, resume }, { engine: engine() })
      expect(result.candidates[0]?.logprobs).toEqual(whole.result.candidates[0]?.logprobs)
    }
    const resume = [{ index: 0, tokenIds: ANSWER, finishReason: 'stop' as const }]
    const { result } = await runJob({ logprobs: 1, resume }, { engine: engine() })
    expect(result.candidates[0]?.logprobs).toEqual(whole.result.candidates[0]?.logprobs)
  })
})
