import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'

import { CALL, logprob, script, TOOLS } from './responses-surface.ts'
import { openSurface } from './surface.ts'

const BODY = { model: 'gpt-3.5-turbo', input: 'Hi' }
const ADD = { type: 'function', name: 'add', description: 'Adds', parameters: { type: 'object' } }
const ASKED = { name: 'add', description: 'Adds', parameters: { type: 'object' } }
const SCHEMA = { type: 'json_schema', name: 'x', schema: { type: 'null' } }
const MESSAGE_ID = expect.stringMatching(/^msg_[0-9a-f]{50}$/)

type Row = readonly [title: string, fields: object, expected: object]

const chat = (...messages: object[]) => ({ prompts: [{ form: 'chat', messages }] })
const user = { role: 'user', content: 'Hi' }

const THOUGHT = {
  type: 'reasoning',
  id: 'rs_1',
  status: 'completed',
  encrypted_content: null,
  summary: [],
  content: [{ type: 'reasoning_text', text: 'Hm.' }],
}

const INPUT_ROWS: readonly Row[] = [
  ['a text', {}, { ...chat(user), n: 1, maxTokens: null, stop: [], logprobs: null, echo: false }],
  ['instructions', { instructions: 'Be brief.' }, chat({ role: 'system' }, user)],
  ['null as the default', { tools: null, text: null, include: null, store: null }, chat(user)],
  ['store: false', { store: false, background: false, truncation: 'disabled' }, chat(user)],
  ['truncation', { truncation: 'auto' }, { prompts: [{ form: 'chat', isTruncated: true }] }],
  ['max_output_tokens', { max_output_tokens: 7 }, { maxTokens: 7 }],
  ['temperature', { temperature: 0 }, { sampling: { temperature: 0, topP: 1 } }],
  ['top_p', { top_p: 0.5 }, { sampling: { topP: 0.5 } }],
  ['log-probabilities', { include: ['message.output_text.logprobs'] }, { logprobs: 0 }],
  ['alternatives', { include: ['message.output_text.logprobs'], top_logprobs: 3 }, { logprobs: 3 }],
  [
    'reasoning, of which there is none',
    { include: ['reasoning.encrypted_content'] },
    { logprobs: null },
  ],
  [
    'words of models that reason, without their answer',
    { reasoning: { effort: 'none' }, text: { verbosity: 'medium' }, input: [THOUGHT, user] },
    chat(user),
  ],
  ['free text', { text: { format: { type: 'text' } } }, { responseFormat: { type: 'text' } }],
  [
    'a JSON object',
    { input: 'As JSON.', text: { format: { type: 'json_object' } } },
    { responseFormat: { type: 'jsonObject' } },
  ],
  [
    'a JSON schema',
    { text: { format: SCHEMA } },
    { responseFormat: { type: 'jsonSchema', schema: { type: 'null' } } },
  ],
  ['tools', { tools: [ADD] }, { prompts: [{ tools: [ASKED], toolChoice: 'auto' }], stop: [] }],
  [
    'a single call',
    { tools: [ADD], parallel_tool_calls: false },
    { prompts: [{ tools: [ASKED] }], stop: [], endsAfterCall: true },
  ],
  ['a call', { tools: [ADD], tool_choice: 'required' }, { prompts: [{ toolChoice: 'required' }] }],
  [
    'a named tool',
    { tools: [ADD], tool_choice: { type: 'function', name: 'add' } },
    { prompts: [{ toolChoice: { name: 'add' } }] },
  ],
  [
    'allowed tools',
    {
      tools: [ADD, { type: 'function', name: 'sub' }],
      tool_choice: {
        type: 'allowed_tools',
        mode: 'required',
        tools: [{ type: 'function', name: 'sub' }],
      },
    },
    { prompts: [{ tools: [{ name: 'sub' }], toolChoice: 'required' }] },
  ],
]

describe('the job that a request for a response creates', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface()
  })
  afterAll(() => surface.app.close())

  async function inputOf(fields: object): Promise<typeof surface.submitter.input> {
    const response = await surface.post('/v1/responses', { ...BODY, ...fields })
    expect([response.statusCode, response.body]).toEqual([200, expect.stringContaining('"resp_')])
    return surface.submitter.input
  }

  it.each(INPUT_ROWS)('with %s', async (_title, fields, expected) => {
    expect(await inputOf(fields)).toMatchObject(expected)
  })

  it('reads a whole conversation, with former answers as they were given', async () => {
    const input = [
      { role: 'developer', content: 'Be brief.' },
      {
        type: 'message',
        role: 'user',
        content: [
          { type: 'input_text', text: 'a' },
          { type: 'input_text', text: 'b' },
          { type: 'input_file', filename: 'c.txt', file_data: 'data:text/plain;base64,Yw==' },
        ],
      },
      {
        id: 'msg_1',
        type: 'message',
        status: 'completed',
        role: 'assistant',
        phase: 'commentary',
        content: [{ type: 'output_text', text: 'Sure.', annotations: [], logprobs: [], parsed: 1 }],
      },
      {
        id: 'fc_1',
        type: 'function_call',
        status: 'completed',
        call_id: 'call_1',
        name: 'add',
        arguments: '{}',
        parsed_arguments: {},
        caller: { type: 'direct' },
        namespace: null,
      },
      { type: 'function_call', call_id: 'call_2', name: 'sub', arguments: '{"a":1}' },
      {
        type: 'function_call_output',
        call_id: 'call_2',
        output: [{ type: 'input_text', text: '2' }],
      },
      { type: 'function_call_output', call_id: 'call_1', output: '1' },
      { type: 'function_call', call_id: 'call_3', name: 'add', arguments: '{}' },
      { type: 'function_call_output', call_id: 'call_3', output: '3' },
      { role: 'assistant', content: [{ type: 'refusal', refusal: 'No.' }] },
      { role: 'user', content: 'Why?' },
    ]
    const { prompts } = await inputOf({ input, instructions: 'Be kind.' })
    const calls = (...list: [string, string, string][]) =>
      list.map(([id, name, text]) => ({ id, name, arguments: text }))
    expect(prompts).toEqual([
      {
        form: 'chat',
        messages: [
          { role: 'system', content: 'Be kind.' },
          { role: 'system', content: 'Be brief.' },
          { role: 'user', content: 'ab\nc.txt\nc\n' },
          {
            role: 'assistant',
            content: 'Sure.',
            toolCalls: calls(['call_1', 'add', '{}'], ['call_2', 'sub', '{"a":1}']),
          },
          { role: 'tool', content: '1', toolCallId: 'call_1' },
          { role: 'tool', content: '2', toolCallId: 'call_2' },
          { role: 'assistant', content: '', toolCalls: calls(['call_3', 'add', '{}']) },
          { role: 'tool', content: '3', toolCallId: 'call_3' },
          { role: 'assistant', content: 'No.' },
          { role: 'user', content: 'Why?' },
        ],
      },
    ])
  })

  it('runs at the requested tier, and reports it', async () => {
    const response = await surface.post('/v1/responses', { ...BODY, service_tier: 'flex' })
    expect(surface.submitter.requests.at(-1)?.priorityClass).toBe('flex')
    expect(response.json().service_tier).toBe('flex')
  })

  it('knows only models that chat', async () => {
    for (const model of ['tiny-embed', 'org/base:v1', 'nope']) {
      const response = await surface.post('/v1/responses', { ...BODY, model })
      expect([model, response.statusCode]).toEqual([model, 404])
    }
  })
})

describe('a response', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  afterEach(() => surface.app.close())
  const ask = async (fields: object) =>
    (await surface.post('/v1/responses', { ...BODY, ...fields })).json()

  it('has every field that clients read', async () => {
    surface = await openSurface(script(['Hello', ' world']))
    expect(await ask({})).toEqual({
      id: expect.stringMatching(/^resp_[0-9a-f]{48}$/),
      object: 'response',
      created_at: 1_750_000_000,
      completed_at: 1_750_000_000,
      status: 'completed',
      background: false,
      error: null,
      incomplete_details: null,
      instructions: null,
      max_output_tokens: null,
      max_tool_calls: null,
      model: 'tiny-chat',
      output: [
        {
          id: MESSAGE_ID,
          type: 'message',
          status: 'completed',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'Hello world', annotations: [], logprobs: [] }],
        },
      ],
      conversation: null,
      parallel_tool_calls: true,
      previous_response_id: null,
      prompt_cache_key: null,
      reasoning: { effort: null, summary: null },
      safety_identifier: null,
      service_tier: 'default',
      store: false,
      temperature: 1,
      text: { format: { type: 'text' } },
      tool_choice: 'auto',
      tools: [],
      top_logprobs: 0,
      top_p: 1,
      truncation: 'disabled',
      usage: {
        input_tokens: 5,
        input_tokens_details: { cached_tokens: 2, cache_write_tokens: 0 },
        output_tokens: 2,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: 7,
      },
      user: null,
      metadata: {},
    })
  })

  it('repeats the settings of its request', async () => {
    surface = await openSurface()
    const fields = {
      instructions: 'Be brief.',
      max_output_tokens: 9,
      temperature: 0.5,
      top_p: 0.9,
      parallel_tool_calls: false,
      metadata: { a: 'b' },
      user: 'u',
      prompt_cache_key: 'k',
      safety_identifier: 's',
      tool_choice: { type: 'function', name: 'add' },
    }
    const answer = await ask({ ...fields, tools: TOOLS, text: { format: SCHEMA } })
    expect(answer).toMatchObject({
      ...fields,
      tools: [
        { type: 'function', name: 'add', description: null, parameters: null, strict: false },
      ],
      text: { format: { ...SCHEMA, description: null, strict: false } },
    })
  })

  it('is incomplete if it reaches its token limit', async () => {
    surface = await openSurface(script(['Hello'], { finishReason: 'length' }))
    expect(await ask({})).toMatchObject({
      status: 'incomplete',
      completed_at: null,
      error: null,
      incomplete_details: { reason: 'max_output_tokens' },
      output: [{ status: 'incomplete', content: [{ text: 'Hello' }] }],
      usage: { output_tokens: 1 },
    })
  })

  it('is one empty message if the model writes nothing', async () => {
    surface = await openSurface(script(['']))
    const { status, output } = await ask({ tools: TOOLS })
    expect([status, output]).toMatchObject(['completed', [{ content: [{ text: '' }] }]])
  })

  it('has calls as separate items, with log-probabilities only for text', async () => {
    const logprobs = CALL.map((piece, index) => logprob(piece, -index))
    surface = await openSurface(script(CALL, { logprobs }))
    const { output } = await ask({ tools: TOOLS, include: ['message.output_text.logprobs'] })
    const top_logprobs = [{ token: 'top', logprob: -0.1, bytes: [116] }]
    const said = { token: 'Sure.', logprob: 0, bytes: [...Buffer.from('Sure.')], top_logprobs }
    expect(output).toEqual([
      {
        id: MESSAGE_ID,
        type: 'message',
        status: 'completed',
        role: 'assistant',
        content: [{ type: 'output_text', text: 'Sure.', annotations: [], logprobs: [said] }],
      },
      {
        id: expect.stringMatching(/^fc_[0-9a-f]{50}$/),
        type: 'function_call',
        status: 'completed',
        call_id: expect.stringMatching(/^call_\w{24}$/),
        name: 'add',
        arguments: '{"a": 1}',
      },
    ])
  })

  it('marks a truncated call as incomplete', async () => {
    surface = await openSurface(script(CALL.slice(0, 4), { finishReason: 'length' }))
    const { status, output } = await ask({ tools: TOOLS })
    expect(status).toBe('incomplete')
    expect(output).toMatchObject([
      { type: 'message', status: 'completed' },
      { type: 'function_call', status: 'incomplete', arguments: '{"a"' },
    ])
  })

  it('contains no call if none is allowed', async () => {
    surface = await openSurface(script(CALL))
    const { output } = await ask({ tools: TOOLS, tool_choice: 'none' })
    expect(output).toMatchObject([{ type: 'message', content: [{ text: CALL.join('') }] }])
  })
})
