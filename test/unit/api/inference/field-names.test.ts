import { expect, it } from 'vitest'

import { failure } from '#shared/errors.ts'

import { openSurface } from './surface.ts'

const RANKED = { model: 'tiny-rerank', query: 'q', documents: ['a'] }
const COMPARED = { inputs: { source_sentence: 'a', sentences: ['b', 'c'] } }
const COHERE = { model: 'tiny-embed', input_type: 'search_query' }

/** A request, a field as a worker names it, and the field of the request. */
const ROWS: readonly (readonly [string, object, string, string])[] = [
  ['/v1/embeddings', { model: 'tiny-embed', input: 'a' }, 'input', 'input'],
  [
    '/v1/embeddings',
    { model: 'tiny-embed', input: 'a', output_dimension: 2 },
    'dimensions',
    'output_dimension',
  ],
  ['/embed', { inputs: 'a' }, 'input', 'inputs'],
  ['/embed', { inputs: 'a', prompt_name: 'query' }, 'input_type', 'prompt_name'],
  ['/v1/embed_sparse', { inputs: 'a', model: 'splade' }, 'input', 'inputs'],
  ['/predict', { inputs: 'a' }, 'input', 'inputs'],
  ['/similarity', COMPARED, 'input', 'inputs.sentences'],
  ['/v1/rerank', RANKED, 'documents', 'documents'],
  ['/rerank', { query: 'q', texts: ['a'] }, 'documents', 'texts'],
  ['/v1/score', { text_1: 'q', text_2: 'a' }, 'query', 'text_1'],
  ['/v1/score', { queries: 'q', items: ['a'] }, 'documents', 'items'],
  ['/v1/score', { data_1: 'q', data_2: ['a'] }, 'documents', 'data_2'],
  ['/v1/classify', { model: 'judge', input: 'a', labels: ['b'] }, 'candidate_labels', 'labels'],
  ['/v1/responses', { model: 'tiny-chat', input: 'a' }, 'messages', 'input'],
  ['/v1/responses/compact', { model: 'tiny-chat', input: 'a' }, 'messages', 'input'],
  ['/v1/responses/input_tokens', { model: 'tiny-chat', input: 'a' }, 'messages', 'input'],
]

it.each(ROWS)('%s %j names the field %s of a worker as %s', async (url, body, field, name) => {
  const { app, post } = await openSurface(refusing(field))
  const response = await post(url, body)
  await app.close()
  expect([response.statusCode, response.json().error]).toMatchObject([
    400,
    { param: `${name}[1]`, message: `Invalid '${name}[1]': no.` },
  ])
})

it.each([
  [{ ...COHERE, texts: ['a'] }, 'input', 'texts'],
  [{ ...COHERE, inputs: [{ content: [{ type: 'text', text: 'a' }] }] }, 'input', 'inputs'],
  [{ ...COHERE, texts: ['a'], output_dimension: 4 }, 'dimensions', 'output_dimension'],
])("Cohere's %j names the field %s of a worker as %s", async (body, field, name) => {
  const { app, post } = await openSurface(refusing(field))
  const response = await post('/v2/embed', { ...body, embedding_types: ['float'] })
  await app.close()
  expect(response.json().message).toBe(`Invalid '${name}[1]': no.`)
})

/** A worker that refuses a part of the field. */
function refusing(field: string) {
  const param = `${field}[1]`
  return (): never => {
    throw failure.invalidRequest(`Invalid '${param}': no.`, { param })
  }
}
