import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { countTurns } from '#test/support/turns.ts'

import { itRefuses, type Refusal } from './refusals.ts'
import { answering, openSurface } from './surface.ts'

const encode = (values: Float32Array) => Buffer.from(values.buffer).toString('base64')
const base64 = (...values: number[]) => encode(Float32Array.from(values))
const RESULT = {
  task: 'multi-vector',
  matrices: [base64(0.5, -0.25, 1, 2), base64()],
  width: 2,
} as const
const NUMBERS = [
  [0.5, -0.25],
  [1, 2],
]
const ENCODED = [base64(0.5, -0.25), base64(1, 2)]

let surface: Awaited<ReturnType<typeof openSurface>>

beforeAll(async () => {
  surface = await openSurface(answering(RESULT))
})
afterAll(() => surface.app.close())

const ask = (fields: object) => surface.post('/v1/multi-vector', { input: ['a', 'b'], ...fields })

describe('POST /v1/multi-vector', () => {
  it('answers the vectors of each text as Jina does', async () => {
    const response = await ask({ model: 'colbert', dimensions: 2, embedding_type: 'float' })
    expect([response.statusCode, response.json()]).toEqual([
      200,
      {
        object: 'list',
        model: 'colbert',
        data: [
          { object: 'embeddings', index: 0, embeddings: NUMBERS },
          { object: 'embeddings', index: 1, embeddings: [] },
        ],
        usage: { prompt_tokens: expect.any(Number), total_tokens: expect.any(Number) },
      },
    ])
    expect(surface.submitter.input).toEqual({
      ...{ task: 'multi-vector', items: ['a', 'b'], role: 'passage', dimensions: 2, isCut: true },
    })
  })

  it.each<[unknown, unknown]>([
    [undefined, NUMBERS],
    [null, NUMBERS],
    ['base64', ENCODED],
    [['base64'], { base64: ENCODED }],
    [['float', 'base64'], { float: NUMBERS, base64: ENCODED }],
  ])('answers the embedding_type %j', async (type, embeddings) => {
    const { data } = (await ask({ embedding_type: type })).json()
    expect(data[0].embeddings).toEqual(embeddings)
  })

  it.each<[object, object]>([
    [{ input: 'a' }, { items: ['a'] }],
    [{ input: { text: 'a' } }, { items: ['a'] }],
    [{ input: [{ id: '1', text: 'a' }, 'b'] }, { items: ['a', 'b'] }],
    [{ input_type: 'query' }, { role: 'query' }],
    [{ input_type: 'passage' }, { role: 'passage' }],
    [{ truncate: false }, { isCut: false }],
  ])('reads %j', async (fields, input) => {
    expect((await ask(fields)).statusCode).toBe(200)
    expect(surface.submitter.input).toMatchObject(input)
  })
})

it('lets the event loop run while a large answer is written', async () => {
  const matrices = [encode(new Float32Array(2 ** 20).fill(0.1))]
  const own = await openSurface(answering({ task: 'multi-vector', matrices, width: 128 }))
  const turns = countTurns()
  await own.post('/v1/multi-vector', { input: 'a' })
  expect(turns.end()).toBeGreaterThan(50)
  await own.app.close()
})

it('sends models of other vectors to their own endpoints, and back', async () => {
  const messages = await Promise.all(
    [
      surface.post('/v1/multi-vector', { model: 'tiny-embed', input: 'a' }),
      surface.post('/v1/multi-vector', { model: 'splade', input: 'a' }),
      surface.post('/v1/embeddings', { model: 'colbert', input: 'a' }),
      surface.post('/v1/embed_sparse', { model: 'colbert', inputs: 'a' }),
    ].map(async (answer) => (await answer).json().error.message),
  )
  const refusal = (model: string, endpoint: string, own: string) =>
    `The model \`${model}\` is not supported in the ${endpoint} endpoint. Did you mean to use ${own}?`
  expect(messages).toEqual([
    refusal('tiny-embed', 'v1/multi-vector', 'v1/embeddings'),
    refusal('splade', 'v1/multi-vector', 'v1/embed_sparse'),
    refusal('colbert', 'v1/embeddings', 'v1/multi-vector'),
    refusal('colbert', 'v1/embed_sparse', 'v1/multi-vector'),
  ])
})

it('ranks documents in every dialect of rerank', async () => {
  const own = await openSurface(answering({ task: 'rerank', scores: [3.5, 11.25] }))
  const asked = { model: 'colbert', query: 'q', documents: ['a', 'b'] }
  for (const url of ['/v1/rerank', '/rerank', '/v2/rerank']) {
    const { results } = (await own.post(url, asked)).json()
    expect(results).toMatchObject([
      { index: 1, relevance_score: 11.25 },
      { index: 0, relevance_score: 3.5 },
    ])
  }
  const scored = await own.post('/score', { model: 'colbert', text_1: 'q', text_2: ['a', 'b'] })
  expect(scored.json().data).toMatchObject([{ score: 3.5 }, { score: 11.25 }])
  await own.app.close()
})

it('refuses more tokens than one request may embed, counted by the worker', async () => {
  const own = await openSurface(answering(RESULT, { promptTokens: 300_001 }))
  const response = await own.post('/v1/multi-vector', { input: 'a' })
  await own.app.close()
  expect(response.json().error).toMatchObject({ code: 'max_tokens_per_request', param: 'input' })
})

const REFUSALS: readonly Refusal[] = [
  [{ input: '' }, 'input', 'empty_string', /./],
  [{ input: [] }, 'input', 'empty_array', /./],
  [{ input: Array(2049).fill('a') }, 'input', 'array_above_max_length', /2049/],
  [{ input_type: 'title' }, 'input_type', 'invalid_value', /./],
  [{ dimensions: 0 }, 'dimensions', 'integer_below_min_value', /./],
  [{ embedding_type: 'binary' }, 'embedding_type', 'invalid_value', /./],
]
itRefuses('/v1/multi-vector', { model: 'colbert', input: 'Hi' }, REFUSALS)
