import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, expect, inject, it } from 'vitest'

import { openFaultTiers } from '#test/support/fault-tiers.ts'
import { createDatabase } from '#test/support/services.ts'
import { API_KEY } from '#test/support/tiers.ts'

const MODELS = join(import.meta.dirname, '../../fixtures/models')
const { queries, documents, variants } = JSON.parse(
  readFileSync(join(MODELS, 'pylate/golden.json'), 'utf8'),
) as {
  queries: string[]
  documents: string[]
  variants: [{ queries: number[][][]; documents: number[][][]; scores: number[][] }]
}
const [expected] = variants

let url = ''
let close: () => Promise<void>

beforeAll(async () => {
  const database = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-multi-vector-'))
  const catalogue = join(folder, 'models.json')
  const model = { kind: 'embedding', capabilities: ['multi-vector'] }
  const models = [
    { ...model, id: 'tokens', source: join(MODELS, 'pylate') },
    { ...model, id: 'short', source: join(MODELS, 'colbert'), options: { matryoshka: true } },
  ]
  await writeFile(catalogue, JSON.stringify({ models }))
  const tiers = openFaultTiers({
    databaseUrl: database.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: `multi-${randomUUID().slice(0, 8)}`,
    env: { MILLRACE_CATALOGUE: catalogue, MILLRACE_WORKER_MODELS: 'tokens,short' },
  })
  close = async () => {
    await tiers.stop()
    await database.drop()
    await rm(folder, { recursive: true, force: true })
  }
  const [api] = await Promise.all([tiers.startApi(), tiers.startWorker()])
  url = api.url
}, 300_000)
afterAll(() => close())

async function post(path: string, body: object) {
  const answer = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return { status: answer.status, body: (await answer.json()) as never }
}

/** Compares numbers of any nesting. */
function expectClose(found: unknown, wanted: unknown): void {
  if (typeof wanted === 'number') {
    expect(found).toBeCloseTo(wanted, 4)
    return
  }
  expect(found).toHaveLength((wanted as unknown[]).length)
  for (const [at, part] of (wanted as unknown[]).entries()) {
    expectClose((found as unknown[])[at], part)
  }
}

interface Embedded {
  readonly data: readonly { readonly embeddings: unknown }[]
  readonly usage: object
}

async function embed(fields: object): Promise<Embedded> {
  const answer = await post('/v1/multi-vector', fields)
  expect([answer.status, answer.body]).toEqual([200, expect.anything()])
  return answer.body
}

it('answers queries and documents with the vectors of the reference', async () => {
  for (const [input_type, input, matrices] of [
    ['query', queries, expected.queries],
    ['document', documents, expected.documents],
  ] as const) {
    const { data } = await embed({ model: 'tokens', input, input_type })
    expectClose(
      data.map(({ embeddings }) => embeddings),
      matrices,
    )
  }
  const { usage } = await embed({ model: 'tokens', input: 'river', input_type: 'query' })
  expect(usage).toEqual({ prompt_tokens: 4, total_tokens: 4 })
})

it('ranks and scores with the sums of the reference, in every dialect', async () => {
  const [query] = queries
  const [scores = []] = expected.scores
  const score = await post('/score', { model: 'tokens', text_1: query, text_2: documents })
  const { data } = score.body as { data: { score: number }[] }
  expectClose(
    data.map((each) => each.score),
    scores,
  )
  const order = [...scores.keys()].toSorted((a, b) => (scores[b] ?? 0) - (scores[a] ?? 0))
  for (const path of ['/v1/rerank', '/rerank', '/v2/rerank']) {
    const answer = await post(path, { model: 'tokens', query, documents })
    const { results } = answer.body as { results: { index: number }[] }
    expect(results.map(({ index }) => index)).toEqual(order)
  }
})

it('truncates the vectors of Matryoshka models, and refuses to for others', async () => {
  const { data } = await embed({ model: 'short', input: 'river', dimensions: 4 })
  for (const vector of data.flatMap(({ embeddings }) => embeddings as number[][])) {
    expect(vector).toHaveLength(4)
    expect(Math.hypot(...vector)).toBeCloseTo(1, 5)
  }
  const refused = { model: 'tokens', input: 'river', dimensions: 4 }
  expect(await post('/v1/multi-vector', refused)).toMatchObject({
    status: 400,
    body: { error: { param: 'dimensions', code: 'unsupported_parameter' } },
  })
})

it('refuses long texts that may not be truncated, and other endpoints', async () => {
  const input = 'fox '.repeat(100)
  const whole = { model: 'tokens', input, truncate: false }
  expect(await post('/v1/multi-vector', whole)).toMatchObject({
    status: 400,
    body: { error: { param: 'input', code: 'context_length_exceeded' } },
  })
  const dense = await post('/v1/embeddings', { model: 'tokens', input: 'a' })
  expect(dense).toMatchObject({
    status: 404,
    body: { error: { message: expect.stringContaining('Did you mean to use v1/multi-vector?') } },
  })
})
