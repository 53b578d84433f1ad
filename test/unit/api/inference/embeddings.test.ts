import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { EmbedInput } from '#shared/contracts/embedding.ts'

import { itRefuses, type Refusal } from './refusals.ts'
import { answering, openSurface } from './surface.ts'

const VECTOR = new Float32Array([0.25, -1.5, Math.fround(0.1)])
const BASE64 = Buffer.from(VECTOR.buffer).toString('base64')
const SCRIPT = answering(({ items }: EmbedInput) => ({
  task: 'embed',
  vectors: items.map(() => BASE64),
  dimensions: 3,
}))

describe('POST /v1/embeddings', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface(SCRIPT)
  })
  afterAll(() => surface.app.close())
  const ask = (fields: object, url = '/v1/embeddings') =>
    surface.post(url, { model: 'tiny-embed', input: 'Hi', ...fields })
  const submitted = () => surface.submitter.requests.at(-1)?.input as unknown as EmbedInput

  it('answers numbers that are exactly those of the base64 form', async () => {
    expect((await ask({})).json()).toEqual({
      object: 'list',
      data: [{ object: 'embedding', index: 0, embedding: [...VECTOR] }],
      model: 'tiny-embed',
      usage: { prompt_tokens: 3, total_tokens: 3 },
    })
    const { data } = (await ask({ encoding_format: 'base64' })).json()
    expect(data[0].embedding).toBe(BASE64)
  })

  it.each([
    ['a text', 'Hi', ['Hi']],
    ['texts', ['a', 'b'], ['a', 'b']],
    ['token ids', [1, 2, 3], [[1, 2, 3]]],
    ['lists of token ids', [[1], [2, 3]], [[1], [2, 3]]],
    ['objects with a text each', [{ text: 'a' }, { text: 'b' }], ['a', 'b']],
  ])('takes %s', async (_title, input, items) => {
    const { data } = (await ask({ input })).json()
    expect(data.map(({ index }: { index: number }) => index)).toEqual(items.map((_, at) => at))
    expect(submitted().items).toEqual(items)
  })

  it.each([
    ['output_dtype', 'int8'],
    ['embedding_type', 'binary'],
    ['embed_dtype', 'float16'],
    ['endianness', 'big'],
  ])('refuses %s %s: the client would decode other numbers', async (param, value) => {
    const refused = await ask({ [param]: value })
    expect(refused.statusCode).toBe(400)
    expect(refused.json().error).toMatchObject({ param, code: 'invalid_value' })
  })

  it('hands dimensions and the sort of text to the worker', async () => {
    const model = 'with-prefixes'
    await ask({ model, dimensions: 2, input_type: 'query', user: 'u', timeout: 20 })
    expect(submitted()).toMatchObject({ dimensions: 2, role: 'query' })
    await ask({ model, input_type: 'document' })
    expect(submitted()).toMatchObject({ dimensions: null, role: 'passage' })
    await ask({})
    expect(submitted()).toMatchObject({ role: 'none' })
    await ask({ output_dimension: 3 })
    expect(submitted()).toMatchObject({ dimensions: 3 })
    await ask({ task: 'text-matching' })
    expect(submitted()).toMatchObject({ role: 'none', taskName: 'text-matching' })
  })

  it.each([
    [{ truncate_prompt_tokens: -1 }, 'context'],
    [{ truncate: true }, 'context'],
    [{ truncate: true, truncate_prompt_tokens: -1 }, 'context'],
    [{ truncate_prompt_tokens: 16 }, 16],
    [{ truncate_prompt_tokens: 16, truncate: null }, 16],
    [{ truncate_prompt_tokens: null }, undefined],
    [{ truncate_prompt_tokens: null, truncate: false }, undefined],
    [{}, undefined],
  ])('hands %o to the worker as the tokens to keep: %s', async (fields, tokensMax) => {
    expect((await ask(fields)).statusCode).toBe(200)
    expect(submitted().tokensMax).toBe(tokensMax)
  })

  it('keeps all dimensions for 0, which clients of Infinity always send', async () => {
    expect((await ask({ dimensions: 0 })).statusCode).toBe(200)
    expect(submitted()).toMatchObject({ dimensions: null })
  })

  it('hands the side that is cut to the worker', async () => {
    await ask({ truncate: true, truncation_side: 'left' })
    expect(submitted()).toMatchObject({ tokensMax: 'context', truncationSide: 'left' })
    await ask({ truncate: true, truncation_side: 'right' })
    expect(submitted()).not.toHaveProperty('truncationSide')
  })

  it('reads the model from the older path', async () => {
    const response = await ask({ model: undefined }, '/v1/engines/tiny-embed/embeddings')
    expect(response.json().model).toBe('tiny-embed')
  })

  it('accepts 2048 inputs and refuses one more', async () => {
    const many = Array.from({ length: 2048 }, () => 'a')
    expect((await ask({ input: many })).json().data).toHaveLength(2048)
    const response = await ask({ input: [...many, 'a'] })
    expect([response.statusCode, response.json().error.param]).toEqual([400, 'input'])
  })

  it('refuses more tokens than a request may have, counted here or by the worker', async () => {
    const ids = Array.from({ length: 151 }, () => Array.from({ length: 2000 }, () => 1))
    const counted = await ask({ input: ids })
    expect(counted.json().error).toMatchObject({ code: 'max_tokens_per_request', param: 'input' })
    const { cancelled } = surface.submitter
    surface.submitter.script = answering({ task: 'embed', vectors: [] }, { promptTokens: 300_001 })
    const received = await ask({})
    surface.submitter.script = SCRIPT
    expect(received.json().error).toMatchObject({ code: 'max_tokens_per_request', param: 'input' })
    expect(surface.submitter.cancelled).toBe(cancelled + 1)
  })

  it.each(['tiny-chat', 'tiny-rerank', 'judge', 'nope'])(
    'does not embed with %s',
    async (model) => {
      expect((await ask({ model })).statusCode).toBe(404)
    },
  )
})

describe('POST /v1/rerank', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface(answering({ task: 'rerank', scores: [0.2, 0.9, 0.5] }))
  })
  afterAll(() => surface.app.close())
  const ask = (fields: object) =>
    surface.post('/v1/rerank', {
      model: 'tiny-rerank',
      query: 'cats',
      documents: ['a', { text: 'b' }, 'c'],
      ...fields,
    })

  it('answers the best documents first', async () => {
    expect((await ask({})).json()).toEqual({
      id: expect.stringMatching(/^rerank-\w{24}$/),
      object: 'list',
      model: 'tiny-rerank',
      results: [
        { index: 1, relevance_score: 0.9, document: { text: 'b' } },
        { index: 2, relevance_score: 0.5, document: { text: 'c' } },
        { index: 0, relevance_score: 0.2, document: { text: 'a' } },
      ],
      usage: { prompt_tokens: 3, total_tokens: 3 },
    })
    expect(surface.submitter.requests.at(-1)?.input).toEqual({
      task: 'rerank',
      query: 'cats',
      documents: ['a', 'b', 'c'],
    })
  })

  it.each([
    [{ top_n: 2, return_documents: false }, 2],
    [{ top_k: 1, truncation: true }, 1],
    [{ top_n: 0, return_documents: false }, 3],
  ])('leaves the texts out and ends after top_n with %j', async (fields, count) => {
    const { results } = (await ask(fields)).json()
    expect(results).toEqual(
      [
        { index: 1, relevance_score: 0.9 },
        { index: 2, relevance_score: 0.5 },
        { index: 0, relevance_score: 0.2 },
      ].slice(0, count),
    )
  })

  it.each([
    [{ truncation_direction: 'Left' }, { truncationSide: 'left' }],
    [{ truncation_side: 'left' }, { truncationSide: 'left' }],
    [{ truncate: false }, { isCut: false }],
    [{ truncation: false }, { isCut: false }],
    [{ truncate: true, truncation_direction: 'Right' }, {}],
  ])('hands %j to the worker as %j', async (fields, expected) => {
    expect((await ask(fields)).statusCode).toBe(200)
    const input = { task: 'rerank', query: 'cats', documents: ['a', 'b', 'c'] }
    expect(surface.submitter.requests.at(-1)?.input).toEqual({ ...input, ...expected })
  })

  it.each([{ use_activation: false }, { raw_scores: true }])(
    'asks for logits with %j',
    async (fields) => {
      await ask(fields)
      expect(surface.submitter.requests.at(-1)?.input).toMatchObject({ isActivated: false })
    },
  )

  it('accepts the parameter that cuts long documents, as they are cut anyway', async () => {
    const response = await ask({ truncate_prompt_tokens: -1, truncation: true, timeout: 20 })
    expect(response.statusCode).toBe(200)
  })

  it('does not rank with a model that embeds', async () => {
    expect((await ask({ model: 'tiny-embed' })).statusCode).toBe(404)
  })
})

const EMBEDDING_REFUSALS: readonly Refusal[] = [
  [{ input: undefined }, 'input', 'missing_required_parameter', /./],
  [{ input: '' }, 'input', 'empty_string', /./],
  [{ input: [] }, 'input', 'empty_array', /./],
  [{ input: ['a', ''] }, 'input[1]', 'empty_string', /./],
  [{ input: [[]] }, 'input[0]', 'empty_array', /./],
  [{ input: ['a', 1] }, 'input[1]', 'invalid_type', /./],
  [{ input: [-1] }, 'input[0]', 'integer_below_min_value', /./],
  [{ input: { text: 'a' } }, 'input', 'invalid_type', /./],
  [{ input: [{ text: 'a' }, {}] }, 'input[1]', 'invalid_value', /one of 'text' and 'image'/],
  [{ input: [{ text: 'a', image: 'b' }] }, 'input[0]', 'invalid_value', /./],
  [{ input: [{ text: 'a' }, { text: '' }] }, 'input[1].text', 'empty_string', /./],
  [{ input: [{ image: 'aGk=' }] }, 'input[0].image', 'unsupported_value', /is none of them/],
  [{ modality: 'image', input: 'aGk=' }, 'input', 'unsupported_value', /is none of them/],
  [{ modality: 'image', input: ['aGk='] }, 'input[0]', 'unsupported_value', /is none of them/],
  [{ modality: 'image', input: [1] }, 'input[0]', 'invalid_value', /'modality' is 'image'/],
  [{ modality: 'audio' }, 'modality', 'invalid_value', /'text' and 'image'/],
  [{ input: [{ audio: 'aGk=' }] }, 'input[0].audio', 'unknown_parameter', /./],
  [
    { messages: [{ role: 'user', content: 'a' }] },
    'messages',
    'unsupported_parameter',
    /as 'input'/,
  ],
  [
    { encoding_format: 'md5' },
    'encoding_format',
    'invalid_value',
    "Invalid value: 'md5'. Supported values are: 'float' and 'base64'.",
  ],
  [{ dimensions: -1 }, 'dimensions', 'integer_below_min_value', /./],
  [{ truncate_prompt_tokens: -2 }, 'truncate_prompt_tokens', 'integer_below_min_value', /./],
  [
    { truncate_prompt_tokens: 0 },
    'truncate_prompt_tokens',
    'integer_below_min_value',
    "Invalid 'truncate_prompt_tokens': expected -1 or a value >= 1, but got 0 instead.",
  ],
  [{ truncate_prompt_tokens: 1.5 }, 'truncate_prompt_tokens', 'invalid_type', /./],
  [{ truncate: 'right' }, 'truncate', 'invalid_type', /./],
  [
    { truncate: true, truncate_prompt_tokens: 16 },
    'truncate',
    'invalid_value',
    "Invalid value for 'truncate': true contradicts 'truncate_prompt_tokens', 16.",
  ],
  [{ truncate: false, truncate_prompt_tokens: -1 }, 'truncate', 'invalid_value', /contradicts/],
  [{ truncate: false, truncate_prompt_tokens: 16 }, 'truncate', 'invalid_value', /contradicts/],
  [{ truncation_side: 'middle' }, 'truncation_side', 'invalid_value', /./],
]
itRefuses('/v1/embeddings', { model: 'tiny-embed', input: 'Hi' }, EMBEDDING_REFUSALS)

const RERANK = { model: 'tiny-rerank', query: 'cats', documents: ['a'] }
const RERANK_REFUSALS: readonly Refusal[] = [
  [{ query: '' }, 'query', 'empty_string', /./],
  [{ documents: [] }, 'documents', 'empty_array', /./],
  [{ documents: [5] }, 'documents[0]', 'invalid_type', /./],
  [{ documents: [{ title: 'a' }] }, 'documents[0].text', 'missing_required_parameter', /./],
  [{ top_n: -1 }, 'top_n', 'integer_below_min_value', /./],
  [{ truncate_prompt_tokens: 16 }, 'truncate_prompt_tokens', 'invalid_value', /./],
  [{ truncation_side: 'Left' }, 'truncation_side', 'invalid_value', /./],
  [{ max_chunks_per_doc: 1 }, 'max_chunks_per_doc', 'unknown_parameter', /./],
]
itRefuses('/v1/rerank', RERANK, RERANK_REFUSALS)
