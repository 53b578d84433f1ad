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
    expect(response.json().results).toEqual([{ index: 1, relevance_score: 0.9 }])
  }
})

it.each(['/score', '/v1/score'])('%s scores in the order of the texts', async (url) => {
  const response = await surface.post(url, { text_1: 'q', text_2: ['a', 'b'] })
  expect(response.json()).toMatchObject({
    ...{ object: 'list', model: 'tiny-rerank' },
    data: [
      { index: 0, object: 'score', score: 0.2 },
      { index: 1, object: 'score', score: 0.9 },
    ],
  })
})

it('demands a key at the root, except for a ping', async () => {
  const ask = (method: 'GET' | 'POST', url: string) => surface.app.inject({ method, url })
  for (const url of ['/rerank', '/score', '/v2/rerank', '/tokenize', '/detokenize']) {
    expect((await ask('POST', url)).statusCode, url).toBe(401)
  }
  expect((await ask('GET', '/version')).statusCode).toBe(401)
  expect((await surface.get('/version')).json()).toEqual({ version: '0.0.0' })
  expect((await ask('GET', '/ping')).statusCode).toBe(200)
})

it('serves none of them where they are switched off', async () => {
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
