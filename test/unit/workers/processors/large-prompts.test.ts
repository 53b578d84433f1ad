import { describe, expect, it } from 'vitest'

import type { Prompt } from '#shared/contracts/completion.ts'
import { WorkBudget } from '#workers/preparation/work-budget.ts'
import { createCompletionModel } from '#workers/processors/completion-model.ts'
import { readPrompt } from '#workers/processors/completion-prompt.ts'
import { isLarge, type PromptSource } from '#workers/text/text-model.ts'

import { text } from './completion-job.ts'
import { babble, scriptedEngine } from './scripted-engine.ts'

const PARAGRAPH = 'The quick brown fox jumps over the lazy dog, 12 times. '
const content = PARAGRAPH.repeat(4000)
const chat = (of: string): Prompt => ({ form: 'chat', messages: [{ role: 'user', content: of }] })

function openModel({ isThreaded = true } = {}) {
  const { folder: _, ...inline } = text
  return createCompletionModel(scriptedEngine(babble, 1_000_000), isThreaded ? text : inline)
}

const call = { id: 'call_1', name: 'f', arguments: JSON.stringify({ text: content }) }
const turn = { role: 'user' as const, content: 'Hi' }

describe('a large prompt', () => {
  it.each<[string, Prompt]>([
    ['text', chat(content)],
    ['number of messages', { form: 'chat', messages: Array.from({ length: 2000 }, () => turn) }],
    [
      'calls of tools',
      { form: 'chat', messages: [{ role: 'assistant', content: '', toolCalls: [call] }] },
    ],
    ['tools', { form: 'chat', messages: [turn], tools: [{ name: 'f', description: content }] }],
  ])('is read in a thread for its %s', (_title, prompt) => {
    expect([isLarge(prompt as PromptSource), isLarge({ form: 'chat', messages: [turn] })]).toEqual([
      true,
      false,
    ])
  })

  it.each<[string, Prompt]>([
    ['chat', chat(content)],
    ['text', { form: 'text', text: content }],
    ['edit', { form: 'edit', input: content, instruction: 'Repeat' }],
  ])('as %s gives the same tokens in a thread as on the event loop', async (_title, prompt) => {
    const budget = new WorkBudget()
    const model = openModel()
    const threaded = await readPrompt(model, prompt, { budget })
    expect(threaded).toEqual(await readPrompt(openModel({ isThreaded: false }), prompt))
    expect(threaded.count).toBeGreaterThan(10_000)
  })

  it('with thousands of messages charges the budget of its request in the thread', async () => {
    const messages = Array.from({ length: 2000 }, (_, at) => ({
      role: at % 2 === 0 ? ('user' as const) : ('assistant' as const),
      content: 'Hi there.',
    }))
    const budget = new WorkBudget()
    await readPrompt(openModel(), { form: 'chat', messages }, { budget })
    expect(budget.used).toBeGreaterThan(2000)
  })

  it('that exceeds the budget of its request is refused', async () => {
    const budget = new WorkBudget(1000)
    await expect(readPrompt(openModel(), chat(content), { budget })).rejects.toMatchObject({
      status: 400,
      code: 'prompt_too_complex',
    })
  })

  it('is refused by the template like a small one', async () => {
    const messages = [{ role: 'user' as const, content }]
    const template = { variables: { add_generation_prompt: true } }
    await expect(
      readPrompt(openModel(), { form: 'chat', messages, template }),
    ).rejects.toMatchObject({ status: 400, param: 'chat_template_kwargs', code: 'invalid_value' })
  })
})
