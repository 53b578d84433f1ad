import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'

import { API_KEY, serveSurface, speak } from './surface.ts'

const MODEL = 'tiny-chat'
const CALL = '<tool_call>{"name": "agents__close", "arguments": {"id": 1}}</tool_call>'
const PLAIN_CALL = '<tool_call>{"name": "close", "arguments": {}}</tool_call>'
const SHELL_CALL = '<tool_call>{"name": "agents__shell", "arguments": {"input": "ls"}}</tool_call>'
const PIECES = `${CALL}\n${PLAIN_CALL}\n${SHELL_CALL}`.match(/.{1,3}/gsu) ?? []
const PARAMETERS = {
  type: 'object',
  properties: { id: { type: 'integer' } },
  required: ['id'],
  additionalProperties: false,
}
const TOOLS: OpenAI.Responses.Tool[] = [
  {
    type: 'namespace',
    name: 'agents',
    description: 'Other agents.',
    tools: [
      { type: 'function', name: 'close', parameters: PARAMETERS, strict: true },
      { type: 'custom', name: 'shell' },
    ],
  },
  { type: 'function', name: 'close', parameters: null, strict: false },
]

let served: Awaited<ReturnType<typeof serveSurface>>
let client: OpenAI
beforeAll(async () => {
  served = await serveSurface(({ input }) => speak(input as GenerateInput, PIECES))
  client = new OpenAI({ baseURL: served.baseURL, apiKey: API_KEY, maxRetries: 0 })
})
afterAll(() => served.close())

describe('tools of a namespace', () => {
  const asked = { model: MODEL, input: 'Hi', tools: TOOLS }
  const output = [
    { type: 'function_call', namespace: 'agents', name: 'close', arguments: '{"id": 1}' },
    { type: 'function_call', name: 'close', arguments: '{}' },
    { type: 'custom_tool_call', namespace: 'agents', name: 'shell', input: 'ls' },
  ]

  it('are called by their own name and the name of their namespace', async () => {
    const plain = await client.responses.create(asked)
    expect(plain.output).toMatchObject(output)
    expect(plain.output[1]).not.toHaveProperty('namespace')
    expect(plain.tools).toMatchObject(TOOLS)
    const streamed = await client.responses.stream(asked).finalResponse()
    expect(streamed.output).toMatchObject(output)
  })

  it('have one name for the model, also in calls that are sent back', async () => {
    const first = await client.responses.create(asked)
    const outputs = first.output.flatMap((item): OpenAI.Responses.ResponseInputItem[] => {
      if (!('call_id' in item) || typeof item.call_id !== 'string') return []
      const type =
        item.type === 'custom_tool_call' ? 'custom_tool_call_output' : 'function_call_output'
      return [{ type, call_id: item.call_id, output: 'done' }]
    })
    const input = [...(first.output as OpenAI.Responses.ResponseInputItem[]), ...outputs]
    await client.responses.create({ ...asked, input })
    const [prompt] = served.surface.submitter.input.prompts
    const names = ['agents__close', 'close', 'agents__shell'].map((name) => ({ name }))
    expect(prompt).toMatchObject({
      messages: [{ role: 'assistant', toolCalls: names }, ...outputs.map(() => ({ role: 'tool' }))],
      tools: [
        { name: 'agents__close', isStrict: true, schemaPath: 'tools[0].tools[0].parameters' },
        { name: 'agents__shell' },
        { name: 'close', schemaPath: 'tools[1].parameters' },
      ],
    })
  })

  it('count among the tools of a request', async () => {
    const tools = Array.from({ length: 65 }, (_, place): OpenAI.Responses.NamespaceTool => {
      const ping = ['a', 'b'].map((name) => ({ type: 'function' as const, name }))
      return { type: 'namespace', name: `n${place}`, description: '', tools: ping }
    })
    await expect(client.responses.create({ ...asked, tools })).rejects.toThrow(
      "Invalid value for 'tools': it may have at most 128 tools, with those of namespaces.",
    )
    const nested = [{ ...TOOLS[0], tools: [TOOLS[0]] }] as OpenAI.Responses.Tool[]
    await expect(client.responses.create({ ...asked, tools: nested })).rejects.toThrow(
      "Invalid value: 'namespace'. Supported values are: 'function' and 'custom'.",
    )
  })
})
