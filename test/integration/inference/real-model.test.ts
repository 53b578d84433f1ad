import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openRealService, type RealService } from './real-service.ts'

const MODEL = 'tiny-chat'
const MESSAGES = [{ role: 'user' as const, content: 'What is 2 plus 3?' }]

let service: RealService
let client: OpenAI
beforeAll(async () => {
  service = await openRealService()
  client = new OpenAI({ baseURL: service.baseURL, apiKey: service.apiKey, maxRetries: 0 })
})
afterAll(() => service.close())

describe('the way from a socket to the model that ships, and back', () => {
  it('streams the text of a plain answer, for completions and chats', async () => {
    const chat = { model: MODEL, messages: MESSAGES, temperature: 0, max_tokens: 24 }
    const plain = await client.chat.completions.create(chat)
    let received = ''
    for await (const chunk of await client.chat.completions.create({ ...chat, stream: true })) {
      received += chunk.choices[0]?.delta.content ?? ''
    }
    expect(received).toBe(plain.choices[0]?.message.content)
    expect(received).not.toBe('')
    const text = { model: MODEL, prompt: 'The sun is', temperature: 1, seed: 5, max_tokens: 24 }
    const completion = await client.completions.create(text)
    let said = ''
    for await (const chunk of await client.completions.create({ ...text, stream: true })) {
      said += chunk.choices[0]?.text ?? ''
    }
    expect(said).toBe(completion.choices[0]?.text)
  })

  it('answers several conversations in one request as it answers each', async () => {
    const chat = { model: MODEL, temperature: 0, max_tokens: 16 }
    const other = [{ role: 'user' as const, content: 'What is the plural of box?' }]
    const [one, two] = await Promise.all(
      [MESSAGES, other].map((messages) => client.chat.completions.create({ ...chat, messages })),
    )
    const both = await client.post<OpenAI.ChatCompletion>('/chat/completions/batch', {
      body: { ...chat, messages: [MESSAGES, other] },
    })
    expect(both.choices.map(({ message }) => message.content)).toEqual([
      one?.choices[0]?.message.content,
      two?.choices[0]?.message.content,
    ])
    const tokens = (one?.usage?.total_tokens ?? 0) + (two?.usage?.total_tokens ?? 0)
    expect(both.usage?.total_tokens).toBe(tokens)
  })

  it('answers with an adapter of the catalogue under its own name, beside the base', async () => {
    const { data } = await client.models.list()
    expect(data).toMatchObject([
      { id: MODEL, parent: null },
      { id: 'tiny-chat-tuned', parent: MODEL, aliases: ['tuned'] },
    ])
    const names = [MODEL, 'tiny-chat-tuned', MODEL, 'tuned']
    const chat = { messages: MESSAGES, temperature: 0, max_tokens: 24 }
    const answers = await Promise.all(
      names.map((model) => client.chat.completions.create({ ...chat, model })),
    )
    expect(answers.map(({ model }) => model)).toEqual(
      names.map((name) => (name === MODEL ? MODEL : 'tiny-chat-tuned')),
    )
    const [base, tuned, again, alias] = answers.map(({ choices, system_fingerprint }) => {
      return { text: choices[0]?.message.content, system_fingerprint }
    })
    expect(tuned?.text).not.toBe(base?.text)
    expect(tuned?.system_fingerprint).not.toBe(base?.system_fingerprint)
    expect([again, alias]).toEqual([base, tuned])
  })

  it('keeps the offsets and sums of an echoed and scored prompt', async () => {
    const { choices, usage } = await client.completions.create({
      model: MODEL,
      prompt: 'The sun is warm.',
      max_tokens: 0,
      echo: true,
      logprobs: 1,
    })
    const logprobs = choices[0]?.logprobs
    const tokens = logprobs?.tokens ?? []
    expect(tokens.join('')).toBe('The sun is warm.')
    expect(logprobs?.token_logprobs?.[0]).toBeNull()
    let offset = 0
    const offsets = tokens.map((token) => {
      offset += token.length
      return offset - token.length
    })
    expect(logprobs?.text_offset).toEqual(offsets)
    expect(usage).toMatchObject({ prompt_tokens: tokens.length, completion_tokens: 0 })
    expect(choices[0]?.finish_reason).toBe('length')
  })

  it('spells the log-probabilities of a chat so that they make up its content', async () => {
    const { choices } = await client.chat.completions.create({
      model: MODEL,
      messages: MESSAGES,
      temperature: 0,
      max_tokens: 8,
      logprobs: true,
      top_logprobs: 2,
    })
    const entries = choices[0]?.logprobs?.content ?? []
    expect(entries.map(({ token }) => token).join('')).toBe(choices[0]?.message.content)
    expect(entries.every(({ top_logprobs }) => top_logprobs.length === 2)).toBe(true)
  })

  it('makes the call that was demanded, with arguments that are JSON', async () => {
    const parameters = { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] }
    const request = {
      model: MODEL,
      messages: MESSAGES,
      tools: [{ type: 'function' as const, function: { name: 'add', parameters } }],
      tool_choice: 'required' as const,
      max_tokens: 100,
      temperature: 0,
    }
    const { choices } = await client.chat.completions.create(request)
    const [call] = choices[0]?.message.tool_calls ?? []
    expect(choices[0]?.finish_reason).toBe('tool_calls')
    if (call?.type !== 'function') throw new Error('no function was called')
    expect(call.function.name).toBe('add')
    expect(JSON.parse(call.function.arguments)).toEqual({ a: expect.any(Number) })
    let streamed = ''
    for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
      streamed += chunk.choices[0]?.delta.tool_calls?.[0]?.function?.arguments ?? ''
    }
    expect(streamed).toBe(call.function.arguments)
  })

  it('answers refusals of the worker with an ordinary error, streamed or not', async () => {
    for (const stream of [false, true]) {
      const asked = client.completions.create({
        model: MODEL,
        prompt: 'Hi '.repeat(99_999),
        max_tokens: 9,
        stream,
      })
      await expect(asked).rejects.toMatchObject({
        status: 400,
        code: 'context_length_exceeded',
        message: expect.stringMatching(/maximum context length is \d+ tokens/),
      })
    }
  })

  it('reports the engine as ready, and frees it when a client disconnects', async () => {
    const response = await fetch(`${service.baseURL}/engines/${MODEL}`, {
      headers: { authorization: `Bearer ${service.apiKey}` },
    })
    expect(await response.json()).toMatchObject({ ready: true })
    const leaving = new AbortController()
    const asked = client.completions
      .create({ model: MODEL, prompt: 'a', max_tokens: 900, n: 4 }, { signal: leaving.signal })
      .catch(() => {})
    await expect.poll(() => service.numBusy()).toBe(1)
    leaving.abort()
    await asked
    await expect.poll(() => service.numBusy()).toBe(0)
  })
})
