import { afterAll, beforeAll, expect, it } from 'vitest'

import { openSurface } from './surface.ts'

const USER = { role: 'user', content: 'Say hello' }
const CHAT = { messages: [USER] }
const STOPS = ['a', 'b', 'c', 'd', 'e']

let surface: Awaited<ReturnType<typeof openSurface>>

beforeAll(async () => {
  surface = await openSurface()
})
afterAll(() => surface.app.close())

it.each<[string, object, object]>([
  ['/v1/chat/completions', { ...CHAT, max_tokens: -1 }, { maxTokens: null }],
  ['/v1/chat/completions', { ...CHAT, max_completion_tokens: -1 }, { maxTokens: null }],
  ['/v1/chat/completions', { ...CHAT, stop: STOPS }, { stop: STOPS }],
  ['/v1/chat/completions', { ...CHAT, tool_choice: 'auto', parallel_tool_calls: true }, {}],
  ['/v1/chat/completions', { ...CHAT, tools: [], tool_choice: 'none' }, {}],
  ['/v1/chat/completions', { ...CHAT, repeat_penalty: 2 }, { sampling: { repetitionPenalty: 2 } }],
  [
    '/v1/chat/completions',
    { messages: [{ ...USER, cache_control: { type: 'ephemeral' } }] },
    { prompts: [{ messages: [USER] }] },
  ],
  [
    '/v1/completions',
    { prompt: 'x', max_tokens: -1, logprobs: 20 },
    { maxTokens: null, logprobs: 20 },
  ],
  ['/v1/responses', { input: 'x', max_output_tokens: -1 }, { maxTokens: null }],
  [
    '/v1/responses',
    { input: 'x', stop: STOPS, seed: 3, top_k: 4 },
    { stop: STOPS, sampling: { seed: 3, topK: 4 } },
  ],
])('%s takes %j as other servers do', async (url, fields, expected) => {
  const response = await surface.post(url, { model: 'tiny-chat', ...fields })
  expect(response.statusCode, response.body).toBe(200)
  expect(response.headers).not.toHaveProperty('x-millrace-ignored-parameters')
  expect(surface.submitter.input).toMatchObject(expected)
})
