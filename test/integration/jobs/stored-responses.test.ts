import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers } from '#test/support/tiers.ts'

const MODEL = 'tiny-chat'
const QUESTION = { model: MODEL, input: 'What is the plural of box?', temperature: 0 }

let client: OpenAI
let close: (() => unknown)[] = []

beforeAll(async () => {
  const made = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-responses-'))
  const tiers = await startTiers({
    databaseUrl: made.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: freshPrefix(),
    env: { MILLRACE_WORKER_MODELS: 'tiny-chat' },
  })
  close = [() => tiers.stop(), made.drop, () => rm(folder, { recursive: true, force: true })]
  await tiers.startWorker()
  client = new OpenAI({ baseURL: `${tiers.url}/v1`, apiKey: tiers.apiKey, maxRetries: 0 })
}, 90_000)

afterAll(async () => {
  for (const step of close) await step()
})

describe('a stored response', () => {
  it('is fetched, listed with its input, continued and deleted', async () => {
    const first = await client.responses.create(QUESTION)
    expect(first).toMatchObject({ store: true, background: false })
    const { output_text: _text, _request_id: _id, ...answer } = first
    expect(await client.responses.retrieve(first.id)).toMatchObject(answer)
    const { data } = await client.responses.inputItems.list(first.id)
    expect(data).toMatchObject([
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: QUESTION.input }] },
    ])
    const second = await client.responses.create({
      model: MODEL,
      temperature: 0,
      input: 'And of fox?',
      previous_response_id: first.id,
    })
    expect(second.previous_response_id).toBe(first.id)
    const alone = await client.responses.create({ ...QUESTION, input: 'And of fox?' })
    expect(second.usage?.input_tokens).toBeGreaterThan(
      (first.usage?.total_tokens ?? 0) + (alone.usage?.input_tokens ?? 0) - 20,
    )
    await client.responses.delete(first.id)
    await expect(client.responses.retrieve(first.id)).rejects.toMatchObject({ status: 404 })
    await expect(
      client.responses.create({ ...QUESTION, previous_response_id: second.id }),
    ).rejects.toMatchObject({ status: 400, code: 'previous_response_not_found' })
  })

  it('is continued by references to its items, as clients of AI SDK send them', async () => {
    const first = await client.responses.create(QUESTION)
    const [item] = first.output
    if (item?.type !== 'message') throw new Error('the model wrote no message')
    const turns = (answer: OpenAI.Responses.ResponseInputItem) => ({
      model: MODEL,
      input: [
        { role: 'user' as const, content: QUESTION.input },
        answer,
        { role: 'user' as const, content: 'And of fox?' },
      ],
    })
    const reference = { type: 'item_reference' as const, id: item.id }
    const second = await client.responses.create({ ...turns(reference), temperature: 0 })
    const whole = await client.responses.inputTokens.count(turns(item))
    expect(second.usage?.input_tokens).toBe(whole.input_tokens)
    const { data } = await client.responses.inputItems.list(second.id, { order: 'asc' })
    expect(data[1]).toEqual(item)
    // An item of the response that is continued is not shown twice.
    const continued = { model: MODEL, previous_response_id: first.id }
    const last = [{ role: 'user' as const, content: 'And of fox?' }]
    expect(
      await client.responses.inputTokens.count({ ...continued, input: [reference, ...last] }),
    ).toEqual(await client.responses.inputTokens.count({ ...continued, input: last }))
    await expect(
      client.responses.create({ ...turns(reference), input: [reference, reference] }),
    ).rejects.toMatchObject({
      status: 400,
      param: 'input[1].id',
      message: expect.stringContaining(`Duplicate item found with id ${item.id}.`),
    })
    await client.responses.delete(first.id)
    await expect(client.responses.create(turns(reference))).rejects.toMatchObject({
      status: 400,
      code: 'item_not_found',
      param: 'input[1].id',
    })
  })

  it('is not stored if its request says so', async () => {
    const { id } = await client.responses.create({ ...QUESTION, store: false })
    await expect(client.responses.retrieve(id)).rejects.toMatchObject({ status: 404 })
  })

  it('adds its items to its conversation', async () => {
    const conversation = await client.conversations.create({
      items: [{ type: 'message', role: 'user', content: 'My name is Ada.' }],
      metadata: { topic: 'names' },
    })
    const answer = await client.responses.create({ ...QUESTION, conversation: conversation.id })
    expect(answer.conversation).toEqual({ id: conversation.id })
    const items = await client.conversations.items.list(conversation.id, { order: 'asc' })
    expect(items.data.map((item) => ('role' in item ? item.role : item.type))).toEqual([
      ...['user', 'user', 'assistant'],
    ])
    // A conversation has items of its own, no references.
    const reference = { type: 'item_reference', id: items.data[2]?.id }
    await expect(
      client.conversations.items.create(conversation.id, { items: [reference as never] }),
    ).rejects.toMatchObject({ status: 400, param: 'items[0].type' })
    await client.conversations.delete(conversation.id)
    await expect(
      client.responses.create({ ...QUESTION, conversation: conversation.id }),
    ).rejects.toMatchObject({ status: 404 })
  })
})
