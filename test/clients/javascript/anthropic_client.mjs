import Anthropic from '@anthropic-ai/sdk'

import {
  CAPITAL,
  CHAT,
  expect,
  FORECAST,
  feature,
  key,
  statusOf,
  url,
  user,
  WEATHER,
} from './features.mjs'

// Anthropic's official client.

const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 })
const asked = { model: CHAT, max_tokens: 60 }
const { name, description, parameters } = WEATHER
const tools = [{ name, description, input_schema: parameters }]

await feature('chat', async () => {
  const answer = await client.messages.create({ messages: user(CAPITAL), ...asked })
  expect([answer.stop_reason, answer.content[0].type], ['end_turn', 'text'])
})

await feature('stream', async () => {
  const stream = client.messages.stream({ messages: user(CAPITAL), ...asked })
  let text = ''
  stream.on('text', (piece) => {
    text += piece
  })
  expect((await stream.finalMessage()).content[0].text, text)
})

await feature('tools', async () => {
  const request = { messages: user(FORECAST), tools, tool_choice: { type: 'any' }, ...asked }
  const { content } = await client.messages.create(request)
  const call = content.at(-1)
  expect([call.type, call.input], ['tool_use', { city: 'Paris' }])
  const result = { type: 'tool_result', tool_use_id: call.id, content: 'sunny' }
  const messages = [...user(FORECAST), { role: 'assistant', content }, ...user([result])]
  expect((await client.messages.create({ messages, tools, ...asked })).type, 'message')
})

await feature('tool runner', async () => {
  const [tool] = tools
  const runner = client.beta.messages.toolRunner({
    ...asked,
    messages: user(FORECAST),
    tools: [{ ...tool, parse: (input) => input, run: () => 'sunny' }],
    max_iterations: 2,
  })
  const reasons = []
  for await (const message of runner) reasons.push(message.stop_reason)
  expect(reasons[0], 'tool_use')
})

await feature('errors', async () => {
  expect(await statusOf(client.messages.create({ ...asked, messages: [] })), 400)
  const stranger = new Anthropic({ baseURL: url, apiKey: 'wrong' })
  expect(await statusOf(stranger.models.list()), 401)
})

await feature('models', async () => {
  expect((await client.models.retrieve(CHAT)).type, 'model')
})

await feature('count_tokens', async () => {
  const counted = await client.messages.countTokens({ model: CHAT, messages: user(CAPITAL), tools })
  expect(counted.input_tokens > 10, true)
})
