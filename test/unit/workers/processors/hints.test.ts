import { describe, expect, it } from 'vitest'

import type { GenerateInput, Hint } from '#shared/contracts/completion.ts'
import type { TextModel } from '#workers/text/text-model.ts'

import { runJob, text } from './completion-job.ts'
import { scriptedEngine, VOCABULARY } from './scripted-engine.ts'

const OPEN = 300
const CLOSE = 301
const TAGS: Readonly<Record<string, number>> = { '<think>': OPEN, '</think>': CLOSE }
const EFFORT = ['reasoning_effort', 'enable_thinking', 'thinking']

/** A model whose chat template reads these variables, and which may reason between tags. */
function model(reads: readonly string[], reasons: boolean): TextModel {
  const { chatTemplate, tokenizer } = text
  if (chatTemplate === undefined) throw new Error('the fixture has a chat template')
  return {
    ...text,
    chatTemplate: { ...chatTemplate, reads: (name) => reads.includes(name) },
    tokenizer: {
      ...tokenizer,
      findTokenId: (token) => (reasons ? TAGS[token] : undefined),
    },
  }
}

async function run(hints: readonly Hint[], answering: TextModel, input?: Partial<GenerateInput>) {
  // Reasons for as long as it may: the engine knows no other token.
  const logits = new Float32Array(VOCABULARY).fill(-9)
  logits[40] = 9
  logits[CLOSE] = -20
  const engine = scriptedEngine((tokenIds) => {
    const own = Float32Array.from(logits)
    if (tokenIds.at(-1) === 7) own[OPEN] = 20
    return own
  })
  const prompts = [{ form: 'tokenIds' as const, tokenIds: [5, 6, 7] }]
  const { result, ignored, usage } = await runJob(
    { prompts, hints, maxTokens: 12, ...input },
    { engine, text: answering },
  )
  return { tokenIds: result.candidates[0]?.tokenIds ?? [], ignored, usage }
}

const budget = (max: number | null, variables: readonly string[] = []): Hint => ({
  field: 'x',
  variables,
  thinkingTokensMax: max,
})

describe('a hint', () => {
  it.each<[string, Hint, readonly string[], boolean, readonly string[]]>([
    [
      'of a variable that the template reads',
      { field: 'x', variables: ['a', 'b'] },
      ['b'],
      false,
      [],
    ],
    ['of variables that it never reads', { field: 'x', variables: ['a', 'b'] }, ['c'], true, ['x']],
    ['of a limit where the model reasons', budget(null), [], true, []],
    ['of a limit where it does not', budget(3), [], false, ['x']],
    ['of a usual value', { field: 'x', variables: ['a'], isUsual: true }, [], false, []],
  ])('%s is reported as it should be', async (_, hint, reads, reasons, expected) => {
    expect((await run([hint], model(reads, reasons))).ignored).toEqual(expected)
  })

  it.each<[string, Hint, readonly string[], number]>([
    ['ends the reasoning', budget(3), [], 4],
    ['allows none', budget(0), [], 1],
    ['with no limit leaves it', budget(null), [], -1],
    ['of an effort is a limit', budget(2, EFFORT), ['enable_thinking'], 3],
    ['of an effort that the template reads is none', budget(2, EFFORT), ['reasoning_effort'], -1],
  ])('%s', async (_, hint, reads, closesAt) => {
    const { tokenIds } = await run([hint], model(reads, true))
    expect(tokenIds[0]).toBe(OPEN)
    expect(tokenIds.indexOf(CLOSE)).toBe(closesAt)
    expect(tokenIds).toHaveLength(12)
  })

  it('counts the reasoning of a chat in its usage, with the tags', async () => {
    const chat = [{ form: 'chat' as const, messages: [{ role: 'user' as const, content: 'Hi' }] }]
    const reasoning = model([], true)
    // The fixture answers with the tag behind one of its prompts alone.
    const opened = {
      ...reasoning,
      tokenizer: { ...reasoning.tokenizer, encode: () => [5, OPEN, 6] },
    }
    const { tokenIds, usage } = await run([budget(3)], opened, { prompts: chat })
    expect(usage.reasoningTokens).toBe(tokenIds.indexOf(CLOSE) + 1)
    expect((await run([budget(3)], reasoning)).usage).not.toHaveProperty('reasoningTokens')
  })

  it('limits reasoning that the prompt has opened, and counts the tokens of another worker', async () => {
    const prompts = [{ form: 'tokenIds' as const, tokenIds: [5, OPEN, 6] }]
    const resume = [{ index: 0, tokenIds: [40, 40] }]
    const { tokenIds } = await run([budget(3)], model([], true), { prompts, resume })
    expect(tokenIds.indexOf(CLOSE)).toBe(3)
  })
})
