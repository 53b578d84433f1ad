import OpenAI from 'openai'
import { ResponsesToolRunner } from 'openai/helpers/responses-tool-runner'
import OpenAI4 from 'openai-4'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { API_KEY, serveSurface, speak } from '#test/unit/api/inference/surface.ts'

const MODEL = 'tiny-chat'
const PIECES = ['Hel', 'lo', ' wörld', ' 😀']
const TEXT = PIECES.join('')
const CALL = ['Sure.\n<tool_call>\n{"name": "add", ', '"arguments": {"a": ', '1}}\n</tool_call>']
const PARAMETERS = {
  type: 'object',
  properties: { a: { type: 'integer' } },
  required: ['a'],
  additionalProperties: false,
}
const ADD = { type: 'function', name: 'add', parameters: PARAMETERS, strict: true } as const

let served: Awaited<ReturnType<typeof serveSurface>>
let surface: (typeof served)['surface']
let baseURL = ''

beforeAll(async () => {
  served = await serveSurface()
  ;({ surface, baseURL } = served)
})
afterAll(() => served.close())

interface ParsedCall {
  readonly arguments: string
  readonly parsed_arguments: unknown
}

/** Sets the replies of the workers, request by request. */
function say(...answers: (readonly string[])[]): void {
  const left = [...answers]
  surface.submitter.script = ({ input }) => {
    const pieces = left.length > 1 ? (left.shift() as string[]) : (left[0] as string[])
    return speak(input as GenerateInput, pieces)
  }
}

// Both speak the same calls; their types are near enough for what is used here.
describe.each([
  ['7', () => new OpenAI({ baseURL, apiKey: API_KEY, maxRetries: 0 })],
  ['4', () => new OpenAI4({ baseURL, apiKey: API_KEY, maxRetries: 0 }) as unknown as OpenAI],
])('the official client, version %s, asks for a response', (version, open) => {
  const errors = version === '7' ? OpenAI : (OpenAI4 as unknown as typeof OpenAI)

  it('plainly, in a stream and through its helper, and gets the same text', async () => {
    say(PIECES)
    const request = { model: MODEL, input: 'Say hello', instructions: 'Be kind.' }
    const plain = await open().responses.create(request)
    expect(plain).toMatchObject({ output_text: TEXT, status: 'completed' })
    expect(plain._request_id).toMatch(/^req_/)
    let streamed = ''
    for await (const event of await open().responses.create({ ...request, stream: true })) {
      if (event.type === 'response.output_text.delta') streamed += event.delta
    }
    const helper = open().responses.stream(request)
    const snapshots: string[] = []
    helper.on('response.output_text.delta', ({ snapshot }) => snapshots.push(snapshot))
    const final = await helper.finalResponse()
    expect([streamed, snapshots.at(-1)]).toEqual([TEXT, TEXT])
    expect(final.output).toMatchObject([{ type: 'message', content: [{ text: TEXT }] }])
    expect(final.usage).toEqual(plain.usage)
  })

  it('and reads calls and structures by itself', async () => {
    say(CALL)
    const request = { model: MODEL, input: 'Add.', tools: [{ ...ADD }] }
    const plain = await open().responses.parse(request)
    const streamed = await open().responses.stream(request).finalResponse()
    for (const { output } of [plain, streamed]) {
      expect(output[0]).toMatchObject({ type: 'message', content: [{ text: 'Sure.' }] })
      expect(output[1]).toMatchObject({ type: 'function_call', name: 'add', status: 'completed' })
      const { arguments: text, parsed_arguments: parsed } = output[1] as ParsedCall
      expect(text).toBe('{"a": 1}')
      // Version 4 leaves the parsing to its user here.
      if (version === '7') expect(parsed).toEqual({ a: 1 })
    }
    say(['{"a"', ': 2}'])
    const format = { type: 'json_schema', name: 'x', schema: PARAMETERS, strict: true } as const
    const structure = { model: MODEL, input: 'Add.', text: { format } }
    const parsed = await open().responses.parse(structure)
    expect(parsed.output_parsed).toEqual({ a: 2 })
    const helped = await open().responses.stream(structure).finalResponse()
    expect(helped.output).toMatchObject([{ content: [{ text: '{"a": 2}' }] }])
    if (version === '7') expect(helped.output_parsed).toEqual({ a: 2 })
  })

  it('and receives an error with the name of the field', async () => {
    say(PIECES)
    const ask = (fields: object) =>
      open().responses.create({ model: MODEL, input: 'Hi', ...fields } as never)
    await expect(ask({ model: 'nope' })).rejects.toSatisfy(
      (error) => error instanceof errors.NotFoundError && error.code === 'model_not_found',
    )
    await expect(ask({ previous_response_id: 'resp_1' })).rejects.toSatisfy(
      (error) => error instanceof errors.BadRequestError && error.param === 'previous_response_id',
    )
    await expect(open().responses.retrieve('resp_1')).rejects.toBeInstanceOf(errors.NotFoundError)
  })

  it('and throws the error of a broken stream after all of its text', async () => {
    surface.submitter.script = async function* ({ input }) {
      const said = speak(input as GenerateInput, PIECES)
      yield said.next().value as never
      yield said.next().value as never
      throw failure.deadline('Too late.', { code: 'request_timeout' })
    }
    const request = { model: MODEL, input: 'Hi' }
    const types: string[] = []
    const listen = async () => {
      for await (const { type } of await open().responses.create({ ...request, stream: true })) {
        types.push(type)
      }
    }
    await expect(listen()).rejects.toMatchObject({ code: 'request_timeout' })
    expect(types.slice(-2)).toEqual(['response.output_text.delta', 'response.failed'])
    const helped = open().responses.stream(request).finalResponse()
    await expect(helped).rejects.toThrow('Too late.')
  })

  it('and cancels its job by closing the stream', async () => {
    const before = surface.submitter.cancelled
    surface.submitter.script = async function* ({ input, signal }) {
      const said = speak(input as GenerateInput, PIECES)
      yield said.next().value as never
      yield said.next().value as never
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
    }
    const stream = await open().responses.create({ model: MODEL, input: 'Hi', stream: true })
    for await (const event of stream) if (event.type === 'response.output_text.delta') break
    await expect.poll(() => surface.submitter.cancelled).toBe(before + 1)
  })
})

describe('the tool runner of the official client', () => {
  it.each([
    ['plain answers', {}],
    ['streams', { stream: true }],
    ['streams, before they end', { stream: true, eager: true }],
  ])('runs its tools until there is nothing to call, by %s', async (_title, options) => {
    say(CALL, PIECES)
    const called: unknown[] = []
    const execute = async (args: Record<string, unknown>) => {
      called.push(args)
      return '2'
    }
    const runner = new ResponsesToolRunner({ functions: [{ tool: { ...ADD }, execute }] })
    const client = new OpenAI({ baseURL, apiKey: API_KEY, maxRetries: 0 })
    const request = { model: MODEL, input: [{ role: 'user' as const, content: 'Add.' }] }
    const final = await runner.run(client, request, options)
    expect(called).toEqual([{ a: 1 }])
    expect(final).toMatchObject({ output_text: TEXT })
    const toolCalls = [{ name: 'add', arguments: '{"a": 1}' }]
    const messages = [
      { role: 'user', content: 'Add.' },
      { role: 'assistant', content: 'Sure.', toolCalls },
      { role: 'tool', content: '2' },
    ]
    expect(surface.submitter.input.prompts).toMatchObject([{ form: 'chat', messages }])
  })
})
