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
  ['/v1/chat/completions', { ...CHAT, top_logprobs: 0, logprobs: false }, { logprobs: null }],
  ['/v1/chat/completions', { ...CHAT, user: 'u'.repeat(512) }, {}],
  ['/v1/chat/completions', { ...CHAT, repeat_penalty: 2 }, { sampling: { repetitionPenalty: 2 } }],
  ...['/v1/chat/completions', '/v1/completions'].map((url): [string, object, object] => [
    url,
    {
      ...(url.includes('chat') ? CHAT : { prompt: 'x' }),
      allowed_token_ids: [1, 2],
      bad_words: ['x'],
      cache_salt: 's',
    },
    { tokenRules: { allowedTokenIds: [1, 2], badWords: ['x'] }, cacheSalt: 's' },
  ]),
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
  [
    '/v1/completions',
    { prompt: 'x', source_language: 'en', target_language: 'French' },
    { languages: { source: 'en', target: 'French' } },
  ],
  ['/v1/completions', { prompt: 'x', target_language: null }, {}],
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

const ON = { enable_thinking: true, thinking: true }

it.each<[string, object, object, readonly object[]]>([
  [
    '/v1/chat/completions',
    { ...CHAT, reasoning_effort: 'low', verbosity: 'high', thinking_token_budget: 7 },
    { reasoning_effort: 'low', ...ON, verbosity: 'high' },
    [
      { field: 'thinking_token_budget', thinkingTokensMax: 7 },
      { field: 'reasoning_effort', thinkingTokensMax: 1024 },
      { field: 'verbosity' },
    ],
  ],
  [
    '/v1/chat/completions',
    { ...CHAT, reasoning: { effort: 'low', max_tokens: 7, enabled: true } },
    { reasoning_effort: 'low', ...ON },
    [
      { field: 'reasoning.max_tokens', thinkingTokensMax: 7 },
      { field: 'reasoning.effort', thinkingTokensMax: 1024 },
      { field: 'reasoning.enabled' },
    ],
  ],
  [
    '/v1/chat/completions',
    { ...CHAT, reasoning: { effort: 'high' }, reasoning_effort: 'low' },
    { reasoning_effort: 'low', ...ON },
    [{ field: 'reasoning_effort', thinkingTokensMax: 1024 }],
  ],
  [
    '/v1/chat/completions',
    { ...CHAT, enable_thinking: true, chat_template_kwargs: { enable_thinking: false } },
    { ...ON, enable_thinking: false },
    [{ field: 'enable_thinking' }, { field: 'chat_template_kwargs.enable_thinking' }],
  ],
  [
    '/v1/responses',
    { input: 'x', reasoning: { effort: 'xhigh' }, text: { verbosity: 'low' } },
    { reasoning_effort: 'xhigh', ...ON, verbosity: 'low' },
    [{ field: 'reasoning.effort', thinkingTokensMax: null }, { field: 'text.verbosity' }],
  ],
  [
    '/v1/messages',
    { ...CHAT, max_tokens: 9, thinking: { type: 'enabled', budget_tokens: 1024 } },
    ON,
    [{ field: 'thinking.budget_tokens', thinkingTokensMax: 1024 }],
  ],
])('%s passes %j to the chat template and as hints', async (url, fields, variables, hints) => {
  const response = await surface.post(url, { model: 'tiny-chat', ...fields })
  expect(response.statusCode, response.body).toBe(200)
  const { prompts, hints: found } = surface.submitter.input
  expect(prompts[0]).toMatchObject({ template: { variables } })
  expect(found).toMatchObject(hints)
})

const THOUGHT = { role: 'assistant', content: 'Yes', reasoning: 'Hm.' }
const CALLED = { toolCalls: [{ id: 'c1', name: 'f', arguments: '{}' }] }
const THINKING = { type: 'thinking', thinking: 'Hm.', signature: '' }
const REASONING = {
  type: 'reasoning',
  summary: [],
  content: [{ type: 'reasoning_text', text: 'Hm.' }],
}
const SAID = { role: 'assistant', content: 'Yes' }
const CALL = { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}' }
const OUTPUT = { type: 'function_call_output', call_id: 'c1', output: 'x' }

it.each<[string, string, object, object]>([
  [
    'reasoning_content',
    '/v1/chat/completions',
    { messages: [USER, { ...SAID, reasoning_content: 'Hm.' }, USER] },
    THOUGHT,
  ],
  [
    'reasoning',
    '/v1/chat/completions',
    { messages: [USER, { ...SAID, reasoning: 'Hm.', reasoning_content: null }, USER] },
    THOUGHT,
  ],
  [
    'reasoning without content',
    '/v1/chat/completions',
    { messages: [USER, { role: 'assistant', content: null, reasoning: 'Hm.' }, USER] },
    { ...THOUGHT, content: '' },
  ],
  [
    'thinking blocks',
    '/v1/messages',
    {
      max_tokens: 9,
      messages: [
        USER,
        { role: 'assistant', content: [THINKING, { type: 'text', text: 'Yes' }] },
        USER,
      ],
    },
    THOUGHT,
  ],
  ['reasoning items', '/v1/responses', { input: [USER, REASONING, SAID, USER] }, THOUGHT],
  [
    'the reasoning of calls',
    '/v1/responses',
    { input: [USER, REASONING, CALL, OUTPUT] },
    { ...THOUGHT, content: '', ...CALLED },
  ],
  [
    'reasoning between a text and its calls',
    '/v1/responses',
    { input: [USER, REASONING, SAID, REASONING, CALL, OUTPUT] },
    { ...THOUGHT, reasoning: 'Hm.\nHm.', ...CALLED },
  ],
])('passes %s of an answer to the chat template (%s)', async (_title, url, fields, expected) => {
  const response = await surface.post(url, { model: 'tiny-chat', ...fields })
  expect(response.statusCode, response.body).toBe(200)
  const [prompt] = surface.submitter.input.prompts
  expect(prompt?.form === 'chat' && prompt.messages[1]).toEqual(expected)
})

it('drops reasoning that no answer follows', async () => {
  await surface.post('/v1/responses', { model: 'tiny-chat', input: [USER, REASONING, USER] })
  expect(surface.submitter.input.prompts).toMatchObject([{ messages: [USER, USER] }])
})

// The settings that an agent of openai-agents has when its user sets none, for each generation of
// models.
it.each(['none', 'minimal', 'low', 'medium'])(
  'takes the defaults of agents: %s',
  async (effort) => {
    const response = await surface.post('/v1/responses', {
      model: 'tiny-chat',
      input: [{ role: 'user', content: 'Hi' }],
      instructions: 'Help.',
      tools: [],
      include: [],
      parallel_tool_calls: null,
      stream: false,
      reasoning: { effort, summary: null },
      text: { verbosity: 'low' },
      tool_choice: 'auto',
      truncation: null,
      metadata: null,
      store: null,
      prompt: null,
      previous_response_id: null,
      conversation: null,
      top_logprobs: null,
      temperature: null,
    })
    expect(response.statusCode, response.body).toBe(200)
  },
)
