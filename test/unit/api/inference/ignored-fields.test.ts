import OpenAI from 'openai'
import { afterAll, beforeAll, expect, it } from 'vitest'

import { clip, MODEL } from './audio-surface.ts'
import { postForm } from './forms.ts'
import { API_KEY, openSurface, serveSurface } from './surface.ts'

const HEADER = 'x-millrace-ignored-parameters'
const USER = { role: 'user' as const, content: 'Say hello' }
const CHAT = { model: 'tiny-chat', messages: [USER] }

let served: Awaited<ReturnType<typeof serveSurface>>
let surface: (typeof served)['surface']
let refusing: typeof surface

beforeAll(async () => {
  served = await serveSurface(undefined, { unknownFields: 'ignore' })
  ;({ surface } = served)
  refusing = await openSurface()
})
afterAll(() => Promise.all([served.close(), refusing.app.close()]))

it.each<[string, object, string]>([
  ['at the top', { ...CHAT, colour: 'red', foo: 1 }, 'colour, foo'],
  [
    'in messages, each name once',
    { ...CHAT, messages: [1, 2].map(() => ({ ...USER, colour: 1 })) },
    'messages[].colour',
  ],
  [
    'in the variant of an object',
    { ...CHAT, tools: [{ type: 'function', function: { name: 'add' }, colour: 1 }] },
    'tools[].colour',
  ],
  [
    'in one of several alternatives',
    {
      ...CHAT,
      tools: [{ type: 'function', function: { name: 'add' } }],
      tool_choice: { type: 'function', function: { name: 'add', colour: 1 } },
    },
    'tool_choice.function.colour',
  ],
  ['with characters that no header holds', { ...CHAT, 'a\r\nb: ✓': 1 }, 'a??b??'],
])('ignores and reports unknown fields %s', async (_where, body, reported) => {
  const response = await surface.post('/v1/chat/completions', body)
  expect(response.statusCode, response.body).toBe(200)
  const found = String(response.headers[HEADER])
  expect(found.replace(/b\?+/, 'b??')).toBe(reported)
  expect(JSON.stringify(surface.submitter.input)).not.toContain('colour')
})

it.each<[string, object, string]>([
  ['/v1/chat/completions', { ...CHAT, models: ['a', 'b'] }, 'models, input'],
  [
    '/v1/chat/completions',
    { ...CHAT, top_a: 0.2, typ_p: 0.9, mode: 'instruct' },
    'top_a, typ_p, mode, input',
  ],
  ['/v1/chat/completions', { ...CHAT, typ_p: 1, functions: [] }, 'input'],
  ['/v1/responses', { top_a: 0.2, models: ['a', 'b'] }, 'top_a, models'],
  [
    '/v1/responses',
    { include: ['reasoning.encrypted_content', 'web_search_call.results'], top_logprobs: 2 },
    'include[1], top_logprobs',
  ],
  [
    '/v1/responses',
    {
      input: [
        { ...USER, phase: 'final_answer' },
        { ...USER, phase: null },
      ],
    },
    'input[].phase',
  ],
])('%s ignores and reports what has no effect in %j', async (url, fields, reported) => {
  const response = await surface.post(url, { model: 'tiny-chat', input: 'x', ...fields })
  expect([response.statusCode, response.headers[HEADER]]).toEqual([200, reported])
})

it('reads content without parts, such as that of a tool without output, as empty', async () => {
  const call = { id: 'call_1', type: 'function', function: { name: 'f', arguments: '{}' } }
  const messages = [
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: [], tool_calls: [call] },
    { role: 'tool', tool_call_id: 'call_1', content: [] },
  ]
  const input = await surface.inputOf('/v1/chat/completions', { messages })
  expect(input).toMatchObject({
    prompts: [{ messages: [{ content: 'Hi' }, { content: '' }, { content: '' }] }],
  })
})

it('reports nothing if every field is known', async () => {
  const response = await surface.post('/v1/chat/completions', CHAT)
  expect(response.headers).not.toHaveProperty(HEADER)
})

it('reports them before the first byte of a stream, to the official client', async () => {
  const client = new OpenAI({ baseURL: served.baseURL, apiKey: API_KEY })
  const request = { ...CHAT, stream: true, colour: 'red' } as const
  const { data, response } = await client.chat.completions.create(request).withResponse()
  expect(response.headers.get(HEADER)).toBe('colour')
  let chunks = 0
  for await (const _chunk of data) chunks += 1
  expect(chunks).toBeGreaterThan(1)
})

const RESPONSE = { model: 'tiny-chat', input: 'Say hello' }

it.each<[string, object, string]>([
  ['/v1/chat/completions', { ...CHAT, reasoning_effort: 'high' }, 'reasoning_effort'],
  ['/v1/chat/completions', { ...CHAT, verbosity: 'low' }, 'verbosity'],
  [
    '/v1/chat/completions',
    { ...CHAT, prompt_cache_retention: '24h', prediction: { type: 'content', content: 'x' } },
    'prediction, prompt_cache_retention',
  ],
  [
    '/v1/responses',
    { ...RESPONSE, reasoning: { effort: 'low', summary: 'auto' }, text: { verbosity: 'low' } },
    'reasoning.summary, reasoning.effort, text.verbosity',
  ],
  [
    '/v1/chat/completions',
    {
      ...CHAT,
      enable_thinking: false,
      thinking_token_budget: 5,
      chat_template_kwargs: { mood: 'x' },
    },
    'thinking_token_budget, enable_thinking, chat_template_kwargs.mood',
  ],
  [
    '/v1/responses',
    { ...RESPONSE, prompt_cache_retention: '24h', max_tool_calls: 0, prompt_cache_key: 'a' },
    'prompt_cache_key, max_tool_calls, prompt_cache_retention',
  ],
  ['/v1/chat/completions', { ...CHAT, prompt_cache_key: 'a' }, 'prompt_cache_key'],
])('accepts and reports fields of %s that no model here reads: %j', async (url, body, reported) => {
  for (const { post } of [surface, refusing]) {
    const response = await post(url, body)
    expect([response.statusCode, response.headers[HEADER]], response.body).toEqual([200, reported])
  }
})

it.each<[string, object]>([
  ['/v1/chat/completions', { ...CHAT, reasoning_effort: 'none', verbosity: 'medium' }],
  ['/v1/responses', { ...RESPONSE, reasoning: { effort: 'none' }, max_tool_calls: null }],
  ['/v1/responses', { ...RESPONSE, truncation: 'disabled', text: { verbosity: 'medium' } }],
  ['/v1/responses', { ...RESPONSE, service_tier: 'flex', safety_identifier: 'a', user: 'b' }],
])('reports nothing for values of %s that ask for what happens anyway: %j', async (url, body) => {
  const response = await surface.post(url, body)
  expect([response.statusCode, response.headers[HEADER]], response.body).toEqual([200, undefined])
})

const MISSPELT: [string, object, string, string][] = [
  ['/v1/chat/completions', { ...CHAT, max_token: 5 }, 'max_token', 'max_tokens'],
  ['/v1/chat/completions', { ...CHAT, temprature: 0 }, 'temprature', 'temperature'],
  ['/v1/chat/completions', { model: 'tiny-chat', mesages: [USER] }, 'mesages', 'messages'],
  [
    '/v1/chat/completions',
    { ...CHAT, messages: [{ ...USER, tool_call: [] }] },
    'messages[0].tool_call',
    'messages[0].tool_calls',
  ],
  ['/v1/embeddings', { model: 'tiny-embed', inputs: 'x' }, 'inputs', 'input'],
]

it.each(MISSPELT)('refuses a misspelt field of %s', async (url, body, param, intended) => {
  const response = await surface.post(url, body)
  expect([response.statusCode, response.json().error]).toMatchObject([
    400,
    {
      param,
      code: 'unknown_parameter',
      message: `Unknown parameter: '${param}'. Did you mean '${intended}'?`,
    },
  ])
})

it('names the intended field even if unknown ones are refused', async () => {
  const response = await refusing.post('/v1/chat/completions', { ...CHAT, max_token: 5 })
  expect(response.json().error.message).toBe(
    "Unknown parameter: 'max_token'. Did you mean 'max_tokens'?",
  )
})

it('refuses a body of very many unknown fields', async () => {
  const fields = Object.fromEntries(Array.from({ length: 5000 }, (_, at) => [`x${at}y`, 1]))
  const response = await surface.post('/v1/chat/completions', { ...CHAT, ...fields })
  expect([response.statusCode, response.json().error.code]).toEqual([400, 'unknown_parameter'])
})

it('refuses unknown fields of keys, which could have been restrictions', async () => {
  const response = await surface.post('/v1/api_keys', { name: 'x', permissions: ['chat'] })
  expect([response.statusCode, response.json().error.code]).toEqual([400, 'unknown_parameter'])
})

it('ignores and reports unknown text fields of forms, and refuses misspelt ones', async () => {
  const url = '/v1/audio/transcriptions'
  const ignored = await postForm(surface.app, url, [clip(), MODEL, ['colour', 'red']])
  expect(ignored.headers[HEADER]).toBe('colour')
  expect(ignored.body).not.toContain('unknown_parameter')
  const misspelt = await postForm(surface.app, url, [clip(), MODEL, ['temprature', '1']])
  expect(misspelt.json().error.message).toBe(
    "Unknown parameter: 'temprature'. Did you mean 'temperature'?",
  )
})
