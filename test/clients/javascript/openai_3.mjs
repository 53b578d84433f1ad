import { createReadStream } from 'node:fs'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Configuration, OpenAIApi } from 'openai'

import {
  CAPITAL,
  CHAT,
  EMBED,
  EXAMPLES,
  ended,
  expect,
  FORECAST,
  feature,
  key,
  statusOf,
  TEXTS,
  url,
  user,
  WEATHER,
} from './features.mjs'

// The official client of early 2023.

const client = new OpenAIApi(new Configuration({ basePath: `${url}/v1`, apiKey: key }))
const asked = { model: CHAT, temperature: 0, max_tokens: 60 }

await feature('chat', async () => {
  const { data } = await client.createChatCompletion({ messages: user(CAPITAL), ...asked })
  expect(data.choices[0].message.content, 'Paris')
})

await feature('stream', async () => {
  const request = { messages: user(CAPITAL), stream: true, ...asked }
  const { data } = await client.createChatCompletion(request, { responseType: 'stream' })
  let text = ''
  for await (const chunk of data) text += chunk
  expect(text.trimEnd().endsWith('data: [DONE]'), true)
})

await feature('tools', async () => {
  const functions = { functions: [WEATHER], function_call: { name: 'get_weather' } }
  const request = { messages: user(FORECAST), ...functions, ...asked }
  const { data } = await client.createChatCompletion(request)
  expect(JSON.parse(data.choices[0].message.function_call.arguments), { city: 'Paris' })
})

await feature('embeddings', async () => {
  const { data } = await client.createEmbedding({ model: EMBED, input: TEXTS })
  expect(data.data.length, 2)
})

await feature('errors', async () => {
  expect(await statusOf(client.createChatCompletion({ model: CHAT, messages: [] })), 400)
  expect(await statusOf(client.retrieveModel('none')), 404)
})

await feature('completions', async () => {
  const { data } = await client.createCompletion({
    model: CHAT,
    prompt: 'The sun is',
    temperature: 0,
    max_tokens: 5,
  })
  expect(data.choices[0].finish_reason, 'length')
})

await feature('fine-tuning', async () => {
  const path = join(await mkdtemp(join(tmpdir(), 'millrace-')), 'examples.jsonl')
  await writeFile(path, EXAMPLES)
  const { data: file } = await client.createFile(createReadStream(path), 'fine-tune')
  const { data: made } = await client.createFineTune({ model: CHAT, training_file: file.id })
  const job = await ended(async () => (await client.retrieveFineTune(made.id)).data)
  expect(job.status, 'succeeded')
  const { data: events } = await client.listFineTuneEvents(job.id)
  expect(
    events.data.some(({ message }) => message.startsWith('Step 1/')),
    true,
  )
  const asked = { model: job.fine_tuned_model, messages: user('Hi'), max_tokens: 4 }
  expect((await client.createChatCompletion(asked)).data.model, job.fine_tuned_model)
  expect((await client.deleteModel(job.fine_tuned_model)).data.deleted, true)
})
