import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'

import { createBatch, ENDPOINT, ids, line, reach, upload } from './batch-client.ts'
import { useBatches } from './batch-suite.ts'

const suite = useBatches()

/** A request whose body is nested this deeply. */
const deepLine = (depth: number): string =>
  line('deep', { body: 0 }).replace(/0}$/, `{"a":${'['.repeat(depth)}${']'.repeat(depth)}}}`)

describe('a faulty input', () => {
  it.each([
    ['a custom_id that occurs twice', [line('a'), line('a')], 'duplicate_custom_id', 2],
    ['another endpoint', [line('a'), line('b', { url: '/v1/embeddings' })], 'invalid_url', 2],
    ['another method', [line('a', { method: 'GET' })], 'invalid_method', 1],
    ['a stream', [line('a', { body: { stream: true } })], 'invalid_value', 1],
    ['half a character in a custom_id', [line('a'), line('b\ud800')], 'invalid_value', 2],
    ['a zero character in a custom_id', [line('a\0')], 'invalid_value', 1],
    ['nesting that no endpoint takes', [line('a'), deepLine(100_000)], 'json_too_complex', 2],
  ] as const)('fails its batch: %s', async (_title, lines, code, number) => {
    const { id } = await createBatch(suite.client, lines)
    suite.start()
    const done = await reach(suite.client, id, 'failed')
    expect(done.errors).toMatchObject({ object: 'list', data: [{ code, line: number }] })
    expect(done.failed_at).toBeGreaterThanOrEqual(done.created_at)
    expect([done.output_file_id, done.error_file_id]).toEqual([null, null])
    await expect(suite.client.batches.cancel(id)).rejects.toMatchObject({ status: 409 })
  })

  it('fails its batch when it was deleted before it is read', async () => {
    const batch = await createBatch(suite.client, [line('a')])
    await suite.client.files.delete(batch.input_file_id)
    suite.start()
    const done = await reach(suite.client, batch.id, 'failed')
    expect(done.errors?.data?.[0]?.code).toBe('file_not_found')
  })

  it('is refused when it holds more than 50,000 requests', async () => {
    const { id } = await createBatch(
      suite.client,
      ids(50_001).map((name) => line(name, { body: {} })),
    )
    suite.start()
    const done = await reach(suite.client, id, 'failed')
    expect(done.errors?.data?.[0]).toMatchObject({ code: 'too_many_requests', line: 50_001 })
  })
})

describe('the routes', () => {
  it('list the newest first, page by page, to an end', async () => {
    const made: string[] = []
    for (const id of ids(3)) made.unshift((await createBatch(suite.client, [line(id)])).id)
    const listed: string[] = []
    for await (const batch of suite.client.batches.list({ limit: 2 })) listed.push(batch.id)
    expect(listed.slice(0, 3)).toEqual(made)
    expect(new Set(listed).size).toBe(listed.length)
    await expect(suite.client.batches.list({ after: 'batch_none' })).rejects.toMatchObject({
      status: 404,
      param: 'after',
    })
  })

  it.each([
    [{ endpoint: '/v1/audio/speech' }, 'endpoint', 'invalid_value'],
    [
      { output_expires_after: { anchor: 'created_at', seconds: 1 } },
      'output_expires_after.seconds',
      'integer_below_min_value',
    ],
    [{ completion_window: '1h' }, 'completion_window', 'invalid_value'],
    [{ metadata: { a: 1 } }, 'metadata.a', 'invalid_type'],
    [{ metadata: { a: 'x', b: 'half \ud800' } }, 'metadata.b', 'invalid_value'],
    [{ metadata: { a: '\0' } }, 'metadata.a', 'invalid_value'],
    [{ priority: 1 }, 'priority', 'unknown_parameter'],
    [{ input_file_id: undefined }, 'input_file_id', 'missing_required_parameter'],
  ])('refuse a batch with %o', async (fields, param, code) => {
    const asked = { input_file_id: 'f', endpoint: ENDPOINT, completion_window: '24h' as const }
    const creating = suite.client.batches.create({ ...asked, ...fields } as never)
    await expect(creating).rejects.toMatchObject({ status: 400, param, code })
  })

  it('take only files of this organization that were uploaded for it', async () => {
    const create = (input_file_id: string) =>
      suite.client.batches.create({ input_file_id, endpoint: ENDPOINT, completion_window: '24h' })
    await expect(create('file-none')).rejects.toMatchObject({ status: 404, param: 'input_file_id' })
    const { id } = await upload(suite.client, ['{}'], 'user_data')
    await expect(create(id)).rejects.toMatchObject({ status: 400, param: 'input_file_id' })
    await expect(suite.client.batches.retrieve('batch_none')).rejects.toMatchObject({ status: 404 })
    await expect(suite.client.batches.cancel('batch_none')).rejects.toMatchObject({ status: 404 })
  })

  it('do not lend a key the endpoints that it may not use', async () => {
    const { id } = await upload(suite.client, [line('a')])
    const narrow = new OpenAI({
      baseURL: suite.service.baseURL,
      apiKey: await suite.service.newKey(['batches', 'embeddings']),
      maxRetries: 0,
    })
    const creating = narrow.batches.create({
      input_file_id: id,
      endpoint: ENDPOINT,
      completion_window: '24h',
    })
    await expect(creating).rejects.toMatchObject({ status: 403, code: 'missing_scope' })
  })
})
