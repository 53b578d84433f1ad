import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from '@openai/agents'
import { z } from 'zod'

import {
  CAPITAL,
  CHAT,
  expect,
  expectPerson,
  FORECAST,
  feature,
  key,
  PERSON,
  url,
} from './features.mjs'

// OpenAI's Agents SDK with its defaults, over responses and over chat.

setTracingDisabled(true)
const at = { baseURL: `${url}/v1`, apiKey: key }
const overResponses = new Runner({
  modelProvider: new OpenAIProvider({ ...at, useResponses: true }),
})
const overChat = new Runner({ modelProvider: new OpenAIProvider({ ...at, useResponses: false }) })
const modelSettings = { temperature: 0 }
const called = []
const weather = tool({
  name: 'get_weather',
  description: 'Get the weather of a city.',
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    called.push(city)
    return 'sunny'
  },
})

await feature('chat', async () => {
  const agent = new Agent({ name: 'Clerk', model: CHAT, modelSettings })
  expect((await overChat.run(agent, CAPITAL)).finalOutput, 'Paris')
})

await feature('responses', async () => {
  // Nothing set but the model: its defaults for reasoning and verbosity must run.
  for (const model of [CHAT, 'gpt-4o']) {
    const { finalOutput } = await overResponses.run(new Agent({ name: 'Clerk', model }), CAPITAL)
    expect(typeof finalOutput, 'string')
  }
})

await feature('stream', async () => {
  const agent = new Agent({ name: 'Clerk', model: CHAT, modelSettings })
  let text = ''
  for await (const piece of (
    await overResponses.run(agent, CAPITAL, { stream: true })
  ).toTextStream()) {
    text += piece
  }
  expect(text, 'Paris')
})

await feature('tools', async () => {
  const settings = { temperature: 0, toolChoice: 'required' }
  const behaviour = { toolUseBehavior: 'stop_on_first_tool', modelSettings: settings }
  const agent = new Agent({ name: 'Clerk', model: CHAT, tools: [weather], ...behaviour })
  expect((await overResponses.run(agent, FORECAST)).finalOutput, 'sunny')
  expect(called, ['Paris'])
})

await feature('structured', async () => {
  const outputType = z.object({ name: z.string(), age: z.number().int(), city: z.string() })
  const agent = new Agent({ name: 'Clerk', model: CHAT, modelSettings, outputType })
  expectPerson((await overResponses.run(agent, PERSON)).finalOutput)
})
