import { Readable } from 'node:stream'

import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'

import { FaultyInputError, readInput } from '#api/batches/input-lines.ts'

import {
  createBatch,
  ENDPOINT,
  ids,
  line,
  reach,
  readLines as readOutput,
  upload,
} from './batch-client.ts'
import { useBatches } from './batch-suite.ts'

const suite = useBatches()

/** A request with this text as its body, which need not be JSON. */
const lineOf = (body: string, id = 'hostile'): string =>
  line(id, { body: 0 }).replace(/0}$/, () => `${body}}`)
const deepLine = (depth: number): string =>
  lineOf(`{"a":${'['.repeat(depth)}${']'.repeat(depth)}}`, 'deep')
const LINE_BYTES_MAX = 4 * 1024 * 1024

describe('a faulty input', () => {
  it.each([
    ['a custom_id that occurs twice', [line('a'), line('a')], 'duplicate_custom_id', 2],
    ['another endpoint', [line('a'), line('b', { url: '/v1/embeddings' })], 'invalid_url', 2],
    ['another method', [line('a', { method: 'GET' })], 'invalid_method', 1],
    ['a stream', [line('a', { body: { stream: true } })], 'invalid_value', 1],
    ['half a character in a custom_id', [line('a'), line('b\ud800')], 'invalid_value', 2],
    ['a zero character in a custom_id', [line('a\0')], 'invalid_value', 1],
  ] as const)('fails its batch: %s', async (_title, lines, code, number) => {
    const { id } = await createBatch(suite.client, lines)
    suite.start()
    const done = await reach(suite.client, id, 'failed')
    expect(done.errors).toMatchObject({ object: 'list', data: [{ code, line: number }] })
    expect(done.failed_at).toBeGreaterThanOrEqual(done.created_at)
    expect([done.output_file_id, done.error_file_id]).toEqual([null, null])
    await expect(suite.client.batches.cancel(id)).rejects.toMatchObject({ status: 409 })
  })

  it.each([
    ['a number that is none', [lineOf('{"a":NaN}')], 'Line 1 is not a dictionary'],
    ['a zero byte', [lineOf('{"a":"\0"}')], 'Line 1 is not a dictionary'],
    ['two requests in a line', [line('a') + line('b')], 'Line 1 is not a dictionary'],
    ['a list', [line('a'), '', `[${line('b')}]`], 'Line 3 is not a dictionary'],
    ['nothing', ['null'], 'Line 1 is not a dictionary'],
    ['half a line', [line('a'), line('b').slice(0, -1)], 'Line 2 is not a dictionary'],
    ['a custom_id that is not text', [line('a', { custom_id: {} })], 'custom_id/method/url/body'],
    ['a body that is a list', [line('a'), lineOf('[]')], 'Invalid format on line 2'],
    ['members of a prototype only', [`{"__proto__":${line('a')}}`], 'Invalid format on line 1'],
    [
      'a line that is too long',
      [lineOf(`{"a":"${'x'.repeat(LINE_BYTES_MAX)}"}`)],
      'Line 1 is longer',
    ],
    ['nesting that no endpoint takes', [line('a'), deepLine(100_000)], 'Line 2: The JSON is too'],
    ['too many members', [lineOf(`{${'"a":1,'.repeat(60_000)}"b":1}`)], 'Line 1: The JSON is too'],
    ['a number without an end', [lineOf('{"a":1e999}')], 'numbers must be finite'],
    ['a number of many digits', [lineOf(`{"a":${'9'.repeat(400)}}`)], 'numbers must be finite'],
    ['blank lines alone', ['\ufeff', '\r', ' ', '\t'], 'The file is empty.'],
  ])('is refused when it is uploaded: %s', async (_title, lines, message) => {
    await expect(upload(suite.client, lines)).rejects.toMatchObject({
      status: 400,
      param: 'file',
      code: 'invalid_file_format',
      message: expect.stringContaining(message),
    })
  })

  it('does not include unusual ways to write valid lines', async () => {
    const bodies: string[] = []
    suite.service.execute = async ({ body }) => {
      bodies.push(JSON.stringify(body))
      return { ok: true }
    }
    const largest = lineOf('{"a":""}', 'largest')
    const texts = [
      `\ufeff${lineOf('{"text":"a byte order mark"}', 'mark')}\r`,
      '\r',
      `  ${lineOf('{"text":"\\u0000 and \\ud800"}', '__proto__')}\t`,
      lineOf('{"__proto__":{"a":1},"constructor":2}', 'constructor'),
      lineOf('{"a":1,"a":2,"b":-0,"c":12345678901234567890}', 'twice\u2028'),
      largest.replace('""', () => `"${'x'.repeat(LINE_BYTES_MAX - largest.length)}"`),
    ]
    const { id } = await createBatch(suite.client, texts)
    suite.start()
    const done = await reach(suite.client, id, 'completed')
    expect(done.request_counts).toEqual({ total: 5, completed: 5, failed: 0 })
    const output = await readOutput(suite.client, done.output_file_id)
    const names = ['mark', '__proto__', 'constructor', 'twice\u2028', 'largest']
    expect(output.map(({ custom_id }) => custom_id)).toEqual(names)
    expect(bodies.map((body) => body.slice(0, 60)).toSorted()).toEqual([
      '{"__proto__":{"a":1},"constructor":2}',
      `{"a":"${'x'.repeat(54)}`,
      '{"a":2,"b":0,"c":12345678901234567000}',
      '{"text":"\\u0000 and \\ud800"}',
      '{"text":"a byte order mark"}',
    ])
  })

  it('stores no line after its first fault', async () => {
    const texts = [line('a', { method: 'GET' }), ...ids(5000).map((name) => line(name))]
    const body = Readable.from([Buffer.from(texts.join('\n'))])
    const store = { get: async () => ({ body, totalBytes: 0 }) } as never
    const pages: number[] = []
    const reading = async () => {
      const input = { objectKey: 'x', endpoint: ENDPOINT }
      for await (const page of readInput(store, input)) pages.push(page.length)
    }
    await expect(reading()).rejects.toThrow(FaultyInputError)
    expect(pages.filter((lines) => lines > 0)).toEqual([])
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

  it('accept only files of this organization that were uploaded for batches', async () => {
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
