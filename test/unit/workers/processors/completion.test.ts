import { describe, expect, it } from 'vitest'

import { CancelledError } from '#shared/errors.ts'
import { logprobOf } from '#workers/sampling/logprobs.ts'

import { encode, runJob, text, textOf } from './completion-job.ts'
import { babble, scriptedEngine, writes } from './scripted-engine.ts'

const SAMPLED = { temperature: 1, topP: 1, topK: 0, minP: 0, presencePenalty: 0.5 } as const
const SAMPLING = {
  ...SAMPLED,
  frequencyPenalty: 0.5,
  repetitionPenalty: 1.1,
  logitBias: {},
  seed: 9,
}
const PROMPT = 'The quick'
const promptLength = encode(PROMPT).length

function answering(answer: string) {
  return scriptedEngine(writes(encode(answer), promptLength))
}

describe('a completion job', () => {
  it('answers with the text up to the end token', async () => {
    const { result, usage, promptTokens } = await runJob(
      { maxTokens: 64 },
      { engine: answering(' brown fox 🙂') },
    )
    expect(result.candidates).toEqual([
      { index: 0, text: ' brown fox 🙂', tokenIds: encode(' brown fox 🙂'), finishReason: 'stop' },
    ])
    expect(promptTokens).toBe(promptLength)
    expect(usage).toEqual({
      promptTokens: promptLength,
      completionTokens: encode(' brown fox 🙂').length,
      cachedTokens: 3,
    })
  })

  it('stops at max_tokens, or at the end of the window without it', async () => {
    const engine = scriptedEngine(babble)
    const some = await runJob({ maxTokens: 7 }, { engine })
    expect(some.result.candidates[0]).toMatchObject({ finishReason: 'length' })
    expect(some.usage.completionTokens).toBe(7)
    const rest = await runJob({ maxTokens: null }, { engine })
    expect(rest.usage.completionTokens).toBe(256 - promptLength)
  })

  it('reads a prompt of token ids like the text it encodes', async () => {
    const engine = scriptedEngine(babble)
    const plain = await runJob({}, { engine })
    const ids = await runJob(
      { prompts: [{ form: 'tokenIds', tokenIds: encode(PROMPT) }] },
      { engine },
    )
    expect(ids.result).toEqual(plain.result)
  })

  it('begins a fresh document for an empty prompt', async () => {
    const engine = scriptedEngine(babble)
    await runJob({ prompts: [{ form: 'text', text: '' }] }, { engine })
    expect(engine.requests[0]?.promptTokenIds).toEqual([text.documentStartTokenId])
  })

  it('shows no part of a stop string that spans tokens, in stream and result', async () => {
    const input = { stop: ['fox j', 'never'], stream: true, maxTokens: 64, logprobs: 1 }
    const { result, deltas } = await runJob(input, { engine: answering(' brown fox jumps') })
    const [candidate] = result.candidates
    expect(candidate).toMatchObject({ text: ' brown ', finishReason: 'stop' })
    expect(textOf(deltas)).toBe(' brown ')
    expect(candidate?.logprobs?.map(({ token }) => token).join('')).toBe(' brown ')
  })

  it('streams the text of the result, with one finish reason per candidate', async () => {
    const engine = scriptedEngine(babble)
    const input = {
      n: 3,
      bestOf: 3,
      sampling: SAMPLING,
      stream: true,
      logprobs: 2,
      echo: true,
      maxTokens: 20,
    }
    const { result, deltas } = await runJob(input, { engine })
    expect(new Set(result.candidates.map((candidate) => candidate.text)).size).toBe(3)
    for (const candidate of result.candidates) {
      const own = deltas.filter(({ index }) => index === candidate.index)
      expect(textOf(own, candidate.index)).toBe(candidate.text)
      expect(own.flatMap(({ tokenIds }) => tokenIds)).toEqual(candidate.tokenIds)
      expect(own.flatMap(({ logprobs }) => logprobs ?? [])).toEqual(candidate.logprobs)
      expect(own.filter(({ finishReason }) => finishReason !== undefined)).toHaveLength(1)
      expect(own.at(-1)?.finishReason).toBe('length')
    }
  })

  it('scores an echoed prompt without generating anything', async () => {
    const engine = scriptedEngine(babble)
    const input = {
      prompts: [{ form: 'text' as const, text: 'The quick 日' }],
      maxTokens: 0,
      echo: true,
      logprobs: 2,
    }
    const { result, usage } = await runJob(input, { engine })
    const [candidate] = result.candidates
    const tokenIds = encode('The quick 日')
    expect(candidate).toMatchObject({ text: 'The quick 日', tokenIds: [], finishReason: 'length' })
    expect(usage.completionTokens).toBe(0)
    expect(candidate?.logprobs?.map((entry) => entry.tokenId)).toEqual(tokenIds)
    const bytes = candidate?.logprobs?.flatMap((entry) => entry.bytes) ?? []
    expect(Buffer.from(bytes).toString()).toBe('The quick 日')
    expect(candidate?.logprobs?.[0]).toMatchObject({ logprob: null, top: [] })
    candidate?.logprobs?.slice(1).forEach((entry, index) => {
      const logits = babble(tokenIds.slice(0, index + 1))
      expect(entry.logprob).toBe(logprobOf(logits, entry.tokenId))
      expect(entry.top).toHaveLength(2)
    })
    const { deltas } = await runJob({ ...input, stream: true }, { engine })
    expect(deltas.flatMap(({ logprobs }) => logprobs ?? [])).toEqual(candidate?.logprobs)
  })

  it('returns the candidates of best_of with the highest mean log-probability', async () => {
    const engine = scriptedEngine(babble)
    const all = await runJob({ n: 6, bestOf: 6, sampling: SAMPLING, logprobs: 0 }, { engine })
    const means = all.result.candidates.map(({ logprobs = [], text: own }) => ({
      text: own,
      mean: logprobs.reduce((sum, { logprob }) => sum + (logprob ?? 0), 0) / logprobs.length,
    }))
    const best = await runJob({ n: 2, bestOf: 6, sampling: SAMPLING }, { engine })
    const expected = means.toSorted((a, b) => b.mean - a.mean).slice(0, 2)
    expect(best.result.candidates.map((candidate) => candidate.text)).toEqual(
      expected.map((c) => c.text),
    )
    expect(best.result.candidates.map(({ index }) => index)).toEqual([0, 1])
    expect(best.result.candidates[0]?.logprobs).toBeUndefined()
    expect(best.usage.completionTokens).toBe(6 * 16)
    expect(best.usage.promptTokens).toBe(promptLength)
  })

  it('numbers the candidates of several prompts one after another', async () => {
    const engine = scriptedEngine(babble)
    const prompts = ['The', 'A small river'].map((content) => ({
      form: 'text' as const,
      text: content,
    }))
    const { result, usage } = await runJob(
      { prompts, n: 2, bestOf: 2, sampling: SAMPLING, echo: true },
      { engine },
    )
    expect(result.candidates.map(({ index }) => index)).toEqual([0, 1, 2, 3])
    expect(result.candidates.map((c) => c.text.startsWith('A small river'))).toEqual([
      false,
      false,
      true,
      true,
    ])
    expect(usage.promptTokens).toBe(encode('The').length + encode('A small river').length)
  })

  it('sends a checkpoint now and then when nothing is streamed', async () => {
    const engine = scriptedEngine(babble)
    const none = await runJob({ maxTokens: 40 }, { engine })
    expect(none.deltas).toEqual([])
    const { deltas, result } = await runJob({ maxTokens: 40 }, { engine, tickMs: 100 })
    expect(deltas.length).toBeGreaterThan(4)
    expect(deltas.length).toBeLessThan(12)
    const delivered = deltas.flatMap(({ tokenIds }) => tokenIds)
    expect(result.candidates[0]?.tokenIds.slice(0, delivered.length)).toEqual(delivered)
  })

  it('shares cached prefixes within the organization and speculates only for edits', async () => {
    const engine = scriptedEngine(babble)
    await runJob({}, { engine })
    const edit = { form: 'edit' as const, instruction: 'Fix it', input: 'teh cat' }
    await runJob({ prompts: [edit] }, { engine })
    expect(engine.requests.map(({ cacheScope }) => cacheScope)).toEqual(['org_1', 'org_1'])
    expect(engine.requests.map(({ propose }) => propose !== undefined)).toEqual([false, true])
    expect(engine.requests[1]?.promptTokenIds).toEqual(
      encode('<|im_start|>user\nFix it:\nteh cat<|im_end|>\n<|im_start|>assistant\n'),
    )
  })

  it('ends every candidate when the caller goes away or one of them fails', async () => {
    const gone = AbortSignal.abort()
    const aborted = runJob({ n: 2, bestOf: 2 }, { engine: scriptedEngine(babble), signal: gone })
    await expect(aborted).rejects.toBeInstanceOf(CancelledError)
    let steps = 0
    const failing = scriptedEngine((tokenIds) => {
      steps += 1
      if (steps === 5) throw new Error('broken')
      return babble(tokenIds)
    })
    await expect(runJob({ n: 3, bestOf: 3, maxTokens: 200 }, { engine: failing })).rejects.toThrow(
      'broken',
    )
    expect(steps).toBeLessThan(12)
  })
})
