import OpenAI from 'openai'
import type { Response, ResponseInputItem } from 'openai/resources/responses/responses'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openRealService, type RealService } from './real-service.ts'

const MODEL = 'tiny-chat'
const PARAMETERS = {
  type: 'object',
  properties: { a: { type: 'integer' } },
  required: ['a'],
  additionalProperties: false,
}
const ADD = { type: 'function', name: 'add', parameters: PARAMETERS, strict: true } as const

let service: RealService
let client: OpenAI
beforeAll(async () => {
  service = await openRealService()
  client = new OpenAI({ baseURL: service.baseURL, apiKey: service.apiKey, maxRetries: 0 })
})
afterAll(() => service.close())

describe('a response of the model that ships', () => {
  const request = { model: MODEL, input: 'What is 2 plus 3?', temperature: 0 }

  it('has the text of a chat, plainly, in a stream and through the helper', async () => {
    const plain = await client.responses.create({ ...request, max_output_tokens: 24 })
    const { choices, usage } = await client.chat.completions.create({
      model: MODEL,
      messages: [{ role: 'user', content: request.input }],
      temperature: 0,
      max_completion_tokens: 24,
    })
    expect(plain.output_text).toBe(choices[0]?.message.content)
    expect(plain.output_text).not.toBe('')
    expect(plain.usage).toMatchObject({
      input_tokens: usage?.prompt_tokens,
      output_tokens: usage?.completion_tokens,
    })
    const stream = client.responses.stream({ ...request, max_output_tokens: 24 })
    expect((await stream.finalResponse()).output_text).toBe(plain.output_text)
  })

  it('is incomplete if it reaches its token limit', async () => {
    const long = { ...request, input: 'Tell me a story.', max_output_tokens: 4 }
    for (const answer of [
      await client.responses.create(long),
      await client.responses.stream(long).finalResponse(),
    ]) {
      expect(answer).toMatchObject({
        status: 'incomplete',
        incomplete_details: { reason: 'max_output_tokens' },
        usage: { output_tokens: 4 },
      })
    }
  })

  it('fits the requested schema', async () => {
    const format = { type: 'json_schema', name: 'x', schema: PARAMETERS, strict: true } as const
    const asked = { ...request, text: { format } }
    const parsed = await client.responses.parse(asked)
    expect(parsed.output_parsed).toEqual({ a: expect.any(Number) })
    const streamed = await client.responses.stream(asked).finalResponse()
    expect(streamed.output_parsed).toEqual(parsed.output_parsed)
  })

  it('calls a tool and continues with its output', async () => {
    const tools = [{ ...ADD }]
    const asked = { ...request, tools, tool_choice: 'required' as const, max_output_tokens: 100 }
    const first = await client.responses.create(asked)
    const call = first.output.find((item) => item.type === 'function_call')
    if (call === undefined) throw new Error('no function was called')
    expect(JSON.parse(call.arguments)).toEqual({ a: expect.any(Number) })
    const { input_tokens: count } = await client.responses.inputTokens.count({
      model: MODEL,
      input: request.input,
      tools,
      tool_choice: 'required',
    })
    expect(count).toBe(first.usage?.input_tokens)
    const streamed = await client.responses.stream(asked).finalResponse()
    const strip = ({ output }: Pick<Response, 'output'>) =>
      output.map((item) => (item.type === 'function_call' ? item.arguments : item.type))
    expect(strip(streamed)).toEqual(strip(first))
    const input: ResponseInputItem[] = [
      { role: 'user', content: request.input },
      ...(first.output as ResponseInputItem[]),
      { type: 'function_call_output', call_id: call.call_id, output: '5' },
    ]
    const second = await client.responses.create({ ...request, input, tools, tool_choice: 'none' })
    expect(second.output).toMatchObject([{ type: 'message', status: 'completed' }])
    expect(second.output_text).not.toBe('')
  })

  it('calls a custom tool with an input that matches its regular expression', async () => {
    const grammar = { syntax: 'regex', definition: '(add|sub)\\("\\d{1,3}"\\)\n' } as const
    const format = { type: 'grammar', ...grammar } as const
    const tools = [{ ...ADD }, { type: 'custom' as const, name: 'run', format }]
    const asked = {
      ...request,
      tools,
      tool_choice: { type: 'custom', name: 'run' } as const,
      max_output_tokens: 100,
    }
    const inputOf = ({ output }: Pick<Response, 'output'>) =>
      output.find((item) => item.type === 'custom_tool_call')?.input
    const first = await client.responses.create(asked)
    const input = inputOf(first)
    expect(input).toMatch(/^(add|sub)\("\d{1,3}"\)\n$/)
    expect(inputOf(await client.responses.stream(asked).finalResponse())).toBe(input)
    const chat = await client.chat.completions.create({
      model: MODEL,
      messages: [{ role: 'user', content: request.input }],
      temperature: 0,
      tool_choice: { type: 'custom', custom: { name: 'run' } },
      tools: [
        { type: 'function', function: { name: 'add', parameters: PARAMETERS, strict: true } },
        { type: 'custom', custom: { name: 'run', format: { type: 'grammar', grammar } } },
      ].map((tool) => tool as OpenAI.ChatCompletionTool),
    })
    expect(chat.choices[0]?.message.tool_calls).toMatchObject([
      { type: 'custom', custom: { name: 'run', input } },
    ])
    const next = await client.responses.create({
      ...request,
      tools,
      tool_choice: 'none',
      input: [
        { role: 'user', content: request.input },
        ...(first.output as ResponseInputItem[]),
        ...first.output.flatMap((item): ResponseInputItem[] =>
          item.type === 'custom_tool_call'
            ? [{ type: 'custom_tool_call_output', call_id: item.call_id, output: '5' }]
            : [],
        ),
      ],
    })
    expect(next.output_text).not.toBe('')
  })

  it('calls a custom tool with an input that follows its grammar in Lark', async () => {
    const definition =
      'start: "*** " NAME LF LINE~2\nNAME: /[a-z]{1,9}/\nLINE: "+" NAME LF\n%import common.LF'
    const tools = [
      {
        type: 'custom',
        name: 'run',
        format: { type: 'grammar', syntax: 'lark', definition },
      } as const,
    ]
    const { output } = await client.responses.create({
      ...request,
      tools,
      tool_choice: 'required',
      max_output_tokens: 100,
    })
    expect(output).toMatchObject([
      {
        type: 'custom_tool_call',
        input: expect.stringMatching(/^\*\*\* [a-z]+\n(\+[a-z]+\n){2}$/),
      },
    ])
  })

  it.each([
    ['regex', '(?=a)b', 'look-around is not supported'],
    ['lark', 'start: "a"\n%ignore " "', "in line 2, only '%import common.NAME' is supported"],
  ] as const)('names the %s that cannot be enforced', async (syntax, definition, reason) => {
    const format = { type: 'grammar', syntax, definition } as const
    const asked = client.responses.create({
      ...request,
      tools: [ADD, { type: 'custom', name: 'run', format }],
    })
    await expect(asked).rejects.toMatchObject({
      status: 400,
      param: 'tools[1].format.definition',
      message: expect.stringContaining(reason),
    })
  })

  it('refuses the grammar of a custom tool whose rule begins with itself', async () => {
    const definition = 'start: start "+1" | "1"'
    const format = { type: 'grammar', syntax: 'lark', definition } as const
    for (const tool_choice of ['auto', 'required'] as const) {
      const asked = { ...request, tools: [{ type: 'custom', name: 'run', format } as const] }
      await expect(client.responses.create({ ...asked, tool_choice })).rejects.toMatchObject({
        status: 400,
        param: 'tools',
        message: expect.stringContaining('no rule may begin with itself'),
      })
    }
  })

  it('spells its tokens out when asked', async () => {
    const { output } = await client.responses.create({
      ...request,
      max_output_tokens: 8,
      top_logprobs: 2,
      include: ['message.output_text.logprobs'],
    })
    const [part] = output[0]?.type === 'message' ? output[0].content : []
    if (part?.type !== 'output_text') throw new Error('nothing was said')
    expect(part.logprobs?.map(({ token }) => token).join('')).toBe(part.text)
    expect(part.logprobs?.every(({ top_logprobs }) => top_logprobs.length === 2)).toBe(true)
  })

  it('is refused with the name of its own field if its input is too long', async () => {
    for (const stream of [false, true]) {
      const asked = client.responses.create({ ...request, input: 'word '.repeat(9999), stream })
      await expect(asked).rejects.toMatchObject({
        status: 400,
        code: 'context_length_exceeded',
        param: 'input',
      })
    }
  })

  it('frees the engine when its client disconnects', async () => {
    const leaving = new AbortController()
    const schema = { type: 'array', items: { type: 'integer' }, minItems: 300 }
    const format = { type: 'json_schema', name: 'long', schema } as const
    const asked = client.responses
      .create({ ...request, text: { format } }, { signal: leaving.signal })
      .catch(() => {})
    await expect.poll(() => service.numBusy()).toBe(1)
    leaving.abort()
    await asked
    await expect.poll(() => service.numBusy()).toBe(0)
  })
})
