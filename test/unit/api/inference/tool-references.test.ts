import Anthropic from '@anthropic-ai/sdk'
import { afterAll, beforeAll, expect, it } from 'vitest'

import type { GenerateInput } from '#shared/contracts/completion.ts'

import { API_KEY, serveSurface, speak } from './surface.ts'

const TOOL: Anthropic.Tool = {
  name: 'add',
  description: 'Adds.',
  input_schema: { type: 'object' },
  defer_loading: true,
}
const SEARCH = { type: 'tool_use', id: 'toolu_1', name: 'search', input: { query: 'sum' } } as const
const FOUND: Anthropic.ToolResultBlockParam = {
  type: 'tool_result',
  tool_use_id: 'toolu_1',
  content: [{ type: 'tool_reference', tool_name: 'add' }],
}

let served: Awaited<ReturnType<typeof serveSurface>>
let client: Anthropic
beforeAll(async () => {
  served = await serveSurface(({ input }) => speak(input as GenerateInput, ['Hi']), {
    unknownFields: 'ignore',
  })
  const baseURL = served.baseURL.replace(/\/v1$/, '')
  client = new Anthropic({ baseURL, apiKey: API_KEY, maxRetries: 0 })
})
afterAll(() => served.close())

it('shows the model the names of tools that a search found', async () => {
  await client.messages.create({
    model: 'tiny-chat',
    max_tokens: 100,
    tools: [TOOL],
    messages: [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: [SEARCH] },
      { role: 'user', content: [FOUND] },
    ],
  })
  const [prompt] = served.surface.submitter.input.prompts
  expect(prompt).toMatchObject({ tools: [{ name: 'add' }] })
  expect(prompt?.form === 'chat' && prompt.messages.at(-1)).toMatchObject({
    role: 'tool',
    content: 'add',
  })
})
