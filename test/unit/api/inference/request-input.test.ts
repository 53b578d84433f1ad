import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openSurface } from './surface.ts'

const MESSAGES = [{ role: 'user', content: 'Hi' }]
const ADD = { name: 'add', description: 'Adds', parameters: { type: 'object' } }
const TOOLS = [{ type: 'function', function: ADD }]

type Row = readonly [title: string, fields: object, expected: object]

const COMPLETION_ROWS: readonly Row[] = [
  [
    'the defaults',
    {},
    {
      prompts: [{ form: 'text', text: '' }],
      n: 1,
      bestOf: 1,
      maxTokens: 16,
      stop: [],
      logprobs: null,
      echo: false,
      stream: false,
      responseFormat: { type: 'text' },
    },
  ],
  ['null as the default', { max_tokens: null, n: null, stop: null }, { maxTokens: 16, n: 1 }],
  ['a text', { prompt: 'a' }, { prompts: [{ form: 'text', text: 'a' }] }],
  [
    'half of a character as the model reads it',
    { prompt: ['a\ud83d', '😀'] },
    {
      prompts: [
        { form: 'text', text: 'a\ufffd' },
        { form: 'text', text: '😀' },
      ],
    },
  ],
  [
    'texts',
    { prompt: ['a', ''] },
    {
      prompts: [
        { form: 'text', text: 'a' },
        { form: 'text', text: '' },
      ],
    },
  ],
  ['token ids', { prompt: [1, 2] }, { prompts: [{ form: 'tokenIds', tokenIds: [1, 2] }] }],
  [
    'lists of token ids',
    { prompt: [[1], [2, 3]] },
    {
      prompts: [
        { form: 'tokenIds', tokenIds: [1] },
        { form: 'tokenIds', tokenIds: [2, 3] },
      ],
    },
  ],
  ['no new tokens', { max_tokens: 0, echo: true, logprobs: 0 }, { maxTokens: 0, logprobs: 0 }],
  ['best_of', { n: 2, best_of: 5 }, { n: 2, bestOf: 5 }],
  ['one stop string', { stop: '\n' }, { stop: ['\n'] }],
  ['what old clients send for themselves', { timeout: 20, user: 'u' }, { n: 1 }],
]

const SAMPLING_ROWS: readonly Row[] = [
  ['temperature', { temperature: 0 }, { temperature: 0 }],
  ['top_p', { top_p: 0.5 }, { topP: 0.5 }],
  ['top_k', { top_k: 40 }, { topK: 40 }],
  ['top_k switched off', { top_k: -1 }, { topK: 0 }],
  ['min_p', { min_p: 0.1 }, { minP: 0.1 }],
  ['presence_penalty', { presence_penalty: -2 }, { presencePenalty: -2 }],
  ['frequency_penalty', { frequency_penalty: 1.5 }, { frequencyPenalty: 1.5 }],
  ['repetition_penalty', { repetition_penalty: 1.2 }, { repetitionPenalty: 1.2 }],
  ['logit_bias', { logit_bias: { '5': -100 } }, { logitBias: { '5': -100 } }],
  ['seed', { seed: 7 }, { seed: 7 }],
]

const CHAT_ROWS: readonly Row[] = [
  [
    'the defaults',
    {},
    {
      prompts: [{ form: 'chat', messages: [{ role: 'user', content: 'Hi' }] }],
      maxTokens: null,
      echo: false,
      logprobs: null,
    },
  ],
  ['max_tokens', { max_tokens: 5 }, { maxTokens: 5 }],
  [
    'the newer limit before the older',
    { max_tokens: 5, max_completion_tokens: 9 },
    { maxTokens: 9 },
  ],
  ['logprobs', { logprobs: true }, { logprobs: 0 }],
  ['top_logprobs', { logprobs: true, top_logprobs: 3 }, { logprobs: 3 }],
  [
    'a JSON object',
    { response_format: { type: 'json_object' }, messages: [{ role: 'user', content: 'As JSON.' }] },
    { responseFormat: { type: 'jsonObject' } },
  ],
  [
    'a JSON schema',
    {
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'x', schema: { type: 'null' } },
      },
    },
    { responseFormat: { type: 'jsonSchema', schema: { type: 'null' } } },
  ],
  [
    'a JSON schema beside json_object, as llama.cpp has it',
    { response_format: { type: 'json_object', schema: { type: 'null' } } },
    { responseFormat: { type: 'jsonSchema', schema: { type: 'null' } } },
  ],
  [
    'an answer that was a refusal, sent back as it came',
    { messages: [{ role: 'assistant', content: null, refusal: 'No.' }] },
    { prompts: [{ form: 'chat', messages: [{ role: 'assistant', content: 'No.' }] }] },
  ],
  [
    'developers as system, parts as one text, and an empty name as none',
    {
      messages: [
        { role: 'developer', name: '', content: 'Be brief.' },
        {
          role: 'user',
          name: 'ann',
          content: [
            { type: 'text', text: 'a' },
            { type: 'text', text: 'b' },
          ],
        },
      ],
    },
    {
      prompts: [
        {
          form: 'chat',
          messages: [
            { role: 'system', content: 'Be brief.' },
            { role: 'user', content: 'ab', name: 'ann' },
          ],
        },
      ],
    },
  ],
  [
    'files of text after their names',
    {
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Sum up:' },
            {
              type: 'file',
              file: { filename: 'a.md', file_data: 'data:text/markdown;charset=utf-8;base64,w6Q=' },
            },
            { type: 'file', file: { file_data: 'data:application/ld+json;base64,e30=' } },
            { type: 'text', text: 'b' },
          ],
        },
      ],
    },
    {
      prompts: [
        { form: 'chat', messages: [{ role: 'user', content: 'Sum up:\na.md\nä\n\n{}\nb' }] },
      ],
    },
  ],
]

const TOOL_ROWS: readonly Row[] = [
  ['tools', { tools: TOOLS }, { tools: [ADD], toolChoice: 'auto' }],
  [
    'a strict tool',
    {
      tools: [
        {
          type: 'function',
          function: {
            name: 'add',
            strict: true,
            parameters: { type: 'object', properties: {}, additionalProperties: false },
          },
        },
      ],
    },
    { tools: [{ name: 'add', isStrict: true }] },
  ],
  ['required', { tools: TOOLS, tool_choice: 'required' }, { tools: [ADD], toolChoice: 'required' }],
  ['any', { tools: TOOLS, tool_choice: 'any' }, { tools: [ADD], toolChoice: 'required' }],
  [
    'a named tool',
    { tools: TOOLS, tool_choice: { type: 'function', function: { name: 'add' } } },
    { toolChoice: { name: 'add' } },
  ],
  [
    'allowed tools',
    {
      tools: [
        ...TOOLS,
        { type: 'function', function: { name: 'sub', parameters: { type: 'object' } } },
      ],
      tool_choice: {
        type: 'allowed_tools',
        allowed_tools: {
          mode: 'required',
          tools: [{ type: 'function', function: { name: 'sub' } }],
        },
      },
    },
    {
      tools: [{ name: 'sub', schemaPath: 'tools[1].function.parameters' }],
      toolChoice: 'required',
    },
  ],
  [
    'functions',
    { functions: [ADD], function_call: 'auto' },
    { tools: [{ ...ADD, schemaPath: 'functions[0].parameters' }], toolChoice: 'auto' },
  ],
  [
    'a named function',
    { functions: [ADD], function_call: { name: 'add' } },
    { toolChoice: { name: 'add' } },
  ],
]

describe('the job that a request creates', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface()
  })
  afterAll(() => surface.app.close())

  it.each(COMPLETION_ROWS)('a completion with %s', async (_title, fields, expected) => {
    expect(await surface.inputOf('/v1/completions', fields)).toMatchObject(expected)
  })

  it.each(SAMPLING_ROWS)('sampling with %s', async (_title, fields, expected) => {
    const completion = await surface.inputOf('/v1/completions', fields)
    const chat = await surface.inputOf('/v1/chat/completions', { messages: MESSAGES, ...fields })
    expect(completion.sampling).toMatchObject(expected)
    expect(chat.sampling).toMatchObject(expected)
  })

  it.each(CHAT_ROWS)('a chat with %s', async (_title, fields, expected) => {
    const input = await surface.inputOf('/v1/chat/completions', { messages: MESSAGES, ...fields })
    expect(input).toMatchObject(expected)
  })

  it.each(TOOL_ROWS)('a chat with %s', async (_title, fields, expected) => {
    const input = await surface.inputOf('/v1/chat/completions', { messages: MESSAGES, ...fields })
    expect(input.prompts[0]).toMatchObject(expected)
  })

  it('hands the history of tool calls to the template, older forms included', async () => {
    const input = await surface.inputOf('/v1/chat/completions', {
      messages: [
        ...MESSAGES,
        {
          role: 'assistant',
          content: null,
          refusal: null,
          annotations: [],
          // As Python's client writes what it does not have.
          audio: null,
          function_call: null,
          tool_calls: [
            {
              id: 'call_1',
              type: 'function',
              // As the tool runners of the official clients send it back.
              function: { name: 'add', arguments: '{}', parsed_arguments: { b: 2 } },
            },
          ],
        },
        { role: 'tool', tool_call_id: 'call_1', content: '3' },
        { role: 'assistant', content: null, function_call: { name: 'sub', arguments: '{"a":1}' } },
        { role: 'function', name: 'sub', content: '0' },
      ],
    })
    expect(input.prompts[0]).toMatchObject({
      messages: [
        { role: 'user' },
        {
          role: 'assistant',
          content: '',
          toolCalls: [{ id: 'call_1', name: 'add', arguments: '{}' }],
        },
        { role: 'tool', toolCallId: 'call_1', content: '3' },
        { role: 'assistant', toolCalls: [{ name: 'sub', arguments: '{"a":1}' }] },
        { role: 'tool', name: 'sub', content: '0' },
      ],
    })
    expect(JSON.stringify(input.prompts)).not.toContain('parsed')
  })

  it('draws a seed when none is given', async () => {
    const first = await surface.inputOf('/v1/completions', {})
    const second = await surface.inputOf('/v1/completions', {})
    expect(first.sampling.seed).not.toBe(second.sampling.seed)
  })

  it('ends a single call at its closing tag when only one is allowed', async () => {
    const fields = { messages: MESSAGES, tools: TOOLS, stop: 'x' }
    const many = await surface.inputOf('/v1/chat/completions', fields)
    const one = await surface.inputOf('/v1/chat/completions', {
      ...fields,
      parallel_tool_calls: false,
    })
    expect([many, one]).toMatchObject([{ stop: ['x'] }, { stop: ['x'], endsAfterCall: true }])
    expect(many).not.toHaveProperty('endsAfterCall')
  })

  it.each([
    [undefined, 'default'],
    ['auto', 'default'],
    ['flex', 'flex'],
    ['fast', 'priority'],
  ])('service tier %s runs as %s and says so', async (tier, expected) => {
    const body = { model: 'tiny-chat', messages: MESSAGES, service_tier: tier }
    const response = await surface.post('/v1/chat/completions', body)
    expect(surface.submitter.requests.at(-1)?.priorityClass).toBe(expected)
    expect(response.json().service_tier).toBe(expected)
  })

  it('waits at most as long as the client says', async () => {
    await surface.post('/v1/completions', { model: 'tiny-chat' }, { 'x-stainless-timeout': '5' })
    const { deadlineAtMs } = surface.submitter.requests.at(-1) as { deadlineAtMs: number }
    expect(deadlineAtMs).toBe(surface.clock.nowMs + 5000)
  })
})
