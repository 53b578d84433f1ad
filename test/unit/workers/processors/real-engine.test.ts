import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import type { GenerateInput } from '#shared/contracts/completion.ts'
import { fixtureFolder } from '#test/unit/workers/text/model-folders.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { createCompletionModel } from '#workers/processors/completion-model.ts'
import { preparePrompt } from '#workers/processors/completion-prompt.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

import { BASE, runJob, textOf } from './completion-job.ts'

const runtime = openRuntime()
const shipped = await open(join(import.meta.dirname, '../../../../models/tiny-chat'))
const random = await open(fixtureFolder('llama-in-place'))
afterAll(async () => {
  await shipped.engine.close()
  await random.engine.close()
  await runtime.close()
})

async function open(folder: string) {
  return {
    engine: await openTextEngine({ runtime, folder, slots: 4, intraOpThreads: 1 }),
    text: await loadTextModel(folder, systemClock),
  }
}

const SAMPLING = { ...BASE.sampling, temperature: 1, topP: 0.9, frequencyPenalty: 0.3, seed: 4 }
const chat = (content: string, rest = {}) => ({
  form: 'chat' as const,
  messages: [{ role: 'user' as const, content }],
  ...rest,
})

describe('completions of a real model', () => {
  it.each<Partial<GenerateInput>>([
    {},
    { sampling: SAMPLING, n: 3, bestOf: 3 },
    { sampling: SAMPLING, echo: true, logprobs: 2 },
    { stop: ['e', '\n'] },
  ])('stream what a plain answer holds: %j', async (input) => {
    const plain = await runJob({ ...input, maxTokens: 24 }, random)
    const streamed = await runJob({ ...input, maxTokens: 24, stream: true }, random)
    for (const candidate of plain.result.candidates) {
      expect(textOf(streamed.deltas, candidate.index)).toBe(candidate.text)
    }
    expect(streamed.result.candidates.map(({ text }) => text)).toEqual(
      plain.result.candidates.map(({ text }) => text),
    )
  })

  it('continue after a lost worker at the exact token', async () => {
    const input = { sampling: SAMPLING, maxTokens: 24, stream: true }
    const whole = await runJob(input, random)
    for (const cut of [1, 9, 20]) {
      const before = whole.deltas.slice(0, cut)
      const tokenIds = before.flatMap((delta) => delta.tokenIds)
      const resumed = await runJob({ ...input, resume: [{ index: 0, tokenIds }] }, random)
      expect(textOf([...before, ...resumed.deltas])).toBe(whole.result.candidates[0]?.text)
    }
  })

  it('score an echoed prompt as they score the same text while generating', async () => {
    const written = await runJob({ maxTokens: 12, logprobs: 3 }, random)
    const [candidate] = written.result.candidates
    const prompt = random.text.tokenizer.encode('The quick', { addSpecialTokens: true })
    const tokenIds = [...prompt, ...(candidate?.tokenIds ?? [])]
    const input = {
      prompts: [{ form: 'tokenIds' as const, tokenIds }],
      maxTokens: 0,
      echo: true,
      logprobs: 3,
    }
    const scored = await runJob(input, random)
    const entries = scored.result.candidates[0]?.logprobs ?? []
    expect(entries.map(({ logprob }) => logprob).slice(prompt.length)).toEqual(
      candidate?.logprobs?.map(({ logprob }) => expect.closeTo(logprob as number, 3)),
    )
    expect(entries[0]?.logprob).toBeNull()
  })

  it('write JSON that satisfies a schema', async () => {
    const schema = {
      type: 'object',
      properties: {
        name: { type: 'string', maxLength: 12 },
        age: { type: 'integer', minimum: 0, maximum: 99 },
      },
      required: ['name', 'age'],
    }
    const { result } = await runJob(
      {
        prompts: [chat('Ann is 31 years old. Give name and age as JSON.')],
        responseFormat: { type: 'jsonSchema', schema },
        maxTokens: 60,
      },
      shipped,
    )
    const [candidate] = result.candidates
    expect(candidate?.finishReason).toBe('stop')
    expect(JSON.parse(candidate?.text ?? '')).toEqual({
      name: expect.any(String),
      age: expect.any(Number),
    })
  })

  it('call a required tool with arguments of its schema', async () => {
    const tool = {
      name: 'get_weather',
      parameters: {
        type: 'object',
        properties: { city: { type: 'string', maxLength: 16 } },
        required: ['city'],
      },
    }
    const prompts = [
      chat('What is the weather in Rome?', { tools: [tool], toolChoice: 'required' }),
    ]
    const { result } = await runJob({ prompts, maxTokens: 80 }, shipped)
    expect(result.candidates[0]?.text).toMatch(
      /^<tool_call>\n\{"name": "get_weather", "arguments": \{"city": ?".*"\}\}\n<\/tool_call>$/,
    )
  })

  it('edit by guessing ahead exactly as they would token by token', async () => {
    const edit = {
      form: 'edit' as const,
      instruction: 'Write in capitals',
      input: 'the cat sat on the mat',
    }
    const guessed = await runJob({ prompts: [edit], maxTokens: 32 }, shipped)
    const patient = {
      ...shipped,
      engine: {
        ...shipped.engine,
        run: ((request, options) => {
          const { propose: _, ...rest } = request
          return shipped.engine.run(rest, options)
        }) satisfies typeof shipped.engine.run,
      },
    }
    const plain = await runJob({ prompts: [edit], maxTokens: 32 }, patient)
    expect(guessed.result).toEqual(plain.result)
  })

  it('draft an answer that repeats its prompt, where the model has promptLookup', async () => {
    const prompts = [
      chat('The code of the green is 9286. Tom owns the risk.\nWhat is the code of the green?'),
    ]
    const stepsOf = async (draftsFromPrompt: boolean) => {
      const before = shipped.engine.stats().steps
      const { result } = await runJob({ prompts, maxTokens: 32 }, { ...shipped, draftsFromPrompt })
      return { text: result.candidates[0]?.text, steps: shipped.engine.stats().steps - before }
    }
    const plain = await stepsOf(false)
    const drafted = await stepsOf(true)
    expect(drafted.text).toBe(plain.text)
    expect(drafted.text).toContain('9286')
    expect(drafted.steps).toBeLessThan(plain.steps)
  })

  it.each(['the cat sat', '\nthe cat sat', '\n\n  the cat sat'])(
    'know where the original of an edit begins: %j',
    async (input) => {
      const model = createCompletionModel(shipped.engine, shipped.text)
      const prompt = { form: 'edit' as const, instruction: 'Fix it', input }
      const { tokenIds, originalStart } = await preparePrompt(model, prompt, 8)
      const { pieces } = shipped.text.tokenizer
      const original = Buffer.concat(tokenIds.slice(originalStart).map((id) => pieces.bytesOf(id)))
      expect(original.toString()).toMatch(/^\s*the cat sat/)
      expect(originalStart).toBeGreaterThan(0)
    },
  )

  it('rank a passage that answers above one that does not', async () => {
    const documents = ['The library opens at nine.', 'My dog likes to eat apples.']
    const query = 'when does the library open'
    const { raw } = await runJob({ task: 'score', query, documents }, shipped)
    const scores = raw.task === 'score' ? raw.scores : []
    expect(scores).toHaveLength(2)
    expect(scores[0]).toBeGreaterThan(scores[1] as number)
  })

  it('free a slot at once when the caller disconnects', async () => {
    const controller = new AbortController()
    const running = runJob(
      { maxTokens: null, stream: true },
      { ...random, signal: controller.signal },
    )
    controller.abort()
    await expect(running).rejects.toMatchObject({ name: 'CancelledError' })
    expect(random.engine.stats().active + random.engine.stats().waiting).toBe(0)
  })
})
