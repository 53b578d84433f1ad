import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { answering, openSurface } from './surface.ts'

const base64 = (...numbers: number[]) =>
  Buffer.from(Float32Array.from(numbers).buffer).toString('base64')
const VECTORS = [base64(0.5, 1), base64(-2, 0)]
const FLOATS = [
  [0.5, 1],
  [-2, 0],
]
const TEXTS = { model: 'tiny-embed', texts: ['a', 'b'] }

let surface: Awaited<ReturnType<typeof openSurface>>
beforeAll(async () => {
  surface = await openSurface(answering({ task: 'embed', vectors: VECTORS }))
})
afterAll(() => surface.app.close())

const about = (version: string) => ({
  id: expect.stringMatching(/^embed-/),
  texts: ['a', 'b'],
  meta: {
    api_version: { version },
    billed_units: { input_tokens: expect.any(Number) },
  },
})

it.each([
  ['/v1/embed', {}, { ...about('1'), response_type: 'embeddings_floats', embeddings: FLOATS }],
  [
    '/v1/embed',
    { embedding_types: ['float'] },
    { ...about('1'), response_type: 'embeddings_by_type', embeddings: { float: FLOATS } },
  ],
  [
    '/v2/embed',
    {},
    { ...about('2'), response_type: 'embeddings_by_type', embeddings: { float: FLOATS } },
  ],
  [
    '/v2/embed',
    { embedding_types: ['float', 'base64', 'float'] },
    {
      ...about('2'),
      response_type: 'embeddings_by_type',
      embeddings: { float: FLOATS, base64: VECTORS },
    },
  ],
])('%s answers the vectors of texts with %j', async (url, fields, expected) => {
  const response = await surface.post(url, { ...TEXTS, ...fields })
  expect([response.statusCode, response.json()]).toEqual([200, expected])
})

it.each<[object, object]>([
  [{}, { role: 'none', dimensions: null, tokensMax: 'context' }],
  [{ input_type: 'search_document' }, { role: 'passage' }],
  [
    { input_type: 'search_query', output_dimension: 2 },
    { role: 'query', dimensions: 2 },
  ],
  [{ max_tokens: 7, truncate: 'END' }, { tokensMax: 7 }],
  [{ texts: null, inputs: [{ content: [{ type: 'text', text: 'c' }] }] }, { items: ['c'] }],
])('reads %j', async (fields, expected) => {
  expect((await surface.post('/v2/embed', { ...TEXTS, ...fields })).statusCode).toBe(200)
  expect(surface.submitter.input).toMatchObject(expected)
})

it('keeps inputs whole that must not be truncated, and reports other purposes', async () => {
  const fields = { truncate: 'NONE', input_type: 'clustering' }
  const { headers } = await surface.post('/v2/embed', { ...TEXTS, ...fields })
  expect(headers['x-millrace-ignored-parameters']).toBe('input_type')
  expect(surface.submitter.input).not.toHaveProperty('tokensMax')
})

it('cuts the beginning of texts where the request says so', async () => {
  await surface.post('/v2/embed', { ...TEXTS, truncate: 'START', max_tokens: 9 })
  expect(surface.submitter.input).toMatchObject({ tokensMax: 9, truncationSide: 'left' })
})

describe('refuses in words, as Cohere does,', () => {
  it.each<[object, number, RegExp]>([
    [{ model: 'absent' }, 404, /`absent` does not exist/],
    [{ model: 'tiny-rerank' }, 404, /use v1\/rerank/],
    [{ texts: undefined }, 400, /'texts'/],
    [{ texts: [] }, 400, /'texts': empty array/],
    [{ texts: Array(2049).fill('a') }, 400, /'texts': array too long/],
    [{ images: ['x'] }, 400, /'images': it cannot be given together with 'texts'/],
    [{ texts: null, images: ['data:image/png;base64,AAAA'] }, 400, /tiny-embed/],
    [{ embedding_types: ['int8'] }, 400, /'float' and 'base64'/],
    [{ truncate: 'MIDDLE' }, 400, /'NONE', 'START', and 'END'/],
    [{ truncate: 'NONE', max_tokens: 3 }, 400, /'max_tokens'/],
  ])('%j', async (fields, status, message) => {
    for (const url of ['/v1/embed', '/v2/embed']) {
      const response = await surface.post(url, { ...TEXTS, ...fields })
      expect([response.statusCode, response.json()]).toEqual([
        status,
        { id: expect.any(String), message: expect.stringMatching(message) },
      ])
    }
  })
})

it('is not served if its dialect is switched off', async () => {
  const config = { deadlineSeconds: 600, dialectsOff: ['cohere'] }
  const { app, post } = await openSurface(undefined, { config })
  const statuses = await Promise.all(
    ['/v1/embed', '/v2/embed'].map(async (url) => (await post(url, TEXTS)).statusCode),
  )
  await app.close()
  expect(statuses).toEqual([404, 404])
})
