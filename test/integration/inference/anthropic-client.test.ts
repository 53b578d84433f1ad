import Anthropic from '@anthropic-ai/sdk'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import {
  API_KEY,
  answering,
  CATALOGUE,
  openSurface,
  serveSurface,
  speak,
} from '#test/unit/api/inference/surface.ts'

const PIECES = ['Hel', 'lo', ' wörld', ' 😀']
const TEXT = PIECES.join('')
const CALL = ['Sure.\n<tool_call>\n{"name": "add", ', '"arguments": {"a": ', '1}}\n</tool_call>']
const TOOL: Anthropic.Tool = {
  name: 'add',
  description: 'Adds.',
  input_schema: { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] },
}
const USER = { role: 'user' as const, content: 'Say hello' }
const REQUEST = { model: 'tiny-chat', max_tokens: 100, messages: [USER] }

let served: Awaited<ReturnType<typeof serveSurface>>
let surface: (typeof served)['surface']
let client: Anthropic

beforeAll(async () => {
  served = await serveSurface(undefined, { unknownFields: 'ignore' })
  ;({ surface } = served)
  client = clientWith({})
})
afterAll(() => served.close())

function clientWith(options: { readonly apiKey?: string }): Anthropic {
  const baseURL = served.baseURL.replace(/\/v1$/, '')
  return new Anthropic({ baseURL, apiKey: API_KEY, maxRetries: 0, ...options })
}

/** Sets the replies of the workers, with the reason for which they end. */
function say(pieces: readonly string[], finishReason: 'stop' | 'length' = 'stop'): void {
  surface.submitter.script = ({ input }) => speak(input as GenerateInput, pieces, { finishReason })
}

function promptOf(input: GenerateInput = surface.submitter.input) {
  const [prompt] = input.prompts
  if (prompt?.form !== 'chat') throw new Error('the prompt is not a chat')
  return prompt
}

describe("Anthropic's client", () => {
  it('gets the same message plainly and in a stream, with a request id', async () => {
    say(PIECES)
    const request = { ...REQUEST, system: 'Be kind.', temperature: 0, top_k: 3 }
    const plain = await client.messages.create(request)
    expect(plain).toMatchObject({
      type: 'message',
      role: 'assistant',
      model: 'tiny-chat',
      content: [{ type: 'text', text: TEXT }],
      stop_reason: 'end_turn',
      stop_sequence: null,
      usage: { input_tokens: 3, cache_read_input_tokens: 2, output_tokens: 4 },
    })
    // The Vercel AI SDK refuses a block with "citations": null.
    expect(plain.content).toEqual([{ type: 'text', text: TEXT }])
    expect(plain.id).toMatch(/^msg_/)
    expect(plain._request_id).toMatch(/^req_/)
    expect(surface.submitter.input).toMatchObject({
      maxTokens: 100,
      sampling: { temperature: 0, topK: 3 },
    })
    expect(promptOf().messages).toEqual([
      { role: 'system', content: 'Be kind.' },
      { role: 'user', content: 'Say hello' },
    ])
    const stream = client.messages.stream(request)
    const texts: string[] = []
    stream.on('text', (text) => texts.push(text))
    const streamed = await stream.finalMessage()
    expect(texts).toEqual(PIECES)
    expect({ ...streamed, id: plain.id, parsed_output: undefined }).toMatchObject({
      content: [{ type: 'text', text: TEXT }],
      stop_reason: 'end_turn',
      usage: plain.usage,
    })
  })

  it('sends the events in their order', async () => {
    say(['Hi'])
    const types: string[] = []
    const stream = await client.messages.create({ ...REQUEST, stream: true })
    for await (const event of stream) types.push(event.type)
    expect(types).toEqual([
      'message_start',
      'content_block_start',
      'content_block_delta',
      'content_block_stop',
      'message_delta',
      'message_stop',
    ])
  })

  it.each([false, true])('calls a tool and reads its result (stream: %s)', async (isStream) => {
    say(CALL)
    const request = { ...REQUEST, tools: [TOOL] }
    const first = isStream
      ? await client.messages.stream(request).finalMessage()
      : await client.messages.create(request)
    expect(first.stop_reason).toBe('tool_use')
    expect(first.content).toMatchObject([
      { type: 'text', text: 'Sure.' },
      { type: 'tool_use', id: expect.stringMatching(/^toolu_/), name: 'add', input: { a: 1 } },
    ])
    const call = first.content[1] as Anthropic.ToolUseBlock
    say(['2'])
    const failed: Anthropic.ToolResultBlockParam = {
      type: 'tool_result',
      tool_use_id: call.id,
      content: [{ type: 'text', text: 'no' }],
      is_error: true,
    }
    const second = await client.messages.create({
      ...request,
      messages: [
        USER,
        { role: 'assistant', content: first.content },
        { role: 'user', content: [failed, { type: 'text', text: 'Go on.' }] },
      ],
    })
    expect(second.content).toMatchObject([{ type: 'text', text: '2' }])
    const toolCalls = [{ id: call.id, name: 'add', arguments: '{"a":1}' }]
    expect(promptOf().messages).toEqual([
      USER,
      { role: 'assistant', content: 'Sure.', toolCalls },
      { role: 'tool', toolCallId: call.id, content: 'Error: no' },
      { role: 'user', content: 'Go on.' },
    ])
  })

  it.each<[Anthropic.ToolChoice, unknown]>([
    [{ type: 'auto' }, 'auto'],
    [{ type: 'any' }, 'required'],
    [{ type: 'none' }, 'none'],
    [{ type: 'tool', name: 'add' }, { name: 'add' }],
  ])('passes the tool choice %j on', async (choice, expected) => {
    say(['x'])
    await client.messages.create({ ...REQUEST, tools: [TOOL], tool_choice: choice })
    expect(promptOf().toolChoice).toEqual(expected)
  })

  it.each([false, true])('names the stop sequence that it met (stream: %s)', async (isStream) => {
    say(['One', ' two', ' END'])
    const request = { ...REQUEST, stop_sequences: ['STOP', ' END'] }
    const message = isStream
      ? await client.messages.stream(request).finalMessage()
      : await client.messages.create(request)
    expect(message).toMatchObject({
      content: [{ type: 'text', text: 'One two' }],
      stop_reason: 'stop_sequence',
      stop_sequence: ' END',
    })
    expect(surface.submitter.input).toMatchObject({
      stop: ['STOP', ' END'],
      ending: { keepsStopString: true },
    })
  })

  it('reports that the answer reached its length limit', async () => {
    say(['One'], 'length')
    expect(await client.messages.create(REQUEST)).toMatchObject({ stop_reason: 'max_tokens' })
  })

  it.each([false, true])('shows reasoning as a thinking block (stream: %s)', async (isStream) => {
    say(['<th', 'ink>\nLet me ', 'see.\n</thi', 'nk>\n\nHel', 'lo'])
    const request = {
      ...REQUEST,
      max_tokens: 2000,
      thinking: { type: 'enabled' as const, budget_tokens: 1024 },
    }
    const message = isStream
      ? await client.messages.stream(request).finalMessage()
      : await client.messages.create(request)
    expect(message.content).toMatchObject([
      { type: 'thinking', thinking: 'Let me see.', signature: '' },
      { type: 'text', text: 'Hello' },
    ])
    say(['x'])
    await client.messages.create({
      ...REQUEST,
      messages: [USER, { role: 'assistant', content: message.content }, USER],
    })
    expect(promptOf().messages[1]).toMatchObject({ content: 'Hello', reasoning: 'Let me see.' })
  })

  it('merges consecutive messages and system blocks, and continues a last answer', async () => {
    say(['x'])
    const cached = { type: 'text' as const, cache_control: { type: 'ephemeral' as const } }
    const { response } = await client.messages
      .create({
        ...REQUEST,
        system: [
          { ...cached, text: 'A' },
          { type: 'text', text: 'B' },
        ],
        messages: [USER, USER, { role: 'assistant', content: 'Well,' }],
      })
      .withResponse()
    expect(response.headers.get('x-millrace-ignored-parameters')).toBeNull()
    expect(promptOf()).toMatchObject({
      messages: [
        { role: 'system', content: 'A\nB' },
        { role: 'user', content: 'Say hello\n\nSay hello' },
        { role: 'assistant', content: 'Well,' },
      ],
      template: { continuesLast: true },
    })
  })

  it('answers in the form of a JSON Schema', async () => {
    say(['{"a":1}'])
    const schema = { type: 'object', properties: { a: { type: 'integer' } } }
    await client.messages.create({
      ...REQUEST,
      output_config: { format: { type: 'json_schema', schema } },
    })
    expect(surface.submitter.input.responseFormat).toEqual({
      type: 'jsonSchema',
      schema,
      path: 'output_config.format.schema',
    })
  })

  it('counts tokens', async () => {
    surface.submitter.script = answering({
      task: 'tokenize',
      tokenIds: [1, 2, 3],
      contextLength: 10,
    })
    const counted = await client.messages.countTokens({
      model: 'tiny-chat',
      system: 'Be kind.',
      messages: [USER],
      tools: [TOOL],
    })
    expect(counted.input_tokens).toBe(3)
    expect(surface.submitter.requests.at(-1)?.input).toMatchObject({
      task: 'tokenize',
      addSpecialTokens: false,
      prompt: { form: 'chat', tools: [{ name: 'add' }] },
    })
  })

  it('lists and shows models, page by page', async () => {
    const ids: string[] = []
    for await (const model of client.models.list({ limit: 3 })) ids.push(model.id)
    expect(ids).toEqual(CATALOGUE.models.map(({ id }) => id))
    expect(await client.models.retrieve('tiny-chat')).toMatchObject({
      type: 'model',
      id: 'tiny-chat',
      created_at: '2023-11-14T22:13:20.000Z',
    })
    await expect(client.models.retrieve('absent')).rejects.toBeInstanceOf(Anthropic.NotFoundError)
  })

  it('ends the job when its stream is aborted', async () => {
    let release = (): void => {}
    surface.submitter.script = async function* ({ input, signal }) {
      const [started, delta] = [...speak(input as GenerateInput, ['a', 'b'])]
      if (started !== undefined) yield started
      if (delta !== undefined) yield delta
      await new Promise<void>((resolve) => {
        release = resolve
        signal.addEventListener('abort', () => resolve())
      })
    }
    const cancelled = surface.submitter.cancelled
    const stream = client.messages.stream(REQUEST)
    stream.on('text', () => stream.abort())
    await expect(stream.finalMessage()).rejects.toBeInstanceOf(Anthropic.APIUserAbortError)
    await expect.poll(() => surface.submitter.cancelled).toBe(cancelled + 1)
    release()
  })
})

describe('errors, as the client sorts them', () => {
  it.each<[string, () => Promise<unknown>, new (...args: never[]) => Error, string]>([
    [
      'a wrong key',
      () => clientWith({ apiKey: 'sk-wrong-0000000000000000' }).messages.create(REQUEST),
      Anthropic.AuthenticationError,
      'authentication_error',
    ],
    [
      'an unknown model',
      () => client.messages.create({ ...REQUEST, model: 'absent' }),
      Anthropic.NotFoundError,
      'not_found_error',
    ],
    [
      'no messages',
      () => client.messages.create({ ...REQUEST, messages: [] }),
      Anthropic.BadRequestError,
      'invalid_request_error',
    ],
    [
      'a call without a result',
      () =>
        client.messages.create({
          ...REQUEST,
          messages: [
            USER,
            { role: 'assistant', content: [{ type: 'tool_use', id: 'x', name: 'add', input: {} }] },
            USER,
          ],
        }),
      Anthropic.BadRequestError,
      'invalid_request_error',
    ],
    [
      'a result without a call',
      () =>
        client.messages.create({
          ...REQUEST,
          messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'x' }] }],
        }),
      Anthropic.BadRequestError,
      'invalid_request_error',
    ],
    [
      'an image, which no model here sees',
      () =>
        client.messages.create({
          ...REQUEST,
          messages: [
            {
              role: 'user',
              content: [{ type: 'image', source: { type: 'url', url: 'http://x/y.png' } }],
            },
          ],
        }),
      Anthropic.BadRequestError,
      'invalid_request_error',
    ],
    [
      'a tool that runs on the server',
      () =>
        client.messages.create({
          ...REQUEST,
          tools: [{ type: 'web_search_20250305', name: 'web_search' }],
        }),
      Anthropic.BadRequestError,
      'invalid_request_error',
    ],
  ])('%s', async (_case, ask, type, name) => {
    say(['x'])
    const error = await ask().then(
      () => undefined,
      (thrown: unknown) => thrown,
    )
    expect(error).toBeInstanceOf(type)
    expect(error).toMatchObject({ type: name, requestID: expect.stringMatching(/^req_/) })
  })

  it('answers 529 when too much work is waiting', async () => {
    surface.submitter.script = () => {
      throw failure.overloaded('Too much work is waiting.', { retryAfterSeconds: 2 })
    }
    const refusal = { status: 529, type: 'overloaded_error' }
    await expect(client.messages.create(REQUEST)).rejects.toMatchObject(refusal)
  })

  it('reports a failure in the middle of a stream', async () => {
    surface.submitter.script = function* ({ input }) {
      yield* [...speak(input as GenerateInput, ['a', 'b'])].slice(0, 2)
      throw failure.internal('Broken.')
    }
    const answer = client.messages.stream(REQUEST).finalMessage()
    await expect(answer).rejects.toMatchObject({ type: 'api_error' })
  })
})

it('accepts a key from x-api-key and api-key on every route', async () => {
  for (const header of ['x-api-key', 'api-key']) {
    const right = await fetch(`${served.baseURL}/models`, { headers: { [header]: API_KEY } })
    const wrong = await fetch(`${served.baseURL}/models`, { headers: { [header]: 'sk-wrong' } })
    expect([right.status, wrong.status]).toEqual([200, 401])
  }
})

it('is not served if it is switched off', async () => {
  const config = { deadlineSeconds: 600, dialectsOff: ['anthropic'] }
  const { app, post } = await openSurface(undefined, { config })
  const response = await post('/v1/messages', REQUEST)
  await app.close()
  expect(response.statusCode).toBe(404)
})
