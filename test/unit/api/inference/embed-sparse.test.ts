import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { itRefuses, type Refusal } from './refusals.ts'
import { answering, openSurface } from './surface.ts'

const base64 = (vector: Uint32Array | Float32Array) => Buffer.from(vector.buffer).toString('base64')
const VECTOR = {
  indices: base64(Uint32Array.of(3, 70_000)),
  values: base64(Float32Array.of(0.5, 1.25)),
}
const PRESENTED = [
  { index: 3, value: 0.5 },
  { index: 70_000, value: 1.25 },
]
const NONE = { indices: '', values: '' }

let surface: Awaited<ReturnType<typeof openSurface>>

beforeAll(async () => {
  surface = await openSurface(answering({ task: 'sparse', vectors: [VECTOR, NONE] }))
})
afterAll(() => surface.app.close())

describe.each(['/embed_sparse', '/v1/embed_sparse'])('POST %s', (url) => {
  it('answers the weights of each text as Text Embeddings Inference does', async () => {
    const request = { inputs: ['a', 'b'], truncate: true, truncation_direction: 'left' }
    const response = await surface.post(url, { ...request, prompt_name: 'document' })
    expect([response.statusCode, response.json()]).toEqual([200, [PRESENTED, []]])
    expect(surface.submitter.input).toEqual({
      task: 'sparse',
      items: ['a', 'b'],
      role: 'passage',
      tokensMax: 'context',
      truncationSide: 'left',
    })
  })

  it.each([
    ['a', ['a']],
    [[5, 6], [[5, 6]]],
    [
      [[5, 6], [7]],
      [[5, 6], [7]],
    ],
  ])('reads %j', async (inputs, items) => {
    expect((await surface.post(url, { model: 'splade', inputs })).statusCode).toBe(200)
    expect(surface.submitter.input).toEqual({ task: 'sparse', items, role: 'none' })
  })
})

it('sends models of other vectors to their own endpoints, and back', async () => {
  const messages = await Promise.all(
    [
      surface.post('/embed_sparse', { model: 'tiny-embed', inputs: 'a' }),
      surface.post('/embed_sparse', { model: 'tiny-rerank', inputs: 'a' }),
      surface.post('/v1/embeddings', { model: 'splade', input: 'a' }),
      surface.post('/v1/rerank', { model: 'splade', query: 'a', documents: ['b'] }),
    ].map(async (answering) => {
      const response = await answering
      return [response.statusCode, response.json().error.message]
    }),
  )
  const refusal = (model: string, endpoint: string, own: string) => [
    404,
    `The model \`${model}\` is not supported in the ${endpoint} endpoint. Did you mean to use ${own}?`,
  ]
  expect(messages).toEqual([
    refusal('tiny-embed', 'v1/embed_sparse', 'v1/embeddings'),
    refusal('tiny-rerank', 'v1/embed_sparse', 'v1/rerank'),
    refusal('splade', 'v1/embeddings', 'v1/embed_sparse'),
    refusal('splade', 'v1/rerank', 'v1/embed_sparse'),
  ])
})

it('refuses more tokens than one request may embed, counted by the worker', async () => {
  const script = answering({ task: 'sparse', vectors: [] }, { promptTokens: 300_001 })
  const own = await openSurface(script)
  const response = await own.post('/embed_sparse', { inputs: 'a' })
  await own.app.close()
  expect(response.json().error).toMatchObject({ code: 'max_tokens_per_request', param: 'inputs' })
})

it('is not served at the root if its dialect is switched off', async () => {
  const config = { deadlineSeconds: 600, dialectsOff: ['tei'] }
  const { app, post } = await openSurface(undefined, { config })
  const response = await post('/embed_sparse', { inputs: 'a' })
  await app.close()
  expect(response.statusCode).toBe(404)
})

const REFUSALS: readonly Refusal[] = [
  [{ inputs: '' }, 'inputs', 'empty_string', /./],
  [{ inputs: [] }, 'inputs', 'empty_array', /./],
  [{ inputs: Array(2049).fill('a') }, 'inputs', 'array_above_max_length', /2049/],
  [{ inputs: Array(2).fill(Array(180_000).fill(1)) }, 'inputs', 'max_tokens_per_request', /./],
  [{ truncation_direction: 'Up' }, 'truncation_direction', 'invalid_value', /./],
  [{ prompt_name: 'title' }, 'prompt_name', 'invalid_value', /./],
]
itRefuses('/v1/embed_sparse', { model: 'splade', inputs: 'Hi' }, REFUSALS)
