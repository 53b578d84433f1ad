import { describe, expect, it } from 'vitest'

import type { ChatMessage } from '#shared/contracts/completion.ts'
import { WorkBudget } from '#workers/preparation/work-budget.ts'
import { createChatTemplate } from '#workers/text/chat-template.ts'

const CLOCK = { now: () => 0, monotonic: () => 0 }
const WRITES_CALLS =
  '{# tools #}{% for m in messages %}{% for c in m.tool_calls or [] %}' +
  '{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}'

const numbers = (count: number) => `{"n":[${Array.from({ length: count }, () => '1').join()}]}`

function callsWith(texts: readonly string[]): ChatMessage[] {
  const toolCalls = texts.map((text, at) => ({ id: `call_${at}`, name: 'f', arguments: text }))
  return [{ role: 'assistant', content: '', toolCalls }]
}

function render(messages: readonly ChatMessage[], budget?: WorkBudget, template = WRITES_CALLS) {
  const { render: run } = createChatTemplate({ template, specialTokens: {} }, CLOCK)
  return run(messages, [{ name: 'f' }], { ...(budget && { budget }) }).text
}

describe('the budget of a prompt', () => {
  it('refuses 900,000 numbers in the arguments of one call before they are parsed', () => {
    const budget = new WorkBudget()
    expect(() => render(callsWith([numbers(900_000)]), budget)).toThrow(
      expect.objectContaining({
        code: 'json_too_complex',
        param: 'messages[0].tool_calls[0].function.arguments',
      }),
    )
    expect(budget.used).toBeLessThan(1000)
  })

  it('refuses 900,000 numbers in the arguments of many calls', () => {
    const texts = Array.from({ length: 60 }, () => numbers(15_000))
    expect(() => render(callsWith(texts))).toThrow(
      expect.objectContaining({ status: 400, code: 'prompt_too_complex', param: 'messages' }),
    )
  })

  it('is charged for the texts within tools by their length', () => {
    const usedWith = (length: number): number => {
      const budget = new WorkBudget()
      const { render: run } = createChatTemplate(
        { template: '{# tools #}', specialTokens: {} },
        CLOCK,
      )
      run([], [{ name: 'f', description: 'x'.repeat(length) }], { budget })
      return budget.used
    }
    // A text is charged much less than as many values, and twice as much when it is twice as long.
    const [none, some, more] = [0, 1_000_000, 2_000_000].map(usedWith) as [number, number, number]
    expect(some).toBeGreaterThan(none + 100)
    expect(more - none).toBe(2 * (some - none))
  })

  it.each([
    ['deep nesting', `${'['.repeat(65)}${']'.repeat(65)}`],
    ['many members', `{${Array.from({ length: 10_001 }, (_, at) => `"k${at}":1`).join()}}`],
    ['a long text', JSON.stringify({ text: 'a'.repeat(1024 * 1024 + 1) })],
  ])('refuses arguments with %s', (_title, text) => {
    expect(() => render(callsWith([text]))).toThrow('messages[0].tool_calls[0].function.arguments')
  })

  it('refuses a template that writes the same values again and again', () => {
    const template =
      '{# tools #}{% for i in range(1000) %}{{ messages[0].tool_calls[0].function.arguments | tojson }}{% endfor %}'
    expect(() => render(callsWith([numbers(15_000)]), undefined, template)).toThrow(
      expect.objectContaining({ status: 400, param: 'messages' }),
    )
  })

  it('accepts the arguments of hundreds of ordinary calls, and charges the budget of the request', () => {
    const budget = new WorkBudget()
    const text = render(callsWith(Array.from({ length: 400 }, () => numbers(20))), budget)
    expect(text.length).toBeGreaterThan(400 * 40)
    expect(budget.used).toBeGreaterThan(400 * 20)
    expect(budget.left).toBeGreaterThan(4_000_000)
  })
})
