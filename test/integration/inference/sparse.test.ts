import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, beforeAll, expect, it } from 'vitest'

import { serveModels } from '#test/support/served-models.ts'

const MODELS = join(import.meta.dirname, '../../fixtures/models')
const { texts, ids, heads } = JSON.parse(
  readFileSync(join(MODELS, 'splade/golden.json'), 'utf8'),
) as { texts: string[]; ids: number[][]; heads: [{ weights: [number, number][][] }] }

let server: Awaited<ReturnType<typeof serveModels>>

beforeAll(async () => {
  const sparse = { kind: 'embedding', capabilities: ['sparse'] }
  const models = [
    { ...sparse, id: 'splade', source: join(MODELS, 'splade') },
    { ...sparse, id: 'm3-sparse', source: join(MODELS, 'bge-m3') },
    { kind: 'embedding', id: 'm3-dense', source: join(MODELS, 'bge-m3') },
  ]
  server = await serveModels(models, ['splade', 'm3-sparse', 'm3-dense'])
}, 300_000)
afterAll(() => server?.close())

type Row = { readonly index: number; readonly value: number }

async function post(path: string, body: object) {
  const answer = await server.post(path, body)
  return { status: answer.status, body: answer.body as never }
}

async function embedSparse(body: object): Promise<readonly (readonly Row[])[]> {
  const answer = await post('/embed_sparse', body)
  expect([answer.status, answer.body]).toEqual([200, expect.any(Array)])
  return answer.body
}

it('answers texts and token ids with the weights of the reference', async () => {
  const [{ weights }] = heads
  for (const inputs of [texts, ids]) {
    const answer = await embedSparse({ inputs })
    for (const [at, row] of weights.entries()) {
      expect(answer[at]?.map(({ index }) => index)).toEqual(row.map(([id]) => id))
      for (const [place, [, weight]] of row.entries()) {
        expect(answer[at]?.[place]?.value).toBeCloseTo(weight, 4)
      }
    }
  }
})

it('puts the prompt of the model before texts, and cuts long ones if asked to', async () => {
  const [asked] = await embedSparse({ inputs: 'fox', prompt_name: 'query' })
  expect([asked]).toEqual(await embedSparse({ inputs: 'query: fox' }))
  const inputs = 'fox '.repeat(200)
  const cut = await embedSparse({ inputs, truncate: true })
  expect(cut).toEqual(await embedSparse({ inputs: 'fox '.repeat(62) }))
  expect(await post('/embed_sparse', { inputs })).toMatchObject({
    status: 400,
    body: { error: { param: 'inputs', code: 'context_length_exceeded' } },
  })
  expect(await post('/embed_sparse', { inputs: [[1, 99_999]] })).toMatchObject({
    status: 400,
    body: { error: { param: 'inputs' } },
  })
})

it('serves both heads of BGE-M3 as two models', async () => {
  const [weights = []] = await embedSparse({ model: 'm3-sparse', inputs: texts[0] })
  expect(weights.length).toBeGreaterThan(0)
  const unprompted = { model: 'm3-sparse', inputs: 'a', prompt_name: 'query' }
  expect(await post('/embed_sparse', unprompted)).toMatchObject({
    status: 400,
    body: { error: { param: 'prompt_name', code: 'unsupported_parameter' } },
  })
  const dense = await post('/v1/embeddings', { model: 'm3-dense', input: texts[0] })
  expect(dense).toMatchObject({ status: 200, body: { data: [{ index: 0 }] } })
  expect((await post('/v1/embed_sparse', { model: 'm3-dense', inputs: 'a' })).status).toBe(404)
})
