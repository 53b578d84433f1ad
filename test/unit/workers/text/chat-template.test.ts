import { describe, expect, it } from 'vitest'

import type { ChatMessage, ToolDefinition } from '#shared/contracts/completion.ts'
import { createChatTemplate } from '#workers/text/chat-template.ts'
import { proposeByPromptLookup } from '#workers/text/prompt-lookup.ts'
import type { TextModel } from '#workers/text/text-model.ts'
import { renderChat } from '#workers/text/text-model.ts'

const CLOCK = { now: () => Date.UTC(2026, 10, 1, 9, 5, 7), monotonic: () => 0 }
const SPECIAL = { bos_token: '<s>', eos_token: '</s>' }
const PLAIN =
  "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m.content }}{{ eos_token }}{% endfor %}" +
  '{% if add_generation_prompt %}[assistant]{% endif %}'
const HI: readonly ChatMessage[] = [{ role: 'user', content: 'Hi' }]
const TOOLS: readonly ToolDefinition[] = [
  { name: 'weather', description: 'Tells it.', parameters: { type: 'object', properties: {} } },
]
const CALLED: readonly ChatMessage[] = [
  ...HI,
  {
    role: 'assistant',
    content: '',
    toolCalls: [{ id: 'call_1', name: 'weather', arguments: '{"city": "Rome"}' }],
  },
  { role: 'tool', content: 'sunny', toolCallId: 'call_1' },
]

function template(text: string | readonly { name: string; template: string }[]) {
  const compiled = createChatTemplate({ template: text, specialTokens: SPECIAL }, CLOCK)
  return {
    reads: compiled.reads,
    render: (...args: Parameters<typeof compiled.render>) => compiled.render(...args).text,
  }
}

describe('a chat template', () => {
  it('renders messages, special tokens and the start of the answer', () => {
    expect(template(PLAIN).render(HI, [])).toBe('<s>[user]Hi</s>[assistant]')
  })

  it('does not open the answer on request', () => {
    expect(template(PLAIN).render(HI, [], { opensAnswer: false })).toBe('<s>[user]Hi</s>')
  })

  it.each([
    [PLAIN, 'It is ', '<s>[user]Hi</s>[assistant]It is '],
    [PLAIN, 'Hi', '<s>[user]Hi</s>[assistant]Hi'],
    ['{% for m in messages %}[{{ m.content | trim }}]{% endfor %}', ' Ah ', '[Hi][Ah'],
  ])('of %s goes on with a last message of "%s"', (source, content, expected) => {
    const messages = [...HI, { role: 'assistant' as const, content }]
    expect(template(source).render(messages, [], { continuesLast: true })).toBe(expected)
  })

  it('that does not show the last message cannot continue it', () => {
    const loud = template('{% for m in messages %}{{ m.content | upper }}{% endfor %}')
    expect(() => loud.render(HI, [], { continuesLast: true })).toThrow(
      expect.objectContaining({ kind: 'invalidRequest', param: 'continue_final_message' }),
    )
  })

  it('follows its own switches, ignores others, and refuses names that it sets itself', () => {
    const thinking = template('{% if enable_thinking %}<think>{% endif %}')
    const render = (variables: Record<string, boolean | string>) =>
      thinking.render(HI, [], { variables })
    expect([render({ enable_thinking: true }), render({ enable_thinking: false })]).toEqual([
      '<think>',
      '',
    ])
    expect(render({ thinking: true })).toBe('')
    const names = ['enable_thinking', 'thinking', 'think'].filter((name) => thinking.reads(name))
    expect(names).toEqual(['enable_thinking'])
    for (const name of ['messages', 'add_generation_prompt', 'range']) {
      expect(() => render({ [name]: true })).toThrow(
        expect.objectContaining({ kind: 'invalidRequest', param: 'chat_template_kwargs' }),
      )
    }
  })

  it('formats the present date in UTC', () => {
    const dated = template("{{ strftime_now('%d %b %Y, %A %H:%M') }}")
    expect(dated.render(HI, [])).toBe('01 Nov 2026, Sunday 09:05')
  })

  it('names the reason for which it refuses the messages', () => {
    const strict = template("{{ raise_exception('roles must alternate') }}")
    expect(() => strict.render(HI, [])).toThrow(
      expect.objectContaining({
        kind: 'invalidRequest',
        param: 'messages',
        message: expect.stringContaining('roles must alternate'),
      }),
    )
  })

  it('keeps its own mistakes to itself', () => {
    expect(() => template('{{ messages.nothing() }}').render(HI, [])).toThrow(
      expect.objectContaining({
        kind: 'invalidRequest',
        message: 'The chat template of this model cannot render these messages',
      }),
    )
  })

  it('chooses the template for tools out of a named list', () => {
    const named = template([
      { name: 'default', template: 'plain' },
      { name: 'tool_use', template: '{{ tools | length }} tools' },
    ])
    expect(named.render(HI, [])).toBe('plain')
    expect(named.render(HI, TOOLS)).toBe('1 tools')
  })

  it('hands tools, calls with parsed arguments and results to a template that knows them', () => {
    const knowing = template(
      '{% for t in tools %}{{ t.function.name }};{% endfor %}{% for m in messages %}' +
        '{% for c in m.tool_calls or [] %}{{ c.function.arguments.city }};{% endfor %}' +
        '{{ m.tool_call_id }}{% endfor %}',
    )
    expect(knowing.render(CALLED, TOOLS)).toBe('weather;Rome;call_1')
  })

  it('numbers the calls for a template that shows an id instead of a name', () => {
    const kimi = template(
      '{% for m in messages %}{% for c in m.tool_calls or [] %}<{{ c.id }}<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}{% endfor %}{{ m.tool_call_id }}{% endfor %}{# tools #}',
    )
    expect(kimi.render(CALLED, TOOLS)).toBe(
      '<functions.weather:0<|tool_call_argument_begin|>{"city": "Rome"}functions.weather:0',
    )
  })

  it.each<[string, string, object]>([
    ['reasoning_content', 'Hi Hm.:Yes', {}],
    ['reasoning', 'Hi Hm.:Yes', {}],
    ['thinking', 'Hi Hm.:Yes', {}],
    // As in the template of gpt-oss, which refuses both.
    ['thinking', 'Hi :Yes sunny', { toolCalls: CALLED[1]?.toolCalls }],
    ['thinking', 'Hi Hm.: sunny', { toolCalls: CALLED[1]?.toolCalls, content: '' }],
  ])('shows the reasoning of an answer as %s: %s', (field, expected, answer) => {
    const source = `{{ tools }}{% for m in messages %}{{ m.${field} + ':' if m.${field} is string else (':' if m.role == 'assistant') }}{{ m.content }} {% endfor %}`
    const messages: ChatMessage[] = [
      ...HI,
      { role: 'assistant', content: 'Yes', reasoning: 'Hm.', ...answer },
      ...('toolCalls' in answer ? CALLED.slice(2) : []),
    ]
    const rendered = template(source).render(messages, [], { opensAnswer: false })
    expect(rendered.replace(/^None|^null/, '').trim()).toBe(expected)
  })

  it('reads the reasoning of an answer like the answer itself', () => {
    const source = '{% for m in messages %}{{ m.reasoning_content }}|{{ m.content }}{% endfor %}'
    const { render } = createChatTemplate({ template: source, specialTokens: SPECIAL }, CLOCK)
    const { content } = render([{ role: 'assistant', content: 'Yes', reasoning: 'Hm.' }], [])
    expect(content.map(({ origin }) => origin)).toEqual(['answer', 'answer'])
  })

  it('writes tools in Hermes tags for a template without tools', () => {
    const text = template(PLAIN).render(CALLED, TOOLS)
    expect(text).toContain('<tools>\n{"type":"function","function":{"name":"weather"')
    expect(text).toContain(
      '[assistant]<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call></s>',
    )
    expect(text).toContain('[user]<tool_response>\nsunny\n</tool_response></s>')
  })

  it('keeps the system turn first when it adds the tools to it', () => {
    const text = template(PLAIN).render([{ role: 'system', content: 'Be kind.' }, ...HI], TOOLS)
    expect(text.startsWith('<s>[system]Be kind.\n\nYou may call')).toBe(true)
    expect(text.match(/\[system\]/g)).toHaveLength(1)
  })

  it('is named if the model has none', () => {
    expect(() => renderChat({ chatTemplate: undefined } as TextModel, HI, [])).toThrow(
      /^This is not a chat model/,
    )
  })
})

describe('prompt lookup', () => {
  it.each([
    { tokenIds: [1, 2, 3, 4, 5, 1, 2, 3], proposed: [4, 5, 1, 2, 3] },
    { tokenIds: [1, 2, 9, 1, 2, 8, 1, 2], proposed: [8, 1, 2] },
    { tokenIds: [1, 2, 3, 4], proposed: [] },
    { tokenIds: [7], proposed: [] },
    { tokenIds: [5, 5, 5, 5], proposed: [5] },
  ])('proposes $proposed after $tokenIds', ({ tokenIds, proposed }) => {
    expect(proposeByPromptLookup(tokenIds)).toEqual(proposed)
  })

  it('proposes a bounded number of tokens', () => {
    const long = Array.from({ length: 50 }, (_, k) => k)
    expect(proposeByPromptLookup([...long, 0, 1, 2]).length).toBe(8)
  })
})
