import { createReadStream } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Configuration, OpenAIApi } from 'openai-3'
import OpenAI4, { toFile } from 'openai-4'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { API_KEY, startTiers, type Tiers } from '#test/support/tiers.ts'

// The clients of 2022 and 2024 against whole processes with the models that ship.

const ROOT = join(import.meta.dirname, '../../..')
/** An encoder-decoder of random weights that knows languages. */
const TRANSLATOR = {
  id: 'translator',
  kind: 'completion',
  source: join(ROOT, 'test/fixtures/models/nllb'),
  capabilities: ['completion', 'edit'],
}

/** The models that ship, and others. */
async function catalogueWith(place: string, others: readonly object[]): Promise<string> {
  const shipped = JSON.parse(await readFile(join(ROOT, 'models.json'), 'utf8')) as {
    models: { source: string }[]
  }
  const own = shipped.models.map((model) => ({ ...model, source: join(ROOT, model.source) }))
  const file = join(place, 'models.json')
  await writeFile(file, JSON.stringify({ models: [...own, ...others] }))
  return file
}

const LONG = { timeout: 120_000 }
const DOCUMENTS = [
  { text: 'Soup is eaten hot.', metadata: 'kitchen' },
  { text: 'The dog runs in the park.', metadata: 'park' },
  { text: 'Rain fell at night.', metadata: 'weather' },
]

let tiers: Tiers
let folder = ''
let close: (() => unknown)[] = []

beforeAll(async () => {
  const made = await createDatabase()
  folder = await mkdtemp(join(tmpdir(), 'millrace-older-'))
  tiers = await startTiers({
    databaseUrl: made.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: freshPrefix(),
    env: {
      MILLRACE_CATALOGUE: await catalogueWith(folder, [TRANSLATOR]),
      MILLRACE_WORKER_MODELS: `tiny-chat,tiny-embed,${TRANSLATOR.id}`,
    },
  })
  close = [() => tiers.stop(), made.drop, () => rm(folder, { recursive: true, force: true })]
  await tiers.startWorker()
}, 120_000)
afterAll(async () => {
  for (const step of close) await step()
})

async function fileOf(name: string, lines: readonly object[]): Promise<string> {
  const path = join(folder, name)
  await writeFile(path, lines.map((line) => JSON.stringify(line)).join('\n'))
  return path
}

it('translates in completions, streams and edits alike', LONG, async () => {
  const golden = JSON.parse(await readFile(join(TRANSLATOR.source, 'golden.json'), 'utf8')) as {
    cases: { text: string; ids: number[]; greedy: number[] }[]
  }
  const [{ text: prompt, ids, greedy }] = golden.cases as [(typeof golden.cases)[number]]
  const client = new OpenAI4({ baseURL: `${tiers.url}/v1`, apiKey: API_KEY })
  const request = { model: TRANSLATOR.id, prompt, max_tokens: greedy.length, temperature: 0 }
  const translate = (more: object) => client.completions.create({ ...request, ...more } as never)
  const asked = { target_language: 'French', source_language: 'en' }
  const answer = (await translate({ ...asked, return_token_ids: true })) as OpenAI4.Completion
  const [choice] = answer.choices
  expect(choice).toMatchObject({ token_ids: greedy, finish_reason: 'length' })
  expect(answer.usage).toMatchObject({
    prompt_tokens: ids.length,
    completion_tokens: greedy.length,
  })
  let streamed = ''
  const stream = (await translate({
    ...asked,
    stream: true,
  })) as never as AsyncIterable<OpenAI4.Completion>
  for await (const chunk of stream) streamed += chunk.choices[0]?.text ?? ''
  expect(streamed).toBe(choice?.text)
  await expect(translate({ target_language: 'Klingon' })).rejects.toMatchObject({
    status: 400,
    param: 'target_language',
  })
  const older = new OpenAIApi(new Configuration({ basePath: `${tiers.url}/v1`, apiKey: API_KEY }))
  const instruction = 'Translate from English to French'
  const { data: edited } = await older.createEdit({
    model: TRANSLATOR.id,
    input: prompt,
    instruction,
    temperature: 0,
  })
  expect(edited.choices[0]?.text?.startsWith(choice?.text ?? '-')).toBe(true)
})

describe('the official client, version 3', () => {
  const open = () =>
    new OpenAIApi(new Configuration({ basePath: `${tiers.url}/v1`, apiKey: API_KEY }))

  it('uploads, lists, shows, reads and deletes files', LONG, async () => {
    const path = await fileOf('documents.jsonl', DOCUMENTS)
    const { data: made } = await open().createFile(createReadStream(path) as never, 'search')
    expect(made).toMatchObject({ object: 'file', filename: 'documents.jsonl', purpose: 'search' })
    const { data: listed } = await open().listFiles()
    expect(listed.data.map(({ id }) => id)).toContain(made.id)
    expect((await open().retrieveFile(made.id)).data).toEqual(made)
    const { data: content } = await open().downloadFile(made.id, { responseType: 'text' })
    expect(String(content).split('\n')).toHaveLength(DOCUMENTS.length)
    expect((await open().deleteFile(made.id)).data).toMatchObject({ id: made.id, deleted: true })
    await expect(open().retrieveFile(made.id)).rejects.toMatchObject({ response: { status: 404 } })
  })

  it('searches an uploaded file through an engine', LONG, async () => {
    const path = await fileOf('documents.jsonl', DOCUMENTS)
    const { data: made } = await open().createFile(createReadStream(path) as never, 'search')
    const { data } = await open().createSearch('davinci', {
      query: 'The dog runs in the park.',
      file: made.id,
      max_rerank: 3,
      return_metadata: true,
    })
    const found = data.data as { text: string; metadata: string; score: number }[]
    expect(found[0]).toMatchObject({ text: DOCUMENTS[1]?.text, metadata: 'park' })
    expect(found).toHaveLength(3)
  })

  it('completes, edits and embeds by the names of its time', LONG, async () => {
    const completion = await open().createCompletion({
      model: 'text-davinci-003',
      prompt: ['The sun is', 'The cat'],
      max_tokens: 8,
      temperature: 0,
      logprobs: 2,
      echo: true,
    })
    const texts = completion.data.choices.map(({ text }) => text ?? '')
    expect(texts[0]).toMatch(/^The sun is./)
    expect(texts[1]).toMatch(/^The cat./)
    expect(completion.data.choices[0]?.logprobs?.tokens?.length).toBeGreaterThan(3)
    const edited = await open().createEdit({
      model: 'text-davinci-edit-001',
      input: 'The bee chooses the cat.',
      instruction: 'Change the sentence to the past',
      temperature: 0,
    })
    expect(edited.data.choices[0]?.text?.trim()).toBe('The bee chose the cat.')
    const model = 'text-embedding-ada-002'
    const { data } = await open().createEmbedding({ model, input: ['one', 'two'] })
    expect(data.data.map(({ index }) => index)).toEqual([0, 1])
    const [one, two] = data.data.map(({ embedding }) => embedding)
    expect(Math.hypot(...(one ?? []))).toBeCloseTo(1, 3)
    expect(one).not.toEqual(two)
  })

  it('receives clear errors for endpoints that do not exist here', LONG, async () => {
    for (const call of [
      () => open().createClassification({ model: 'ada', query: 'x' }),
      () =>
        open().createAnswer({ model: 'ada', question: 'x', examples: [], examples_context: '' }),
    ]) {
      await expect(call()).rejects.toMatchObject({
        response: { status: 404, data: { error: { type: 'invalid_request_error' } } },
      })
    }
  })
})

describe('the official client, version 4', () => {
  const open = () => new OpenAI4({ baseURL: `${tiers.url}/v1`, apiKey: API_KEY, maxRetries: 0 })

  it('uploads, pages through, reads and deletes files', LONG, async () => {
    const ids: string[] = []
    for (const name of ['a.txt', 'b.txt', 'c.txt']) {
      const file = await toFile(Buffer.from(`I am ${name}`), name)
      ids.push((await open().files.create({ file, purpose: 'user_data' })).id)
    }
    const listed: string[] = []
    for await (const { id } of open().files.list({ purpose: 'user_data', limit: 2 }))
      listed.push(id)
    expect(listed).toEqual(ids.toReversed())
    const answer = await open().files.content(ids[0] as string)
    expect(await answer.text()).toBe('I am a.txt')
    const waited = await open().files.waitForProcessing(ids[0] as string)
    expect(waited.status).toBe('processed')
    for (const id of ids) expect((await open().files.del(id)).deleted).toBe(true)
    await expect(open().files.retrieve(ids[0] as string)).rejects.toBeInstanceOf(
      OpenAI4.NotFoundError,
    )
  })

  it('runs a batch from its upload to its answers', LONG, async () => {
    const path = await fileOf(
      'batch.jsonl',
      ['one', 'two'].map((name) => ({
        custom_id: name,
        method: 'POST',
        url: '/v1/embeddings',
        body: { model: 'tiny-embed', input: name },
      })),
    )
    const file = await open().files.create({ file: createReadStream(path), purpose: 'batch' })
    const { id } = await open().batches.create({
      input_file_id: file.id,
      endpoint: '/v1/embeddings',
      completion_window: '24h',
    })
    await expect
      .poll(async () => (await open().batches.retrieve(id)).status, { timeout: 60_000 })
      .toBe('completed')
    const { output_file_id: output } = await open().batches.retrieve(id)
    const lines = (await (await open().files.content(output as string)).text()).trim().split('\n')
    expect(lines.map((line) => JSON.parse(line).custom_id).sort()).toEqual(['one', 'two'])
    const known: string[] = []
    for await (const batch of open().batches.list({ limit: 1 })) known.push(batch.id)
    expect(known).toContain(id)
    await expect(open().batches.cancel(id)).rejects.toMatchObject({ status: 409 })
  })

  it('embeds in base64 unasked, to the same numbers', LONG, async () => {
    const request = { model: 'tiny-embed', input: 'The sun is warm.' }
    const [unasked, numbers] = await Promise.all([
      open().embeddings.create(request),
      open().embeddings.create({ ...request, encoding_format: 'float' }),
    ])
    const rounded = (vector: number[] = []) => vector.map((value) => Math.fround(value))
    expect(unasked.data[0]?.embedding).toEqual(rounded(numbers.data[0]?.embedding))
    expect(unasked.data[0]?.embedding.length).toBeGreaterThan(64)
  })

  it('chats by its stream helper, parses answers and runs tools', LONG, async () => {
    const chat = { model: 'tiny-chat', temperature: 0 }
    const question = { role: 'user' as const, content: 'What is the capital of France?' }
    let received = ''
    const stream = open().beta.chat.completions.stream({ ...chat, messages: [question] })
    stream.on('content', (delta) => (received += delta))
    const final = await stream.finalContent()
    expect(final).toContain('Paris')
    expect(received).toBe(final)
    const parsed = await open().beta.chat.completions.parse({
      ...chat,
      messages: [question],
      max_tokens: 100,
      response_format: {
        type: 'json_schema',
        json_schema: {
          name: 'city',
          strict: true,
          schema: {
            type: 'object',
            properties: { city: { type: 'string', maxLength: 20 } },
            required: ['city'],
            additionalProperties: false,
          },
        },
      },
    })
    expect(parsed.choices[0]?.message.parsed).toEqual({ city: expect.any(String) })
    const calls: string[] = []
    const runner = open().beta.chat.completions.runTools({
      ...chat,
      messages: [{ role: 'user', content: 'Please buy 38 butters.' }],
      tools: [
        {
          type: 'function',
          function: {
            name: 'order',
            description: 'Order something',
            parameters: {
              type: 'object',
              properties: { item: { type: 'string' }, count: { type: 'integer' } },
              required: ['item', 'count'],
            },
            parse: JSON.parse as (text: string) => { item: string; count: number },
            function: ({ item, count }: { item: string; count: number }) => {
              calls.push(`${count} ${item}`)
              return 'ordered'
            },
          },
        },
      ],
    })
    expect(await runner.finalContent()).not.toBe('')
    expect(calls).toEqual([expect.stringMatching(/^38 butter/)])
  })
})
