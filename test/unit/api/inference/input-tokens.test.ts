import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { GenerateInput, TokenizeInput } from '#shared/contracts/completion.ts'

import { API_KEY, serveSurface, speak } from './surface.ts'

const ADD = {
  type: 'function' as const,
  name: 'add',
  strict: false,
  parameters: { type: 'object', properties: { a: { type: 'integer' } } },
}
const REQUEST = {
  model: 'tiny-chat',
  instructions: 'Be kind.',
  tools: [ADD],
  tool_choice: 'required' as const,
  reasoning: { effort: 'low' as const },
  input: [{ role: 'user' as const, content: 'Add one.' }],
}

let served: Awaited<ReturnType<typeof serveSurface>>
let client: OpenAI
beforeAll(async () => {
  served = await serveSurface()
  served.surface.submitter.script = ({ input }) =>
    (input as { task: string }).task === 'generate'
      ? speak(input as GenerateInput, ['Hi'])
      : [
          {
            type: 'result',
            result: { task: 'tokenize', tokenIds: [7, 8, 9], contextLength: 512 },
            usage: { promptTokens: 0, completionTokens: 0, cachedTokens: 0 },
            timings: { queueMs: 0, prepareMs: 0, runMs: 0 },
          },
        ]
  client = new OpenAI({ baseURL: served.baseURL, apiKey: API_KEY, maxRetries: 0 })
})
afterAll(() => served.close())

describe('POST /v1/responses/input_tokens', () => {
  it('counts the prompt that a response to the same request would have', async () => {
    const { submitter } = served.surface
    await client.responses.create(REQUEST)
    const [prompt] = submitter.input.prompts
    expect(await client.responses.inputTokens.count(REQUEST)).toEqual({
      object: 'response.input_tokens',
      input_tokens: 3,
    })
    const counted = submitter.requests.at(-1)?.input as unknown as TokenizeInput
    expect(counted).toMatchObject({ task: 'tokenize', addSpecialTokens: false })
    expect(counted.prompt).toEqual(prompt)
  })

  it('counts instructions without input', async () => {
    const { instructions } = REQUEST
    const { input_tokens: count } = await client.responses.inputTokens.count({
      model: 'tiny-chat',
      instructions,
    })
    expect(count).toBe(3)
  })

  it.each([
    ['nothing to count', {}, 400, 'input'],
    ['a model that reads no chat', { model: 'org/base:v1', input: 'Hi' }, 404, 'model'],
    ['a field of other requests', { input: 'Hi', max_output_tokens: 5 }, 400, 'max_output_tokens'],
    ['a choice without tools', { input: 'Hi', tool_choice: 'required' }, 400, 'tool_choice'],
  ])('refuses %s by name', async (_title, fields, status, param) => {
    const body = { model: 'tiny-chat', ...fields }
    const answer = await served.surface.post('/v1/responses/input_tokens', body)
    expect([answer.statusCode, answer.json().error.param]).toEqual([status, param])
  })
})
