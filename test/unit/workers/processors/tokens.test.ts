import { describe, expect, it } from 'vitest'

import type { CompletionInput, CompletionResult, Prompt } from '#shared/contracts/completion.ts'

import { encode, runJob, text } from './completion-job.ts'
import { babble, scriptedEngine } from './scripted-engine.ts'

const HI = { role: 'user' as const, content: 'Hi' }
const WORDS = 'The quick brown 🙂'

async function ask(input: CompletionInput) {
  const engine = scriptedEngine(babble)
  const { raw, usage } = await runJob(input as never, { engine })
  expect(usage).toEqual({ promptTokens: 0, completionTokens: 0, cachedTokens: 0 })
  return { raw, engine }
}

function tokenize(prompt: Extract<Prompt, { form: 'text' | 'chat' }>, rest = {}) {
  const asked = { task: 'tokenize' as const, prompt, addSpecialTokens: true, withTexts: false }
  return ask({ ...asked, ...rest })
}

describe('the tokens of a text', () => {
  it('are those that the model would read, and are not charged', async () => {
    const engine = scriptedEngine(babble)
    await runJob({ prompts: [{ form: 'text', text: WORDS }] }, { engine })
    const { raw } = await tokenize({ form: 'text', text: WORDS })
    expect(raw).toEqual({
      task: 'tokenize',
      tokenIds: engine.requests[0]?.promptTokenIds,
      contextLength: 256,
    })
  })

  it("can exclude the tokenizer's markers", async () => {
    const { raw } = await tokenize({ form: 'text', text: WORDS }, { addSpecialTokens: false })
    expect(raw).toMatchObject({ tokenIds: encode(WORDS) })
  })

  it('of a chat come from its template', async () => {
    const written = '<|im_start|>user\nHi<|im_end|>\n'
    const prompt = { form: 'chat' as const, messages: [HI], template: { opensAnswer: false } }
    const { raw } = await tokenize(prompt, { addSpecialTokens: false })
    expect(raw).toMatchObject({ tokenIds: encode(written) })
  })

  it('spell the text, and are text again', async () => {
    const { raw } = await tokenize({ form: 'text', text: 'The quick' }, { withTexts: true })
    const { tokenIds, texts } = raw as Extract<CompletionResult, { task: 'tokenize' }>
    expect(texts).toHaveLength(tokenIds.length)
    expect(texts?.join('')).toContain('quick')
    const back = await ask({ task: 'detokenize', tokenIds: encode(WORDS) })
    expect(back.raw).toEqual({ task: 'detokenize', text: WORDS })
  })

  it('of an empty text are an empty list', async () => {
    expect((await ask({ task: 'detokenize', tokenIds: [] })).raw).toMatchObject({ text: '' })
    const { raw } = await tokenize({ form: 'text', text: '' }, { addSpecialTokens: false })
    expect(raw).toMatchObject({ tokenIds: [] })
  })

  it('are refused beyond the length that the model can read', async () => {
    await expect(tokenize({ form: 'text', text: 'x'.repeat(10_000) })).rejects.toMatchObject({
      kind: 'invalidRequest',
      code: 'context_length_exceeded',
      param: 'prompt',
    })
  })

  it('are refused if one is not a token of the model', async () => {
    await expect(ask({ task: 'detokenize', tokenIds: [5, 320] })).rejects.toMatchObject({
      kind: 'invalidRequest',
      param: 'tokens',
      message: expect.stringContaining('out of vocabulary'),
    })
    expect(text.tokenizer.pieces.size).toBeLessThanOrEqual(320)
  })
})
