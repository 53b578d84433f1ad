import OpenAI, { toFile } from 'openai'

import {
  CAPITAL,
  CHAT,
  EMBED,
  EXAMPLES,
  ended,
  expect,
  expectPerson,
  FORECAST,
  feature,
  key,
  PERSON,
  PERSON_SCHEMA,
  statusOf,
  TEXTS,
  url,
  user,
  WEATHER,
} from './features.mjs'

// The official client from version 4 on.

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 })
const asked = { model: CHAT, temperature: 0, max_tokens: 60 }
const tools = [{ type: 'function', function: WEATHER }]

await feature('chat', async () => {
  const answer = await client.chat.completions.create({ messages: user(CAPITAL), ...asked })
  expect(answer.choices[0].message.content, 'Paris')
})

await feature('stream', async () => {
  const request = { messages: user(CAPITAL), stream: true, ...asked }
  let text = ''
  for await (const { choices } of await client.chat.completions.create(request)) {
    text += choices[0]?.delta.content ?? ''
  }
  expect(text, 'Paris')
})

await feature('tools', async () => {
  const request = { messages: user(FORECAST), tools, tool_choice: 'required', ...asked }
  const { message } = (await client.chat.completions.create(request)).choices[0]
  const [call] = message.tool_calls
  expect(JSON.parse(call.function.arguments), { city: 'Paris' })
  const result = { role: 'tool', tool_call_id: call.id, content: 'sunny' }
  const messages = [...user(FORECAST), message, result]
  const second = await client.chat.completions.create({ messages, tools, ...asked })
  expect(second.choices[0].message.role, 'assistant')
})

await feature('structured', async () => {
  const json_schema = { name: 'person', schema: PERSON_SCHEMA, strict: true }
  const response_format = { type: 'json_schema', json_schema }
  const request = { messages: user(PERSON), response_format, ...asked }
  const parse = client.chat.completions.parse ?? client.beta.chat.completions.parse
  const scope = client.chat.completions.parse
    ? client.chat.completions
    : client.beta.chat.completions
  expectPerson((await parse.call(scope, request)).choices[0].message.parsed)
})

await feature('embeddings', async () => {
  const { data } = await client.embeddings.create({ model: EMBED, input: TEXTS })
  expect(data.length, 2)
})

await feature('responses', async () => {
  const answer = await client.responses.create({ model: CHAT, input: CAPITAL, temperature: 0 })
  expect(answer.output_text, 'Paris')
  const types = []
  const stream = await client.responses.create({ model: CHAT, input: CAPITAL, stream: true })
  for await (const { type } of stream) types.push(type)
  expect([types.at(0), types.at(-1)], ['response.created', 'response.completed'])
})

await feature('errors', async () => {
  expect(await statusOf(client.chat.completions.create({ model: CHAT, messages: [] })), 400)
  expect(await statusOf(client.chat.completions.create({ model: 'no', messages: user('a') })), 404)
  const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong' })
  expect(await statusOf(stranger.models.list()), 401)
})

await feature('completions', async () => {
  const answer = await client.completions.create({
    model: CHAT,
    prompt: 'The sun is',
    temperature: 0,
    max_tokens: 5,
  })
  expect(answer.choices[0].finish_reason, 'length')
})

await feature('files', async () => {
  const file = await toFile(Buffer.from('{"text":"a"}\n'), 'lines.jsonl')
  const made = await client.files.create({ file, purpose: 'user_data' })
  expect(await (await client.files.content(made.id)).text(), '{"text":"a"}\n')
})

await feature('fine-tuning', async () => {
  const file = await client.files.create({
    file: await toFile(Buffer.from(EXAMPLES), 'examples.jsonl'),
    purpose: 'fine-tune',
  })
  const { jobs } = client.fineTuning
  const made = await jobs.create({ model: CHAT, training_file: file.id, suffix: 'mill' })
  const job = await ended(() => jobs.retrieve(made.id))
  expect(job.status, 'succeeded')
  const kinds = []
  for await (const event of jobs.listEvents(job.id)) kinds.push(event.type)
  expect(kinds.includes('metrics'), true)
  for await (const checkpoint of jobs.checkpoints.list(job.id)) {
    expect(checkpoint.step_number > 0, true)
  }
  const request = { model: job.fine_tuned_model, messages: user('Hi'), max_tokens: 4 }
  expect((await client.chat.completions.create(request)).model, job.fine_tuned_model)
  const deletion = client.models.delete ?? client.models.del
  expect((await deletion.call(client.models, job.fine_tuned_model)).deleted, true)
})
