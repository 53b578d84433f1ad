import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Redis } from 'ioredis'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'
import { wavOf } from '#test/support/wav.ts'

const MODEL = 'tiny-chat'
const QUESTION = { model: MODEL, input: 'What is the plural of box?', temperature: 0 }

const keyPrefix = freshPrefix()

let tiers: Tiers
let client: OpenAI
let close: (() => unknown)[] = []

beforeAll(async () => {
  const made = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-background-'))
  tiers = await startTiers({
    databaseUrl: made.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix,
    env: { MILLRACE_WORKER_MODELS: 'tiny-chat,tiny-embed,tiny-whisper' },
  })
  close = [() => tiers.stop(), made.drop, () => rm(folder, { recursive: true, force: true })]
  await tiers.startWorker()
  client = new OpenAI({ baseURL: `${tiers.url}/v1`, apiKey: tiers.apiKey, maxRetries: 0 })
}, 90_000)

afterAll(async () => {
  for (const step of close) await step()
})

const call = (path: string, init: RequestInit = {}) =>
  fetch(`${tiers.url}/v1${path}`, {
    ...init,
    headers: {
      authorization: `Bearer ${tiers.apiKey}`,
      ...(typeof init.body === 'string' && { 'content-type': 'application/json' }),
      ...init.headers,
    },
  })

const reach = (id: string, status: string) =>
  expect.poll(async () => (await client.responses.retrieve(id)).status).toBe(status)

describe('a call of a custom tool', () => {
  const format = { type: 'grammar', syntax: 'regex', definition: '[a-z]{3}' } as const
  const asked = {
    ...QUESTION,
    tools: [{ type: 'custom', name: 'run', format } as const],
    tool_choice: 'required' as const,
  }
  const call = {
    type: 'custom_tool_call',
    id: expect.stringMatching(/^ctc_/),
    name: 'run',
    input: expect.stringMatching(/^[a-z]{3}$/),
    status: 'completed',
  }

  it('is stored by a background response, which its output continues', async () => {
    const { id } = await client.responses.create({ ...asked, background: true })
    await reach(id, 'completed')
    const { output } = await client.responses.retrieve(id)
    expect(output).toMatchObject([call])
    const [first] = output
    if (first?.type !== 'custom_tool_call') throw new Error('no custom tool was called')
    const next = await client.responses.create({
      model: MODEL,
      temperature: 0,
      previous_response_id: id,
      input: [{ type: 'custom_tool_call_output', call_id: first.call_id, output: 'done' }],
    })
    expect(next.output).toMatchObject([{ type: 'message', status: 'completed' }])
    const { data } = await client.responses.inputItems.list(next.id)
    expect(data).toMatchObject([
      { type: 'custom_tool_call_output', id: expect.stringMatching(/^ctco_/), output: 'done' },
    ])
  })

  it('is an item of its conversation', async () => {
    const conversation = await client.conversations.create({
      items: [
        { type: 'custom_tool_call', call_id: 'c1', name: 'run', input: 'ls' },
        { type: 'custom_tool_call_output', call_id: 'c1', output: 'a' },
      ],
    })
    await client.responses.create({ ...asked, conversation: conversation.id })
    const { data } = await client.conversations.items.list(conversation.id, { order: 'asc' })
    expect(data).toMatchObject([
      { type: 'custom_tool_call', id: expect.stringMatching(/^ctc_/), input: 'ls' },
      { type: 'custom_tool_call_output' },
      { type: 'message' },
      call,
    ])
  })

  it('is stored with a chat', async () => {
    const { id } = await client.chat.completions.create({
      model: MODEL,
      messages: [{ role: 'user', content: QUESTION.input }],
      store: true,
      tools: [{ type: 'custom', custom: { name: 'run' } }],
      tool_choice: 'required',
      max_completion_tokens: 200,
    })
    const { choices } = await client.chat.completions.retrieve(id)
    expect(choices[0]?.message.tool_calls).toMatchObject([
      { type: 'custom', custom: { name: 'run', input: expect.any(String) } },
    ])
  })
})

describe('a stored chat', () => {
  it('is listed, fetched, labelled and deleted, streamed or not', async () => {
    const messages = [{ role: 'user' as const, content: QUESTION.input }]
    const request = { model: MODEL, messages, temperature: 0, store: true }
    const plain = await client.chat.completions.create({ ...request, metadata: { run: 'one' } })
    let streamed = ''
    for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
      streamed = chunk.id
    }
    for (const id of [plain.id, streamed]) {
      const { choices } = await client.chat.completions.retrieve(id)
      expect(choices[0]?.message.content).toBe(plain.choices[0]?.message.content)
      const { data } = await client.chat.completions.messages.list(id)
      expect(data).toMatchObject([{ role: 'user', content: QUESTION.input }])
    }
    await client.chat.completions.update(streamed, { metadata: { run: 'two' } })
    const ids = async (run: string) =>
      (await client.chat.completions.list({ metadata: { run } })).data.map(({ id }) => id)
    expect([await ids('one'), await ids('two')]).toEqual([[plain.id], [streamed]])
    await client.chat.completions.delete(plain.id)
    await expect(client.chat.completions.retrieve(plain.id)).rejects.toMatchObject({ status: 404 })
  })
})

describe('an organization that stores nothing', () => {
  it('has no responses to fetch, no conversations and no jobs of responses', async () => {
    const { data } = (await (await call('/organizations')).json()) as { data: [{ id: string }] }
    const setDays = (days: number | null) =>
      call(`/organizations/${data[0].id}`, {
        method: 'PATCH',
        body: JSON.stringify({ retention_days: days }),
      })
    expect((await setDays(0)).status).toBe(200)
    try {
      const { id } = await client.responses.create(QUESTION)
      await expect(client.responses.retrieve(id)).rejects.toMatchObject({ status: 404 })
      await expect(client.conversations.create({})).rejects.toMatchObject({ status: 403 })
      await expect(
        client.responses.create({ ...QUESTION, background: true }),
      ).rejects.toMatchObject({ status: 400, param: 'background' })
      const now = await call('/embeddings', {
        method: 'POST',
        headers: { prefer: 'respond-async' },
        body: JSON.stringify({ model: 'tiny-embed', input: 'a' }),
      })
      expect([now.status, now.headers.get('preference-applied')]).toEqual([200, null])
    } finally {
      await setDays(null)
    }
  })
})

describe('a response in the background', () => {
  it('is answered at once, polled, and equal to the one that a client waits for', async () => {
    const queued = await client.responses.create({ ...QUESTION, background: true })
    expect(queued).toMatchObject({ status: 'queued', background: true, store: true, output: [] })
    await reach(queued.id, 'completed')
    const done = await client.responses.retrieve(queued.id)
    const plain = await client.responses.create(QUESTION)
    expect(done.output_text).toBe(plain.output_text)
    expect(done.usage?.output_tokens).toBe(plain.usage?.output_tokens)
  })

  it('is streamed, abandoned, and resumed behind any event, also after its end', async () => {
    const stream = await client.responses.create({ ...QUESTION, background: true, stream: true })
    const seen: OpenAI.Responses.ResponseStreamEvent[] = []
    let id = ''
    for await (const event of stream) {
      seen.push(event)
      if (event.type === 'response.created') id = event.response.id
      if (seen.length === 4) break
    }
    const resume = async (after: number) => {
      const events: OpenAI.Responses.ResponseStreamEvent[] = []
      const rest = await client.responses.retrieve(id, { stream: true, starting_after: after })
      for await (const event of rest) events.push(event)
      return events
    }
    const rest = await resume(3)
    const all = [...seen, ...rest]
    expect(all.map(({ sequence_number: n }) => n)).toEqual(all.map((_, index) => index))
    const last = all.at(-1)
    expect(last?.type).toBe('response.completed')
    const text = all.map((event) =>
      event.type === 'response.output_text.delta' ? event.delta : '',
    )
    expect(text.join('')).toBe((await client.responses.retrieve(id)).output_text)
    await reach(id, 'completed')
    expect(await resume(0)).toEqual(all.slice(1))
    expect(await resume(all.length - 1)).toEqual([])
  })

  it('is cancelled', async () => {
    // An answer that takes long enough.
    const schema = { type: 'array', items: { type: 'integer' }, minItems: 1000 }
    const { id } = await client.responses.create({
      ...QUESTION,
      background: true,
      input: 'Count.',
      max_output_tokens: 4000,
      text: { format: { type: 'json_schema', name: 'numbers', schema } },
    })
    expect((await client.responses.cancel(id)).status).toBe('cancelled')
    await reach(id, 'cancelled')
  })

  it('needs to be stored', async () => {
    await expect(
      client.responses.create({ ...QUESTION, background: true, store: false }),
    ).rejects.toMatchObject({ status: 400, param: 'background' })
  })
})

describe('a response in the background whose API process is killed', () => {
  it('ends once, and its events have no gap and no repeat', async () => {
    const other = await tiers.startApi()
    const there = new OpenAI({ baseURL: `${other.url}/v1`, apiKey: tiers.apiKey, maxRetries: 0 })
    // Both processes take jobs; those of the killed one are adopted by the other.
    const made = await Promise.all(
      Array.from({ length: 8 }, (_, index) =>
        there.responses.create({
          ...QUESTION,
          background: true,
          input: `Write a story about ${index} boxes.`,
        }),
      ),
    )
    await other.process.stop(0)
    for (const { id } of made) {
      await expect
        .poll(async () => (await client.responses.retrieve(id)).status, { timeout: 60_000 })
        .toMatch(/^(completed|incomplete)$/)
      const numbers: number[] = []
      let text = ''
      for await (const event of await client.responses.retrieve(id, { stream: true })) {
        numbers.push(event.sequence_number)
        if (event.type === 'response.output_text.delta') text += event.delta
      }
      expect(numbers).toEqual(numbers.map((_, index) => index))
      expect(text).toBe((await client.responses.retrieve(id)).output_text)
    }
  }, 120_000)
})

describe('work in the background whose API process is killed before it answers', () => {
  const uploadLines = async () => {
    const line = { custom_id: '1', method: 'POST', url: '/v1/responses', body: QUESTION }
    const file = new File([JSON.stringify(line)], 'lines.jsonl')
    const { id } = await client.files.create({ file, purpose: 'batch' })
    return { input_file_id: id, endpoint: '/v1/responses', completion_window: '24h' }
  }
  const uploadExamples = async () => {
    const file = new File(['{"prompt":"a","completion":"b"}'], 'examples.jsonl')
    const { id } = await client.files.create({ file, purpose: 'fine-tune' })
    return { model: 'tiny-chat', training_file: id }
  }

  it.each<[string, string, () => object | Promise<object>]>([
    ['/responses', '/jobs', () => ({ ...QUESTION, background: true })],
    ['/embeddings', '/jobs', () => ({ model: 'tiny-embed', input: 'one' })],
    ['/batches', '/batches', uploadLines],
    ['/fine_tuning/jobs', '/fine_tuning/jobs', uploadExamples],
  ])('is that of the next request under its Idempotency-Key: %s', async (path, list, make) => {
    const headers = { 'idempotency-key': randomUUID(), prefer: 'respond-async' }
    const body = JSON.stringify(await make())
    const post = async () => {
      const answer = await call(path, { method: 'POST', body, headers })
      return { answer, ...((await answer.json()) as { id: string }) }
    }
    const count = async () =>
      ((await (await call(`${list}?limit=100`)).json()) as { data: object[] }).data.length
    const first = await post()
    const before = await count()
    const redis = new Redis(inject('redisUrl'))
    // The answer of the next request is the recorded one, until it is removed.
    const removeAnswers = async () => {
      const names = await redis.keys(`${keyPrefix}:idempotency:${'?'.repeat(64)}`)
      return Promise.all(names.map((name) => redis.hdel(name, 'answer')))
    }
    await expect.poll(removeAnswers).toContain(1)
    redis.disconnect()
    const second = await post()
    expect(second.answer.headers.get('idempotent-replayed')).toBeNull()
    expect([second.answer.status, second.id]).toEqual([first.answer.status, first.id])
    expect(await count()).toBe(before)
  })
})

describe('Prefer: respond-async', () => {
  const start = async (path: string, body: object, headers: Record<string, string> = {}) => {
    const answer = await call(path, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { prefer: 'respond-async', ...headers },
    })
    return { answer, job: (await answer.json()) as { id: string; status: string } }
  }
  const status = async (id: string) =>
    ((await (await call(`/jobs/${id}`)).json()) as { status: string }).status

  it('turns any request of a job into a background job with the same answer', async () => {
    const body = { model: 'tiny-embed', input: ['a', 'b'] }
    const { answer, job } = await start('/embeddings', body)
    expect([answer.status, answer.headers.get('location')]).toEqual([202, `/v1/jobs/${job.id}`])
    expect(answer.headers.get('preference-applied')).toBe('respond-async')
    await expect.poll(() => status(job.id)).toBe('completed')
    const result = await call(`/jobs/${job.id}/result`)
    const direct = await call('/embeddings', { method: 'POST', body: JSON.stringify(body) })
    expect(await result.json()).toEqual(await direct.json())
  })

  it('stores no job for a name that is longer than that of any model', async () => {
    const { answer, job } = await start('/embeddings', { model: 'm'.repeat(1001), input: 'a' })
    expect([answer.status, job]).toMatchObject([404, { error: { code: 'model_not_found' } }])
  })

  it('accepts forms, such as that of a recording', async () => {
    const transcribe = (headers: Record<string, string>) => {
      const form = new FormData()
      form.set('model', 'tiny-whisper')
      form.set('file', new Blob([wavOf(new Float32Array(16_000))]), 'silence.wav')
      return call('/audio/transcriptions', { method: 'POST', body: form, headers })
    }
    const answer = await transcribe({ prefer: 'respond-async' })
    const job = (await answer.json()) as { id: string }
    expect(answer.status).toBe(202)
    await expect.poll(() => status(job.id)).toBe('completed')
    const result = await call(`/jobs/${job.id}/result`)
    expect(await result.json()).toEqual(await (await transcribe({})).json())
  })

  it('keeps the events of a stream', async () => {
    const messages = [{ role: 'user', content: 'What is the plural of box?' }]
    const { job } = await start('/chat/completions', { model: MODEL, messages, stream: true })
    const text = await (await call(`/jobs/${job.id}/events`)).text()
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true)
    await expect.poll(() => status(job.id)).toBe('completed')
    expect(await (await call(`/jobs/${job.id}/result`)).text()).toBe(text)
  })

  it('begins no sooner than requested, and can be listed by its properties', async () => {
    const soon = new Date(Date.now() + 3_600_000).toISOString()
    const { job } = await start(
      '/embeddings',
      { model: 'tiny-embed', input: 'x' },
      { 'x-millrace-not-before': soon, 'x-millrace-metadata': '{"run":"later"}' },
    )
    const queued = async (run: string) => {
      const query = new URLSearchParams({ status: 'queued', metadata: JSON.stringify({ run }) })
      const list = (await (await call(`/jobs?${query}`)).json()) as { data: { id: string }[] }
      return list.data.map(({ id }) => id)
    }
    expect([await queued('later'), await queued('never')]).toEqual([[job.id], []])
    expect((await call(`/jobs?metadata=${encodeURIComponent('{"run":1}')}`)).status).toBe(400)
    expect((await call(`/jobs/${job.id}/result`)).status).toBe(409)
    const prioritize = async (priority: string) => {
      const headers = { 'content-type': 'application/json' }
      const body = JSON.stringify({ priority })
      const answer = await call(`/jobs/${job.id}`, { method: 'PATCH', headers, body })
      return [answer.status, ((await answer.json()) as { priority?: string }).priority]
    }
    expect(await prioritize('flex')).toEqual([200, 'flex'])
    expect(await prioritize('urgent')).toEqual([400, undefined])
    expect((await call(`/jobs/${job.id}/cancel`, { method: 'POST' })).status).toBe(200)
    expect(await status(job.id)).toBe('cancelled')
    expect(await prioritize('priority')).toEqual([409, undefined])
  })

  it('ends a job whose request is refused, with the reason', async () => {
    const { job } = await start('/embeddings', { model: 'no-such-model', input: 'x' })
    await expect.poll(() => status(job.id)).toBe('failed')
    expect((await call(`/jobs/${job.id}/result`)).status).toBe(404)
    expect(await (await call(`/jobs/${job.id}`)).json()).toMatchObject({
      error: { code: 'model_not_found' },
    })
  })
})
