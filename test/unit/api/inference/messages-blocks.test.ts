import { afterAll, beforeAll, expect, it } from 'vitest'

import { presentErrorByVersion } from '#api/inference/messages/messages-errors.ts'
import type { ChatMessage } from '#shared/contracts/completion.ts'

import { openSurface } from './surface.ts'

const USER = { role: 'user', content: 'Say hello' }
const REQUEST = { model: 'tiny-chat', max_tokens: 9, messages: [USER] }

let surface: Awaited<ReturnType<typeof openSurface>>
beforeAll(async () => {
  surface = await openSurface(undefined, { presentError: presentErrorByVersion })
})
afterAll(() => surface.app.close())

const post = (fields: object) => surface.post('/v1/messages', { ...REQUEST, ...fields })

async function promptOf(fields: object) {
  const response = await post(fields)
  expect([response.statusCode, response.body]).toEqual([200, expect.stringContaining('"msg_')])
  const [prompt] = surface.submitter.input.prompts
  if (prompt?.form !== 'chat') throw new Error('no chat was asked for')
  return prompt
}

const HIT = { type: 'web_search_result', url: 'https://a.test', title: 'Tea', page_age: null }
const question = { type: 'text', text: 'Why?' }
const text = (words: string) => ({ type: 'text', text: words })
const call = (type: string, id: string, name: string) => ({ type, id, name, input: { q: 'tea' } })

it.each<[string, object[], ChatMessage[]]>([
  [
    'a document of text, with its title and context',
    [
      {
        role: 'user',
        content: [
          {
            type: 'document',
            source: { type: 'text', media_type: 'text/plain', data: 'Tea is hot.' },
            title: 'Tea',
            context: 'Of 2026.',
            citations: { enabled: true },
          },
          question,
        ],
      },
    ],
    [{ role: 'user', content: 'Tea\nOf 2026.\nTea is hot.\nWhy?' }],
  ],
  [
    'a document of blocks',
    [
      {
        role: 'user',
        content: [
          { type: 'document', source: { type: 'content', content: [text('a'), text('b')] } },
        ],
      },
    ],
    [{ role: 'user', content: 'a\nb' }],
  ],
  [
    'search results, also of a tool',
    [
      { role: 'assistant', content: [call('tool_use', 'toolu_1', 'find')] },
      {
        role: 'user',
        content: [
          {
            type: 'tool_result',
            tool_use_id: 'toolu_1',
            content: [
              { type: 'search_result', source: 'a.txt', title: 'Tea', content: [text('Hot.')] },
            ],
          },
        ],
      },
    ],
    [
      {
        role: 'assistant',
        content: '',
        toolCalls: [{ id: 'toolu_1', name: 'find', arguments: '{"q":"tea"}' }],
      },
      { role: 'tool', toolCallId: 'toolu_1', content: 'Tea\na.txt\nHot.' },
    ],
  ],
  [
    'calls that a hosted server ran, with their results between the parts of the answer',
    [
      {
        role: 'assistant',
        content: [
          text('I search.'),
          call('server_tool_use', 'srvtoolu_1', 'web_search'),
          { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_1', content: [HIT] },
          text('I ask.'),
          { ...call('mcp_tool_use', 'mcptoolu_1', 'ask'), server_name: 'shop' },
          { type: 'mcp_tool_result', tool_use_id: 'mcptoolu_1', content: [text('yes')] },
          text('Tea.'),
        ],
      },
      { role: 'user', content: 'Why?' },
    ],
    [
      {
        role: 'assistant',
        content: 'I search.',
        toolCalls: [{ id: 'srvtoolu_1', name: 'web_search', arguments: '{"q":"tea"}' }],
      },
      { role: 'tool', toolCallId: 'srvtoolu_1', content: JSON.stringify([HIT]) },
      {
        role: 'assistant',
        content: 'I ask.',
        toolCalls: [{ id: 'mcptoolu_1', name: 'ask', arguments: '{"q":"tea"}' }],
      },
      { role: 'tool', toolCallId: 'mcptoolu_1', content: 'yes' },
      { role: 'assistant', content: 'Tea.' },
      { role: 'user', content: 'Why?' },
    ],
  ],
  [
    'the summary of a hosted server, and nothing about its own work',
    [
      {
        role: 'assistant',
        content: [
          { type: 'compaction', content: 'They talked of tea.' },
          { type: 'compaction', content: null },
          { type: 'fallback', from: { model: 'a' }, to: { model: 'b' } },
          { type: 'mcp_tool_listing', mcp_server_name: 'shop', tools: [] },
          text('Hot.'),
        ],
      },
      { role: 'user', content: 'Why?' },
    ],
    [
      {
        role: 'assistant',
        content: 'Summary of the conversation so far:\nThey talked of tea.\nHot.',
      },
      { role: 'user', content: 'Why?' },
    ],
  ],
])('shows %s to the model', async (_, messages, shown) => {
  expect((await promptOf({ messages })).messages).toEqual(shown)
})

it.each([
  ['bash_20250124', 'bash', { command: { type: 'string' }, restart: { type: 'boolean' } }],
  ['text_editor_20250728', 'str_replace_based_edit_tool', { insert_text: { type: 'string' } }],
  ['memory_20250818', 'memory', { old_path: { type: 'string' } }],
])('offers %s as a function with its known schema', async (type, name, properties) => {
  const { tools } = await promptOf({ tools: [{ type, name }] })
  expect(tools).toMatchObject([
    { name, description: expect.any(String), parameters: { type: 'object', properties } },
  ])
})

it.each<[string, object, RegExp]>([
  [
    'a summary that its server alone can read',
    {
      messages: [
        USER,
        { role: 'assistant', content: [{ type: 'compaction', encrypted_content: 'x' }] },
        USER,
      ],
    },
    /^messages\.1\.content\.0: .*would lack its beginning/,
  ],
  [
    'a tool that the server would run',
    { tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
    /'web_search_20250305'.*a tool of your own/,
  ],
  ['a tool without a schema', { tools: [{ name: 'add' }] }, /'tools\[0\]\.input_schema'/],
  [
    'servers that would be called',
    { mcp_servers: [{ type: 'url', name: 'shop', url: 'https://a.test' }] },
    /'mcp_servers'.*tools of your own/,
  ],
  [
    'a PDF',
    {
      messages: [
        {
          role: 'user',
          content: [
            {
              type: 'document',
              source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' },
            },
          ],
        },
      ],
    },
    /'base64'.*send the text/,
  ],
])('refuses %s and says what to use instead', async (_, fields, message) => {
  const response = await post(fields)
  expect([response.statusCode, response.json()]).toEqual([
    400,
    {
      type: 'error',
      error: { type: 'invalid_request_error', message: expect.stringMatching(message) },
      request_id: expect.any(String),
    },
  ])
})

// The tool runner of the client sends the whole conversation after an error with this code.
it.each([{ type: 'create' }, { type: 'continue', previous_message_id: 'msg_1' }])(
  'refuses the thread %j with a code that clients know',
  async (thread) => {
    const response = await post({ thread })
    expect([response.statusCode, response.json()]).toMatchObject([
      400,
      { error: { details: { error_code: 'thread_unsupported_request', unsupported: ['thread'] } } },
    ])
  },
)

it('refuses a request for a compaction, whose answer would have another form', async () => {
  const { statusCode, body } = await post({ compaction: { type: 'summarize' } })
  expect([statusCode, body]).toEqual([400, expect.stringMatching(/Ask for a summary/)])
})

it('accepts empty lists and nulls in fields that it refuses otherwise', async () => {
  await promptOf({ mcp_servers: [], thread: null, compaction: null })
})

it.each(['output_config', 'output_format'])('reads the form of the answer in %s', async (name) => {
  const format = { type: 'json_schema', schema: { type: 'null' } }
  await promptOf({ [name]: name === 'output_format' ? format : { format } })
  const { responseFormat } = surface.submitter.input
  expect(responseFormat).toMatchObject({ type: 'jsonSchema', schema: { type: 'null' } })
  const both = await post({ output_format: format, output_config: { format } })
  expect([both.statusCode, both.body]).toEqual([400, expect.stringContaining('output_format')])
})

it('reads null as the default of every field', async () => {
  const tool = { name: 'add', description: null, input_schema: { type: 'object' } }
  const unset = ['system', 'tool_choice', 'thinking', 'stop_sequences', 'metadata', 'cache_control']
  const nulls = Object.fromEntries(unset.map((name) => [name, null]))
  const { tools } = await promptOf({ ...nulls, tools: [tool] })
  expect(tools).toMatchObject([{ name: 'add', parameters: { type: 'object' } }])
  expect(await promptOf({ ...nulls, tools: null })).not.toHaveProperty('tools')
  const messages = [
    { role: 'assistant', content: [call('tool_use', 'toolu_1', 'add')] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: null }] },
  ]
  expect((await promptOf({ messages })).messages.at(-1)).toMatchObject({ content: '' })
})

it('offers the model tools whose names have up to 128 characters', async () => {
  const tool = { name: 'a'.repeat(128), input_schema: { type: 'object' } }
  expect((await promptOf({ tools: [tool] })).tools).toMatchObject([{ name: tool.name }])
  const longer = await post({ tools: [{ ...tool, name: `${tool.name}a` }] })
  expect([longer.statusCode, longer.json().error.message]).toEqual([
    400,
    expect.stringContaining("'tools[0].name'"),
  ])
})

it.each([
  ['/v1/messages/batches', 404, 'not_found_error'],
  ['/v1/messages', 405, 'invalid_request_error'],
])('answers GET %s with %i as its client parses errors', async (url, status, type) => {
  const headers = { 'anthropic-version': '2023-06-01' }
  const response = await surface.app.inject({ url, headers })
  expect(response.statusCode).toBe(status)
  expect(response.json()).toEqual({
    type: 'error',
    error: { type, message: expect.any(String) },
    request_id: response.headers['request-id'],
  })
  const { error } = (await surface.app.inject({ url })).json()
  expect(error).toMatchObject({ type: 'invalid_request_error', code: null })
})
