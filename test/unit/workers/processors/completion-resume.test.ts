import { describe, expect, it } from 'vitest'

import type { CandidateDelta, GenerateInput, ResumePoint } from '#shared/contracts/completion.ts'

import { encode, runJob, text, textOf } from './completion-job.ts'
import { babble, scriptedEngine, writes } from './scripted-engine.ts'

const SAMPLING = {
  temperature: 1,
  topP: 0.95,
  topK: 0,
  minP: 0,
  presencePenalty: 0.5,
  frequencyPenalty: 0.5,
  repetitionPenalty: 1.1,
  logitBias: {},
  seed: 9,
}
const ANSWER = ' naïve 🙂 fox END of the 日本'
const promptLength = encode('The quick').length
const [END_TOKEN = 2] = text.endTokenIds

const CASES: Readonly<Record<string, Partial<GenerateInput>>> = {
  'sampled with penalties': { sampling: SAMPLING },
  'several candidates': { sampling: SAMPLING, n: 2, bestOf: 2 },
  'with an echo and scores': { sampling: SAMPLING, echo: true, logprobs: 1 },
  'with a least length': {
    sampling: { ...SAMPLING, logitBias: { [END_TOKEN]: 100 } },
    ending: { minTokens: 8 },
  },
  'with a stop string that stays, looked for late': {
    sampling: SAMPLING,
    stop: ['a', 'e', 'i', 'o', '1', '2'],
    ending: { minTokens: 5, keepsStopString: true },
    maxTokens: 60,
  },
  'with a schema': {
    sampling: SAMPLING,
    responseFormat: { type: 'jsonSchema', schema: { type: 'array', items: { type: 'boolean' } } },
  },
}

/** The resume points that the owner of a job would send after receiving some of its deltas. */
function resumeAfter(deltas: readonly CandidateDelta[]): readonly ResumePoint[] {
  const indices = [...new Set(deltas.map(({ index }) => index))]
  return indices.map((index) => {
    const own = deltas.filter((delta) => delta.index === index)
    const finishReason = own.at(-1)?.finishReason
    return {
      index,
      tokenIds: own.flatMap(({ tokenIds }) => tokenIds),
      ...(finishReason !== undefined && { finishReason }),
    }
  })
}

describe('a resumed job', () => {
  it.each(Object.entries(CASES))('continues exactly, wherever it was cut: %s', async (_, input) => {
    const whole = await runJob({ ...input, stream: true }, { engine: scriptedEngine(babble) })
    for (let cut = 0; cut <= whole.deltas.length; cut += 1) {
      const before = whole.deltas.slice(0, cut)
      const resumed = await runJob(
        { ...input, stream: true, resume: resumeAfter(before) },
        { engine: scriptedEngine(babble) },
      )
      const joined = [...before, ...resumed.deltas]
      for (const candidate of whole.result.candidates) {
        const own = joined.filter(({ index }) => index === candidate.index)
        expect(textOf(own, candidate.index)).toBe(candidate.text)
        expect(own.flatMap(({ tokenIds }) => tokenIds)).toEqual(candidate.tokenIds)
        expect(own.flatMap(({ logprobs }) => logprobs ?? [])).toEqual(candidate.logprobs ?? [])
        expect(own.filter(({ finishReason }) => finishReason !== undefined)).toHaveLength(1)
      }
      expect(resumed.usage.completionTokens).toBe(whole.usage.completionTokens)
      expect(resumed.result.candidates.map(({ text }) => text)).toEqual(
        whole.result.candidates.map(({ text }) => text),
      )
    }
  })

  it('continues in the middle of a call that the model began', async () => {
    const parameters = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] }
    const input: Partial<GenerateInput> = {
      prompts: [
        {
          form: 'chat',
          messages: [{ role: 'user', content: 'Hi' }],
          tools: [{ name: 'check', parameters }],
        },
      ],
      sampling: SAMPLING,
      maxTokens: 80,
      stop: ['</tool_call>'],
      stream: true,
    }
    const begun = encode('So <tool_call>')
    const run = async (resume: readonly ResumePoint[], length: number) => {
      const engine = scriptedEngine((tokenIds) => {
        const logits = babble(tokenIds)
        const next = begun[tokenIds.length - length]
        if (next !== undefined) logits[next] = 100
        return logits
      }, 1024)
      const answer = await runJob({ ...input, resume }, { engine })
      return { ...answer, prompt: engine.requests[0]?.promptTokenIds.length ?? 0 }
    }
    const { prompt } = await run([], 0)
    const whole = await run([], prompt)
    const said = whole.result.candidates[0]?.text as string
    expect(JSON.parse(said.replace('So <tool_call>', ''))).toEqual({
      name: 'check',
      arguments: { ok: expect.any(Boolean) },
    })
    for (let cut = 1; cut < whole.deltas.length; cut += 1) {
      const after = await run(resumeAfter(whole.deltas.slice(0, cut)), prompt)
      expect(after.result).toEqual(whole.result)
    }
  })

  it('still withholds text that may begin a stop string or an unfinished character', async () => {
    const run = (resume: readonly ResumePoint[]) => {
      const engine = scriptedEngine(writes(encode(ANSWER), promptLength))
      return runJob({ stream: true, stop: ['END'], maxTokens: 100, resume }, { engine })
    }
    const whole = await run([])
    expect(whole.result.candidates[0]?.text).toBe(' naïve 🙂 fox ')
    for (let cut = 1; cut < whole.deltas.length; cut += 1) {
      const before = whole.deltas.slice(0, cut)
      const after = await run(resumeAfter(before))
      expect(textOf([...before, ...after.deltas])).toBe(' naïve 🙂 fox ')
      expect(after.result).toEqual(whole.result)
    }
  })

  it('scores the withheld text when its length was reached', async () => {
    const answer = encode(ANSWER)
    for (let maxTokens = 1; maxTokens < answer.length; maxTokens += 1) {
      const run = (resume: readonly ResumePoint[]) => {
        const engine = scriptedEngine(writes(answer, promptLength))
        const input = { stream: true, stop: ['END of all', 'fox END.'], logprobs: 1 }
        return runJob({ ...input, maxTokens, resume }, { engine })
      }
      const whole = await run([])
      // All that it lacks is the last delta.
      const before = whole.deltas.slice(0, -1)
      const after = await run(resumeAfter(before))
      const joined = [...before, ...after.deltas]
      expect(textOf(joined)).toBe(textOf(whole.deltas))
      expect(joined.flatMap(({ logprobs }) => logprobs ?? [])).toEqual(
        whole.result.candidates[0]?.logprobs,
      )
    }
  })

  it('does not run finished candidates again but returns them', async () => {
    const input = { ...CASES['several candidates'], stream: true }
    const whole = await runJob(input, { engine: scriptedEngine(babble) })
    const resume = resumeAfter(whole.deltas.filter(({ index }) => index === 0))
    const engine = scriptedEngine(babble)
    const resumed = await runJob({ ...input, resume }, { engine })
    expect(engine.requests).toHaveLength(1)
    expect(resumed.deltas.some(({ index }) => index === 0)).toBe(false)
    expect(resumed.result).toEqual(whole.result)
  })

  it('works the scores of delivered tokens out again for a plain answer', async () => {
    const input = { sampling: SAMPLING, logprobs: 2, echo: true }
    const whole = await runJob(input, { engine: scriptedEngine(babble) })
    const tokenIds = whole.result.candidates[0]?.tokenIds.slice(0, 9) ?? []
    const resumed = await runJob(
      { ...input, resume: [{ index: 0, tokenIds }] },
      { engine: scriptedEngine(babble) },
    )
    expect(resumed.result).toEqual(whole.result)
    const over: ResumePoint = {
      index: 0,
      tokenIds: whole.result.candidates[0]?.tokenIds ?? [],
      finishReason: 'length',
    }
    const finished = await runJob({ ...input, resume: [over] }, { engine: scriptedEngine(babble) })
    expect(finished.result).toEqual(whole.result)
  })

  it('ranks the candidates of best_of as an undisturbed run does', async () => {
    const input = { sampling: SAMPLING, n: 2, bestOf: 4 }
    const whole = await runJob(input, { engine: scriptedEngine(babble), tickMs: 30 })
    expect(whole.deltas.length).toBeGreaterThan(4)
    const resume = resumeAfter(whole.deltas.slice(0, 4))
    const resumed = await runJob({ ...input, resume }, { engine: scriptedEngine(babble) })
    expect(resumed.result).toEqual(whole.result)
  })
})
