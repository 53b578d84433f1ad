import { ChatAnthropic } from '@langchain/anthropic'
import { tool } from '@langchain/core/tools'
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai'
import { createAgent } from 'langchain'
import { z } from 'zod'

import {
  CAPITAL,
  CHAT,
  EMBED,
  expect,
  expectPerson,
  FORECAST,
  feature,
  key,
  PERSON,
  statusOf,
  TEXTS,
  url,
  user,
} from './features.mjs'

// LangChain and LangGraph.

const configuration = { baseURL: `${url}/v1` }
const at = { apiKey: key, configuration, maxRetries: 0 }
const model = new ChatOpenAI({ model: CHAT, temperature: 0, maxTokens: 60, ...at })
const person = z.object({ name: z.string(), age: z.number().int(), city: z.string() })
const weather = tool(async () => 'sunny', {
  name: 'get_weather',
  description: 'Get the weather of a city.',
  schema: z.object({ city: z.string() }),
})

await feature('chat', async () => expect((await model.invoke(CAPITAL)).text, 'Paris'))

await feature('stream', async () => {
  let text = ''
  for await (const chunk of await model.stream(CAPITAL)) text += chunk.text
  expect(text, 'Paris')
})

await feature('tools', async () => {
  const { tool_calls: calls } = await model.bindTools([weather]).invoke(FORECAST)
  expect(calls[0].args, { city: 'Paris' })
})

await feature('structured', async () => {
  for (const method of ['jsonSchema', 'functionCalling']) {
    expectPerson(await model.withStructuredOutput(person, { method }).invoke(PERSON))
  }
})

await feature('embeddings', async () => {
  const vectors = await new OpenAIEmbeddings({ model: EMBED, ...at }).embedDocuments(TEXTS)
  expect(vectors.length, 2)
})

await feature('responses', async () => {
  const options = { model: CHAT, temperature: 0, useResponsesApi: true, ...at }
  expect((await new ChatOpenAI(options).invoke(CAPITAL)).text, 'Paris')
})

await feature('errors', async () => {
  expect(await statusOf(new ChatOpenAI({ model: 'none', ...at }).invoke('a')), 404)
})

await feature('agent', async () => {
  const agent = createAgent({ model, tools: [weather] })
  const { messages } = await agent.invoke({ messages: user(FORECAST) }, { recursionLimit: 8 })
  expect(messages[2].content, 'sunny')
})

await feature('messages', async () => {
  const clientOptions = { baseURL: url }
  const options = { model: CHAT, apiKey: key, maxTokens: 60, clientOptions }
  expect((await new ChatAnthropic(options).invoke(CAPITAL)).text, 'Paris')
})
