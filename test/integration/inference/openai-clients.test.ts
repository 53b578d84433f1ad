import OpenAI from 'openai'
import { Configuration, OpenAIApi } from 'openai-3'
import OpenAI4 from 'openai-4'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { API_KEY, serveSurface, speak } from '#test/unit/api/inference/surface.ts'

const MODEL = 'tiny-chat'
const MESSAGES = [{ role: 'user' as const, content: 'Say hello' }]
const TOOLS = [{ type: 'function' as const, function: { name: 'add' } }]
const PIECES = ['Hel', 'lo', ' wörld', ' 😀']
const TEXT = PIECES.join('')

let served: Awaited<ReturnType<typeof serveSurface>>
let surface: (typeof served)['surface']
let baseURL = ''

beforeAll(async () => {
  served = await serveSurface()
  ;({ surface, baseURL } = served)
})
afterAll(() => served.close())

function say(pieces: readonly string[]): void {
  surface.submitter.script = ({ input }) => speak(input as GenerateInput, pieces)
}

// Both speak the same calls; their types are near enough for what is used here.
describe.each([
  ['7', () => new OpenAI({ baseURL, apiKey: API_KEY })],
  ['4', () => new OpenAI4({ baseURL, apiKey: API_KEY }) as unknown as OpenAI],
])('the official client, version %s', (version, open) => {
  const errors = version === '7' ? OpenAI : (OpenAI4 as unknown as typeof OpenAI)

  it('lists and shows models', async () => {
    const ids: string[] = []
    for await (const model of open().models.list()) ids.push(model.id)
    expect(ids).toContain(MODEL)
    expect(await open().models.retrieve('org/base:v1')).toMatchObject({ object: 'model' })
  })

  it('completes a text, plainly and in a stream, to the same words', async () => {
    say(PIECES)
    const request = { model: MODEL, prompt: 'Say hello', temperature: 0 }
    const plain = await open().completions.create(request)
    expect(plain.choices[0]).toMatchObject({ text: TEXT, finish_reason: 'stop' })
    expect(plain._request_id).toMatch(/^req_/)
    let streamed = ''
    for await (const chunk of await open().completions.create({ ...request, stream: true })) {
      streamed += chunk.choices[0]?.text ?? ''
    }
    expect(streamed).toBe(TEXT)
  })

  it('chats, plainly and in a stream with usage', async () => {
    say(PIECES)
    const request = { model: MODEL, messages: MESSAGES }
    const plain = await open().chat.completions.create(request)
    expect(plain.choices[0]?.message).toMatchObject({ role: 'assistant', content: TEXT })
    const stream = await open().chat.completions.create({
      ...request,
      stream: true,
      stream_options: { include_usage: true },
    })
    let streamed = ''
    const reasons: unknown[] = []
    let total = 0
    for await (const chunk of stream) {
      streamed += chunk.choices[0]?.delta.content ?? ''
      if (chunk.choices[0]?.finish_reason) reasons.push(chunk.choices[0].finish_reason)
      total += chunk.usage?.total_tokens ?? 0
    }
    expect({ streamed, reasons, total }).toEqual({
      streamed: TEXT,
      reasons: ['stop'],
      total: plain.usage?.total_tokens,
    })
  })

  it('gathers the calls of a streamed chat', async () => {
    say(['<tool_call>\n{"name": "add", ', '"arguments": {"a": ', '1}}\n</tool_call>'])
    const stream = await open().chat.completions.create({
      model: MODEL,
      messages: MESSAGES,
      tools: TOOLS,
      stream: true,
    })
    let call = { id: '', name: '', arguments: '' }
    let reason: unknown
    for await (const { choices } of stream) {
      const piece = choices[0]?.delta.tool_calls?.[0]
      call = {
        id: call.id + (piece?.id ?? ''),
        name: call.name + (piece?.function?.name ?? ''),
        arguments: call.arguments + (piece?.function?.arguments ?? ''),
      }
      reason = choices[0]?.finish_reason ?? reason
    }
    expect(call).toEqual({
      id: expect.stringMatching(/^call_\w{24}$/),
      name: 'add',
      arguments: '{"a": 1}',
    })
    expect(reason).toBe('tool_calls')
  })

  it('raises the classes that its users catch', async () => {
    say(PIECES)
    const ask = (model: string, fields: object = {}) =>
      open().chat.completions.create({ model, messages: MESSAGES, ...fields })
    await expect(ask('nope')).rejects.toSatisfy(
      (error) => error instanceof errors.NotFoundError && error.code === 'model_not_found',
    )
    await expect(ask(MODEL, { temperature: 3 })).rejects.toSatisfy(
      (error) => error instanceof errors.BadRequestError && error.param === 'temperature',
    )
    const stranger = open().withOptions?.({ apiKey: 'wrong' }) ?? wrongClient(version)
    await expect(stranger.models.list()).rejects.toBeInstanceOf(errors.AuthenticationError)
  })

  it('raises the error of a stream that breaks, with its code', async () => {
    surface.submitter.script = async function* ({ input }) {
      const said = speak(input as GenerateInput, PIECES)
      yield said.next().value as never
      yield said.next().value as never
      throw failure.deadline('Too late.', { code: 'deadline_exceeded' })
    }
    const stream = await open().chat.completions.create({
      model: MODEL,
      messages: MESSAGES,
      stream: true,
    })
    let received = ''
    const listen = async () => {
      for await (const chunk of stream) received += chunk.choices[0]?.delta.content ?? ''
    }
    await expect(listen()).rejects.toMatchObject({ code: 'deadline_exceeded' })
    expect(received).toBe('Hel')
  })

  it('tries again after a 503, and not when trying cannot help', async () => {
    let attempts = 0
    surface.submitter.script = ({ input }) => {
      attempts += 1
      if (attempts === 1) throw failure.overloaded('Full.', { retryAfterSeconds: 0.01 })
      return speak(input as GenerateInput, PIECES)
    }
    const answer = await open().chat.completions.create({ model: MODEL, messages: MESSAGES })
    expect([attempts, answer.choices[0]?.message.content]).toEqual([2, TEXT])
    attempts = 0
    surface.submitter.script = () => {
      attempts += 1
      throw failure.rateLimited('No more.', { shouldRetry: false })
    }
    const hopeless = open().chat.completions.create({ model: MODEL, messages: MESSAGES })
    await expect(hopeless).rejects.toBeInstanceOf(errors.RateLimitError)
    expect(attempts).toBe(1)
  })

  it('cancels the job when its user breaks off', async () => {
    const before = surface.submitter.cancelled
    surface.submitter.script = async function* ({ input, signal }) {
      const said = speak(input as GenerateInput, PIECES)
      yield said.next().value as never
      yield said.next().value as never
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
    }
    const stream = await open().chat.completions.create({
      model: MODEL,
      messages: MESSAGES,
      stream: true,
    })
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break
    await expect.poll(() => surface.submitter.cancelled).toBe(before + 1)
  })
})

describe('the official client, version 3', () => {
  const open = (apiKey = API_KEY) => new OpenAIApi(new Configuration({ basePath: baseURL, apiKey }))

  it('lists and shows models and engines', async () => {
    const models = await open().listModels()
    expect(models.data.data.map(({ id }) => id)).toContain(MODEL)
    expect((await open().retrieveModel('org/base:v1')).data.id).toBe('org/base:v1')
    const engines = await open().listEngines()
    expect(engines.data.data[0]).toMatchObject({ object: 'engine', created: null, ready: false })
    expect((await open().retrieveEngine(MODEL)).data.id).toBe(MODEL)
  })

  it('completes, chats, and gives a stream to its user', async () => {
    say(PIECES)
    const completion = await open().createCompletion({ model: MODEL, prompt: 'Hi', suffix: null })
    expect(completion.data.choices[0]?.text).toBe(TEXT)
    const chat = await open().createChatCompletion({ model: MODEL, messages: MESSAGES })
    expect(chat.data.choices[0]?.message?.content).toBe(TEXT)
    const request = { model: MODEL, prompt: 'Hi', stream: true }
    const stream = await open().createCompletion(request, { responseType: 'stream' })
    let text = ''
    for await (const piece of stream.data as unknown as AsyncIterable<Buffer>) text += piece
    expect(text.trimEnd().endsWith('data: [DONE]')).toBe(true)
  })

  it('shows the error in the body of its answer', async () => {
    await expect(open().createCompletion({ model: 'nope' })).rejects.toMatchObject({
      response: { status: 404, data: { error: { code: 'model_not_found', param: null } } },
    })
    await expect(open('wrong').listModels()).rejects.toMatchObject({
      response: { status: 401, data: { error: { code: 'invalid_api_key' } } },
    })
  })
})

function wrongClient(version: string): OpenAI {
  const options = { baseURL, apiKey: 'wrong' }
  return version === '7' ? new OpenAI(options) : (new OpenAI4(options) as unknown as OpenAI)
}
