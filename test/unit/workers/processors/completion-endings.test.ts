import { describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'

import { BASE, encode, runJob, text, textOf } from './completion-job.ts'
import { type LogitsOf, scriptedEngine, VOCABULARY, writes } from './scripted-engine.ts'

const PROMPT = encode('The quick')
const ANSWER = encode(' brown fox')
const [END_TOKEN = 2] = text.endTokenIds

function answering(answer = ANSWER) {
  return scriptedEngine(writes(answer, PROMPT.length, END_TOKEN))
}

/** Says one letter again and again, but would rather end at once. */
const wantsToEnd: LogitsOf = () => {
  const logits = new Float32Array(VOCABULARY)
  logits[END_TOKEN] = 12
  logits[encode('x')[0] as number] = 6
  return logits
}

async function answerTo(input: Partial<GenerateInput>, engine = answering()) {
  const { result, usage, deltas } = await runJob({ ...input, stream: true }, { engine })
  const [candidate] = result.candidates
  expect(textOf(deltas)).toBe(candidate?.text)
  return { ...candidate, tokens: usage.completionTokens }
}

describe('an answer', () => {
  it('continues to its maximum length if the end of text is ignored', async () => {
    expect(await answerTo({})).toMatchObject({ finishReason: 'stop', tokens: ANSWER.length })
    const endless = await answerTo({ ending: { ignoresEndOfText: true } })
    expect(endless).toMatchObject({ text: ' brown fox', finishReason: 'length', tokens: 16 })
  })

  it('is truncated to fit into the context window', async () => {
    const endless = { ending: { ignoresEndOfText: true } }
    const longest = await answerTo({ ...endless, maxTokens: 9999 }, scriptedEngine(wantsToEnd))
    expect(longest).toMatchObject({ finishReason: 'length', tokens: 256 - PROMPT.length })
  })

  it('has at least as many tokens as requested', async () => {
    const engine = scriptedEngine(wantsToEnd)
    expect(await answerTo({}, engine)).toMatchObject({ text: '', tokens: 0 })
    const long = await answerTo({ ending: { minTokens: 5 } }, engine)
    expect(long).toMatchObject({ tokens: 5, finishReason: 'stop' })
    const sampling = { ...BASE.sampling, temperature: 1, logitBias: { [END_TOKEN]: 100 } }
    expect(await answerTo({ sampling, ending: { minTokens: 5 } }, engine)).toMatchObject({
      tokens: 5,
    })
  })

  it('looks for stop strings from the token on that makes it long enough', async () => {
    const engine = () => scriptedEngine(writes(encode('xxxxxxxx'), PROMPT.length, END_TOKEN))
    const [first = 0] = encode('x')
    expect(encode('xxxxxxxx')).toEqual(Array(8).fill(first))
    const ended = await answerTo({ stop: ['x'], ending: { minTokens: 3 } }, engine())
    expect(ended).toMatchObject({ text: 'xx', tokens: 3, finishReason: 'stop' })
  })

  it('ends early if its form allows only a token that was named as an end', async () => {
    const { pieces } = text.tokenizer
    const stopTokenIds = Array.from({ length: VOCABULARY }, (_, tokenId) => tokenId).filter(
      (tokenId) => Buffer.from(pieces.bytesOf(tokenId)).toString().startsWith('x'),
    )
    const answer = await answerTo({
      responseFormat: { type: 'jsonSchema', schema: { const: 'x' } },
      ending: { minTokens: 5, stopTokenIds },
    })
    expect(answer).toMatchObject({ text: '"', finishReason: 'stop' })
  })

  it('does not end at a stop string before its minimum number of tokens', async () => {
    const answer = encode(' one two one two')
    const stop = ['one']
    const early = await answerTo({ stop, maxTokens: 64 }, answering(answer))
    const late = await answerTo(
      { stop, maxTokens: 64, ending: { minTokens: encode(' one two').length } },
      answering(answer),
    )
    expect([early.text, late.text]).toEqual([' ', ' one two '])
  })

  it('ends before a token that was named as an end', async () => {
    const [first, second] = ANSWER
    const ended = await answerTo({ ending: { stopTokenIds: [second as number] } })
    expect(ended).toMatchObject({ tokenIds: [first], finishReason: 'stop' })
    const alone = await answerTo({
      ending: { stopTokenIds: [second as number], ignoresEndOfText: true },
    })
    expect(alone).toMatchObject({ tokenIds: [first], finishReason: 'stop' })
  })

  it('continues the text that its client began, its first space included', async () => {
    const messages = [
      { role: 'user' as const, content: 'Hi' },
      { role: 'assistant' as const, content: 'The quick' },
    ]
    const begun = encode('<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nThe quick')
    const engine = scriptedEngine(writes(ANSWER, begun.length, END_TOKEN))
    const prompts = [{ form: 'chat' as const, messages, template: { continuesLast: true } }]
    expect(await answerTo({ prompts }, engine)).toMatchObject({ text: ' brown fox' })
    expect(engine.requests[0]?.promptTokenIds).toEqual(begun)
  })

  it('keeps the stop string that it met when asked to', async () => {
    const input = { stop: ['n f', 'nothing'], maxTokens: 64, logprobs: 0 }
    expect(await answerTo(input)).toMatchObject({ text: ' brow', finishReason: 'stop' })
    const kept = await answerTo({ ...input, ending: { keepsStopString: true } })
    expect(kept).toMatchObject({ text: ' brown f', finishReason: 'stop' })
    expect(kept.logprobs?.map(({ token }) => token).join('')).toBe(' brown f')
  })
})
