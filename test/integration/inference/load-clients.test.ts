import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openRealService, type RealService } from './real-service.ts'

const MODEL = 'tiny-chat'
const CHAT = { model: MODEL, messages: [{ role: 'user', content: 'What is 2 plus 3?' }] }

interface Chunk {
  readonly choices: readonly { readonly text?: string; readonly delta?: { content?: string } }[]
  readonly usage?: { readonly completion_tokens: number; readonly total_tokens: number } | null
}

let service: RealService
beforeAll(async () => {
  service = await openRealService()
})
afterAll(() => service.close())

async function ask(path: string, body: object): Promise<Response> {
  const response = await fetch(`${service.baseURL}${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.apiKey}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify(body),
  })
  expect(response.status, await response.clone().text()).toBe(200)
  return response
}

async function chunksOf(path: string, body: object): Promise<Chunk[]> {
  const text = await (await ask(path, { ...body, stream: true })).text()
  expect(text.endsWith('data: [DONE]\n\n')).toBe(true)
  return text
    .split('\n\n')
    .filter((frame) => frame.startsWith('data: {'))
    .map((frame) => JSON.parse(frame.slice('data: '.length)) as Chunk)
}

// The bodies that vLLM's and SGLang's benchmarks, GuideLLM and AIPerf send.
describe.each([
  [
    'vllm bench, completions',
    '/completions',
    { prompt: 'Hello', max_tokens: 24, repetition_penalty: 1, logprobs: null, ignore_eos: true },
    { include_usage: true },
  ],
  [
    'vllm bench, chat',
    '/chat/completions',
    {
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }],
      max_completion_tokens: 24,
      ignore_eos: true,
    },
    { include_usage: true },
  ],
  [
    'sglang bench',
    '/completions',
    { prompt: 'Hello', temperature: 0, best_of: 1, max_tokens: 24, ignore_eos: true },
    { include_usage: true },
  ],
  [
    'guidellm',
    '/chat/completions',
    { ...CHAT, max_completion_tokens: 24, stop: null, ignore_eos: true },
    { include_usage: true, continuous_usage_stats: true },
  ],
  [
    'aiperf',
    '/chat/completions',
    { messages: [{ ...CHAT.messages[0], name: '' }], max_completion_tokens: 24, min_tokens: 24 },
    { include_usage: true },
  ],
] as const)('a load generator: %s', (_name, path, body, streamOptions) => {
  it('gets exactly the requested number of tokens, and the answer reports it', async () => {
    const request = { model: MODEL, ...body, stream_options: streamOptions }
    const chunks = await chunksOf(path, request)
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 24 } })
    const counts = chunks.flatMap(({ usage }) => usage?.completion_tokens ?? [])
    expect(counts).toEqual(counts.toSorted((a, b) => a - b))
    expect(counts.length === 1).toBe(!('continuous_usage_stats' in streamOptions))
  })
})

interface Answer {
  readonly choices: readonly { readonly text: string; readonly message: { content: string } }[]
  readonly usage: { readonly prompt_tokens: number }
}

async function answerOf(path: string, body: object): Promise<Answer> {
  return (await (await ask(path, body)).json()) as Answer
}

async function tokensOf(body: object): Promise<{ tokens: number[]; count: number }> {
  return (await (await ask('/tokenize', { model: MODEL, ...body })).json()) as never
}

describe('tokens', () => {
  it('are those that a prompt is charged for, and give the same answer as their text', async () => {
    const prompt = 'The sun is warm.'
    const { tokens, count } = await tokensOf({ prompt })
    expect(tokens).toHaveLength(count)
    const asked = { model: MODEL, temperature: 0, max_tokens: 8 }
    const asText = await answerOf('/completions', { ...asked, prompt })
    const asTokens = await answerOf('/completions', { ...asked, prompt: tokens })
    expect(asTokens.choices[0]?.text).toBe(asText.choices[0]?.text)
    expect(asTokens.usage.prompt_tokens).toBe(count)
    const back = await (await ask('/detokenize', { model: MODEL, tokens })).json()
    expect(back).toEqual({ prompt })
  })

  it('of a chat are as many as the chat is charged for', async () => {
    const { count } = await tokensOf(CHAT)
    const answered = await answerOf('/chat/completions', { ...CHAT, max_tokens: 1 })
    expect(answered.usage.prompt_tokens).toBe(count)
  })
})

describe('an answer that its client began', () => {
  it('continues where the client stopped, whether plain or streamed', async () => {
    const request = {
      model: MODEL,
      temperature: 0,
      max_tokens: 12,
      continue_final_message: true,
      messages: [...CHAT.messages, { role: 'assistant', content: '2 plus 3 is' }],
    }
    const plain = await answerOf('/chat/completions', request)
    const content = plain.choices[0]?.message.content
    expect(content).toMatch(/^ /)
    const streamed = await chunksOf('/chat/completions', request)
    expect(streamed.map(({ choices }) => choices[0]?.delta?.content ?? '').join('')).toBe(content)
  })
})
