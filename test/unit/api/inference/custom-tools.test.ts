import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { CustomInput } from '#api/inference/answers/custom-input.ts'
import type { GenerateInput } from '#shared/contracts/completion.ts'

import { API_KEY, serveSurface, speak } from './surface.ts'

const MODEL = 'tiny-chat'
const INPUT = 'print("é 😀")\n\tif a < b:\\n'

/** Arguments as models write them, and the input in them. */
const INPUTS: readonly [title: string, text: string, input: string][] = [
  ['a plain text', '{"input": "ls -l"}', 'ls -l'],
  ['white space and no more than the input', ' {\n "input" :\n "a" , "more": "b"}', 'a'],
  ['an empty text', '{"input": ""}', ''],
  ['every escape', JSON.stringify({ input: `${INPUT}\b\f\r/` }), `${INPUT}\b\f\r/`],
  ['escaped characters', '{"input":"\\u0041\\/\\u00e9\\ud83d\\ude00"}', 'A/é😀'],
  ['escapes that JSON does not know', '{"input":"\\d+ \\u12g4"}', '\\d+ \\u12g4'],
  ['line breaks as they are', '{"input":"a\nb"}', 'a\nb'],
  ['half of an escape at the end', '{"input": "ab\\u00', 'ab'],
  ['half of a surrogate pair at the end', '{"input": "ab\\ud83d', 'ab'],
  ['no more than the beginning', '{ "inp', ''],
  ['nothing', '{}', ''],
  ['another name', '{"code": "ls"}', '{"code": "ls"}'],
  ['another type', '{"input": ["ls"]}', '["ls"]'],
  ['a later place', '{"a": 1, "input": "ls"}', 'ls'],
  ['no JSON', 'ls -l', 'ls -l'],
]

describe('the input of a custom tool', () => {
  it.each(INPUTS)('is read from arguments with %s, however they are cut', (_, text, expected) => {
    for (let size = 1; size <= text.length; size += 1) {
      const input = new CustomInput()
      const pieces = text.match(new RegExp(`.{1,${size}}`, 'gs')) ?? []
      const read = [...pieces.map((piece) => input.push(piece)), input.finish()]
      expect(read.join(''), `in pieces of ${size}`).toBe(expected)
      // A client encodes each piece by itself.
      expect(read.every((piece) => piece.isWellFormed())).toBe(true)
    }
  })

  it('streams before it is complete', () => {
    const input = new CustomInput()
    expect(input.push('{"input": "ab\\')).toBe('ab')
    expect(input.push('nc')).toBe('\nc')
  })
})

const CALL = `<tool_call>{"name": "shell", "arguments": ${JSON.stringify({ input: INPUT })}}</tool_call>`
const ADD_CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
/** Two calls of custom tools around one of a function, in pieces that cut escapes. */
const PIECES = `Sure.\n${CALL}\n${ADD_CALL}\n${CALL}`.match(/.{1,3}/gsu) ?? []
const SHELL = { name: 'shell', description: 'Runs a command.' }
const REGEX = { syntax: 'regex', definition: '^[a-z]+ -l$' } as const
const PARAMETERS = {
  type: 'object',
  properties: { input: { type: 'string' } },
  required: ['input'],
  additionalProperties: false,
}

let served: Awaited<ReturnType<typeof serveSurface>>
let client: OpenAI
beforeAll(async () => {
  served = await serveSurface(({ input }) => speak(input as GenerateInput, PIECES))
  client = new OpenAI({ baseURL: served.baseURL, apiKey: API_KEY, maxRetries: 0 })
})
afterAll(() => served.close())

function chatPrompt() {
  const [prompt] = served.surface.submitter.input.prompts
  if (prompt?.form !== 'chat') throw new Error('no chat was submitted')
  return prompt
}

describe('custom tools of a chat', () => {
  const tools: OpenAI.ChatCompletionTool[] = [
    { type: 'custom', custom: { ...SHELL, format: { type: 'text' } } },
    { type: 'function', function: { name: 'add', parameters: PARAMETERS, strict: true } },
  ]
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: 'Hi' }]
  const asked = { model: MODEL, messages, tools }
  const custom = { type: 'custom', custom: { name: 'shell', input: INPUT } }
  const called = { type: 'function', function: { name: 'add', arguments: '{"a": 1}' } }

  it('are called with their input, plain and streamed', async () => {
    const plain = await client.chat.completions.create(asked)
    const streamed = await client.chat.completions.stream(asked).finalChatCompletion()
    for (const { choices } of [plain, streamed]) {
      expect(choices[0]).toMatchObject({
        finish_reason: 'tool_calls',
        message: { content: 'Sure.', tool_calls: [custom, called, custom] },
      })
    }
    const ids = plain.choices[0]?.message.tool_calls?.map(({ id }) => id) ?? []
    expect(new Set(ids).size).toBe(3)
  })

  it('stream their input in pieces, after a name with an empty one', async () => {
    const deltas = []
    for await (const { choices } of await client.chat.completions.create({
      ...asked,
      stream: true,
    })) {
      for (const call of choices[0]?.delta.tool_calls ?? []) if (call.index === 0) deltas.push(call)
    }
    const [first, ...rest] = deltas
    expect(first).toEqual({
      index: 0,
      id: expect.stringMatching(/^call_/),
      type: 'custom',
      custom: { name: 'shell', input: '' },
    })
    expect(rest.length).toBeGreaterThan(3)
    expect(rest.map((delta) => delta.custom?.input).join('')).toBe(INPUT)
    expect(rest[0]).toEqual({ index: 0, custom: { input: expect.any(String) } })
  })

  it('are functions with one text argument for the model, and so are their calls', async () => {
    await client.chat.completions.create({
      model: MODEL,
      tool_choice: { type: 'custom', custom: { name: 'grep' } },
      parallel_tool_calls: false,
      messages: [
        ...messages,
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'c1', ...custom } as OpenAI.ChatCompletionMessageToolCall],
        },
        { role: 'tool', tool_call_id: 'c1', content: 'done' },
      ],
      tools: [
        ...tools,
        {
          type: 'custom',
          custom: { name: 'grep', format: { type: 'grammar', grammar: REGEX } },
        },
      ],
    })
    expect(chatPrompt()).toMatchObject({
      toolChoice: { name: 'grep' },
      tools: [
        { ...SHELL, parameters: PARAMETERS },
        { name: 'add', isStrict: true },
        {
          name: 'grep',
          isStrict: true,
          parameters: { properties: { input: { pattern: '^(?:[a-z]+ -l)$' } } },
          schemaPath: 'tools[2].custom.format.grammar.definition',
        },
      ],
      messages: [
        { role: 'user' },
        {
          role: 'assistant',
          toolCalls: [{ id: 'c1', name: 'shell', arguments: JSON.stringify({ input: INPUT }) }],
        },
        { role: 'tool', toolCallId: 'c1', content: 'done' },
      ],
    })
    expect(served.surface.submitter.input.endsAfterCall).toBe(true)
  })

  it('are among the allowed tools', async () => {
    await client.chat.completions.create({
      ...asked,
      tool_choice: {
        type: 'allowed_tools',
        allowed_tools: { mode: 'required', tools: [{ type: 'custom', custom: { name: 'shell' } }] },
      },
    })
    expect(chatPrompt()).toMatchObject({ toolChoice: 'required', tools: [{ name: 'shell' }] })
  })
})

describe('custom tools of a response', () => {
  const tools: OpenAI.Responses.Tool[] = [
    { type: 'custom', ...SHELL },
    { type: 'function', name: 'add', parameters: PARAMETERS, strict: true },
    { type: 'custom', name: 'grep', format: { type: 'grammar', ...REGEX } },
  ]
  const asked = { model: MODEL, input: 'Hi', tools }
  const custom = {
    type: 'custom_tool_call',
    id: expect.stringMatching(/^ctc_/),
    status: 'completed',
    call_id: expect.stringMatching(/^call_/),
    name: 'shell',
    input: INPUT,
  }
  const output = [{ type: 'message' }, custom, { type: 'function_call', name: 'add' }, custom]

  it('are called as separate items, and shown as they were offered', async () => {
    const plain = await client.responses.create(asked)
    expect(plain.output).toMatchObject(output)
    expect(plain.tools).toMatchObject([
      { type: 'custom', ...SHELL, format: { type: 'text' } },
      { type: 'function', name: 'add' },
      { type: 'custom', name: 'grep', format: { type: 'grammar', ...REGEX } },
    ])
    const streamed = await client.responses.stream(asked).finalResponse()
    expect(streamed.output).toMatchObject(output)
  })

  it('stream their input in pieces', async () => {
    const events: OpenAI.Responses.ResponseStreamEvent[] = []
    for await (const event of await client.responses.create({ ...asked, stream: true })) {
      if ('output_index' in event && event.output_index === 1) events.push(event)
    }
    const types = events.map(({ type }) => type)
    expect([...new Set(types)]).toEqual([
      'response.output_item.added',
      'response.custom_tool_call_input.delta',
      'response.custom_tool_call_input.done',
      'response.output_item.done',
    ])
    expect(events[0]).toMatchObject({ item: { ...custom, status: 'in_progress', input: '' } })
    const deltas = events.flatMap((event) =>
      event.type === 'response.custom_tool_call_input.delta' ? [event.delta] : [],
    )
    expect(deltas.length).toBeGreaterThan(3)
    expect(deltas.join('')).toBe(INPUT)
    expect(events.at(-2)).toMatchObject({ input: INPUT, item_id: custom.id })
    expect(events.at(-1)).toMatchObject({ item: custom })
  })

  it('go on with items that were answered, and their outputs', async () => {
    const first = await client.responses.create(asked)
    // The outputs follow all calls of one turn.
    const outputs = first.output.flatMap((item): OpenAI.Responses.ResponseInputItem[] => {
      if (!('call_id' in item) || typeof item.call_id !== 'string') return []
      const { call_id } = item
      return item.type === 'custom_tool_call'
        ? [{ type: 'custom_tool_call_output', call_id, output: 'done' }]
        : [{ type: 'function_call_output', call_id, output: '2' }]
    })
    const input = [...(first.output as OpenAI.Responses.ResponseInputItem[]), ...outputs]
    await client.responses.create({
      ...asked,
      input,
      tool_choice: { type: 'custom', name: 'grep' },
    })
    const { messages, toolChoice, tools: offered } = chatPrompt()
    expect(toolChoice).toEqual({ name: 'grep' })
    expect(offered?.[2]).toMatchObject({
      name: 'grep',
      isStrict: true,
      schemaPath: 'tools[2].format.definition',
      parameters: { properties: { input: { pattern: '^(?:[a-z]+ -l)$' } } },
    })
    const call = { name: 'shell', arguments: JSON.stringify({ input: INPUT }) }
    expect(messages).toMatchObject([
      { role: 'assistant', content: 'Sure.', toolCalls: [call, { name: 'add' }, call] },
      { content: 'done' },
      { content: '2' },
      { content: 'done' },
    ])
  })

  it('are among the allowed tools', async () => {
    const allowed = [{ type: 'custom', name: 'shell' }]
    await client.responses.create({
      ...asked,
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: allowed },
    })
    expect(chatPrompt()).toMatchObject({ toolChoice: 'auto', tools: [{ name: 'shell' }] })
  })
})

describe('the grammar of a custom tool', () => {
  it('is a keyword of its input', async () => {
    const format = { type: 'grammar', syntax: 'lark', definition: 'start: "a"' } as const
    await client.responses.create({
      model: MODEL,
      input: 'Hi',
      tools: [{ type: 'custom', name: 'x', format }],
    })
    expect(chatPrompt().tools?.[0]).toMatchObject({
      isStrict: true,
      schemaPath: 'tools[0].format.definition',
      parameters: { properties: { input: { type: 'string', 'x-lark': 'start: "a"' } } },
    })
  })
})

describe('the regular expression of a custom tool', () => {
  it.each([
    ['a|b', '^(?:a|b)$'],
    ['^a|b$', '^(?:a|b)$'],
    ['a\\$', '^(?:a\\$)$'],
    ['a\\\\$', '^(?:a\\\\)$'],
    ['\\^a', '^(?:\\^a)$'],
  ])('matches the whole input: %s', async (definition, pattern) => {
    const format = { type: 'grammar', syntax: 'regex', definition } as const
    await client.responses.create({
      model: MODEL,
      input: 'Hi',
      tools: [{ type: 'custom', name: 'x', format }],
    })
    expect(chatPrompt().tools?.[0]?.parameters).toMatchObject({
      properties: { input: { pattern } },
    })
  })
})
