import { afterAll, beforeAll, expect, it } from 'vitest'

import { answering, openSurface } from './surface.ts'

const SCORES = answering({ task: 'rerank', scores: [0.2, 0.9] })
const QUERY = { model: 'tiny-rerank', query: 'q', documents: ['a', 'b'] }

let surface: Awaited<ReturnType<typeof openSurface>>

beforeAll(async () => {
  surface = await openSurface(SCORES)
})
afterAll(() => surface.app.close())

it("ranks in Cohere's dialect", async () => {
  const response = await surface.post('/v2/rerank', { ...QUERY, top_n: 1 })
  expect(response.json()).toEqual({
    id: expect.stringMatching(/^rerank-/),
    results: [{ index: 1, relevance_score: 0.9 }],
    meta: { api_version: { version: '2' }, billed_units: { search_units: 1 } },
  })
  const wrong = await surface.post('/v2/rerank', { ...QUERY, model: 'absent' })
  expect([wrong.statusCode, Object.keys(wrong.json())]).toEqual([404, ['id', 'message']])
})

it('ranks at the root as below /v1', async () => {
  for (const url of ['/rerank', '/v1/rerank']) {
    const response = await surface.post(url, { ...QUERY, top_k: 1 })
    expect(response.json().results).toEqual([
      { index: 1, relevance_score: 0.9, document: { text: 'b' } },
    ])
  }
})

it("answers Voyage's client under the name that it reads", async () => {
  const results = [{ index: 1, relevance_score: 0.9 }]
  for (const fields of [{ top_k: 1, truncation: true }, { top_k: 1 }]) {
    const response = await surface.post('/v1/rerank', { ...QUERY, ...fields })
    expect(response.json()).toMatchObject({ results, data: results })
  }
})

it.each(['/score', '/v1/score'])('%s scores in the order of the texts', async (url) => {
  const response = await surface.post(url, { text_1: 'q', text_2: ['a', 'b'] })
  expect(response.json()).toMatchObject({
    object: 'list',
    model: 'tiny-rerank',
    data: [
      { index: 0, object: 'score', score: 0.2 },
      { index: 1, object: 'score', score: 0.9 },
    ],
  })
})

it('ranks texts as Text Embeddings Inference does, without a model', async () => {
  const request = { query: 'q', texts: ['a', 'b'], raw_scores: false, truncate: true }
  const response = await surface.post('/rerank', { ...request, return_text: true })
  expect(response.json()).toEqual([
    { index: 1, score: 0.9, text: 'b' },
    { index: 0, score: 0.2, text: 'a' },
  ])
  for (const param of ['documents', 'model']) {
    const { [param]: _, ...rest } = QUERY as Record<string, unknown>
    const refused = await surface.post('/rerank', rest)
    expect(refused.json().error).toMatchObject({ param, code: 'missing_required_parameter' })
  }
})

it.each([
  [{ queries: 'q', documents: ['a', 'b'] }, {}],
  [{ data_1: 'q', data_2: ['a', 'b'] }, {}],
  [{ queries: 'q', items: ['a', 'b'], use_activation: false }, { isActivated: false }],
  [{ text_1: ['q', 'r'], text_2: ['a', 'b'] }, { queries: ['q', 'r'] }],
])('scores %j as vLLM does', async (fields, more) => {
  const response = await surface.post('/score', fields)
  expect(response.statusCode, response.body).toBe(200)
  expect(surface.submitter.input).toMatchObject({ query: 'q', documents: ['a', 'b'], ...more })
})

it('refuses to score other numbers of queries than of texts', async () => {
  for (const [text_1, param] of [
    [['q', 'r', 's'], 'text_1'],
    [undefined, 'text_1'],
  ]) {
    const response = await surface.post('/score', { text_1, text_2: ['a', 'b'] })
    expect([response.statusCode, response.json().error.param]).toEqual([400, param])
  }
})

it('demands a key at the root, except for a ping', async () => {
  const ask = (method: 'GET' | 'POST', url: string) => surface.app.inject({ method, url })
  for (const url of ['/rerank', '/score', '/v2/rerank', '/tokenize', '/detokenize']) {
    expect((await ask('POST', url)).statusCode, url).toBe(401)
  }
  expect((await ask('GET', '/version')).statusCode).toBe(401)
  expect((await surface.get('/version')).json()).toEqual({ version: '0.0.0' })
  expect((await ask('GET', '/load')).statusCode).toBe(401)
  expect((await surface.get('/load')).json()).toEqual({ server_load: 0 })
  expect((await ask('GET', '/ping')).statusCode).toBe(200)
})

it('serves none of them if they are switched off', async () => {
  const config = { deadlineSeconds: 600, dialectsOff: ['rerank', 'vllm'] }
  const { app, post, get } = await openSurface(SCORES, { config })
  const answers = [
    await post('/v2/rerank', QUERY),
    await post('/v1/score', { text_1: 'q', text_2: 'a' }),
    await get('/version'),
  ]
  await app.close()
  expect(answers.map(({ statusCode }) => statusCode)).toEqual([404, 404, 404])
})
