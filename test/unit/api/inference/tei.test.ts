import { describe, expect, it } from 'vitest'

import { failure } from '#shared/errors.ts'

import { itRefuses, type Refusal } from './refusals.ts'
import { answering, openSurface } from './surface.ts'

const vector = (...numbers: number[]) =>
  Buffer.from(Float32Array.from(numbers).buffer).toString('base64')

/** The answer of a server whose worker answers this, and the input of the worker. */
async function ask(result: Parameters<typeof answering>[0], url: string, body: object) {
  const { app, post, submitter } = await openSurface(answering(result))
  const response = await post(url, body)
  await app.close()
  return { status: response.statusCode, answer: response.json(), submitter, response }
}

describe('POST /embed', () => {
  const result = { task: 'embed', vectors: [vector(0.5, 1), vector(2, 3)] } as const

  it('answers only vectors, of the first model that makes them', async () => {
    const cut = { truncate: true, truncation_direction: 'Left' }
    const body = { inputs: ['a', 'b'], normalize: true, prompt_name: 'query', ...cut }
    const { status, answer, submitter } = await ask(result, '/embed', body)
    expect([status, answer]).toEqual([
      200,
      [
        [0.5, 1],
        [2, 3],
      ],
    ])
    expect(submitter.input).toMatchObject({
      ...{ task: 'embed', items: ['a', 'b'], role: 'query', tokensMax: 'context' },
      truncationSide: 'left',
    })
    expect(submitter.requests[0]?.model.id).toBe('tiny-embed')
  })

  it('reads token ids and dimensions, and reports vectors that are to be left as they are', async () => {
    const body = { inputs: [[5, 6]], dimensions: 2, normalize: false, truncate: false }
    const { status, submitter, response } = await ask(result, '/embed', body)
    expect([status, response.headers['x-millrace-ignored-parameters']]).toEqual([200, 'normalize'])
    expect(submitter.input).toMatchObject({ items: [[5, 6]], dimensions: 2 })
    expect(submitter.input).not.toHaveProperty('tokensMax')
  })

  const REFUSALS: readonly Refusal[] = [
    [{ inputs: '' }, 'inputs', 'empty_string', /./],
    [{ inputs: Array(2049).fill('a') }, 'inputs', 'array_above_max_length', /2049/],
    [{ inputs: Array(2).fill(Array(180_000).fill(1)) }, 'inputs', 'max_tokens_per_request', /./],
    [{ truncation_direction: 'Up' }, 'truncation_direction', 'invalid_value', /./],
  ]
  itRefuses('/embed', { model: 'tiny-embed', inputs: 'Hi' }, REFUSALS)
})

describe('POST /predict', () => {
  const result = { task: 'classify', labels: ['V', 'S'], probabilities: [[0.25, 0.75]] } as const
  const LABELS = [
    { label: 'S', score: 0.75 },
    { label: 'V', score: 0.25 },
  ]

  it.each([
    ['a', LABELS],
    [['a'], LABELS],
    [[['a']], [LABELS]],
  ])('answers the labels of %j, the most probable first', async (inputs, expected) => {
    const body = { inputs, raw_scores: true, truncate: true, truncation_direction: 'left' }
    const { status, answer, submitter } = await ask(result, '/predict', body)
    expect([status, answer]).toEqual([200, expected])
    expect(submitter.input).toMatchObject({
      ...{ task: 'classify', items: ['a'], isActivated: false, tokensMax: 'context' },
      truncationSide: 'left',
    })
  })

  const REFUSALS: readonly Refusal[] = [
    [{ inputs: ['a', 'b'] }, 'inputs', 'invalid_value', /expected one text/],
    [{ inputs: [['a'], ['a', 'b']] }, 'inputs[1]', 'invalid_value', /expected one text/],
    [
      { parameters: { candidate_labels: ['a'] } },
      'parameters.candidate_labels',
      'invalid_value',
      /to \/v1\/classify/,
    ],
    [{ inputs: Array(1001).fill(['a']) }, 'inputs', 'array_above_max_length', /1001/],
  ]
  itRefuses('/predict', { model: 'judge', inputs: 'Hi' }, REFUSALS)
})

describe('POST /similarity', () => {
  const inputs = { source_sentence: 'a', sentences: ['b', 'c', 'd'] }
  const vectors = [vector(6, 8), vector(-4, 3), vector(0, 0), vector(3, 4)]
  const result = { task: 'embed', vectors } as const

  it('answers the cosine of each sentence and the source, of vectors of any length', async () => {
    const parameters = { truncate: true, truncation_direction: 'Left', prompt_name: 'query' }
    const { status, answer, submitter } = await ask(result, '/similarity', { inputs, parameters })
    expect([status, answer]).toEqual([200, [1, 0, 0]])
    expect(submitter.input).toMatchObject({
      ...{ task: 'embed', items: ['b', 'c', 'd', 'a'], role: 'query', tokensMax: 'context' },
      truncationSide: 'left',
    })
  })

  it('names the source in an error of a worker about the last input', async () => {
    const { app, post } = await openSurface(() => {
      throw failure.invalidRequest("Invalid 'input[3]': too long.", { param: 'input[3]' })
    })
    const { error } = (await post('/similarity', { inputs })).json()
    await app.close()
    expect(error).toMatchObject({
      param: 'inputs.source_sentence',
      message: "Invalid 'inputs.source_sentence': too long.",
    })
  })

  const REFUSALS: readonly Refusal[] = [
    [{ inputs: 'a' }, 'inputs', 'invalid_type', /object/],
    [{ inputs: { ...inputs, sentences: [] } }, 'inputs.sentences', 'empty_array', /./],
    [{ inputs: { sentences: ['a'] } }, 'inputs.source_sentence', 'missing_required_parameter', /./],
    [
      { inputs: { ...inputs, sentences: Array(2048).fill('a') } },
      'inputs.sentences',
      'array_above_max_length',
      /2047/,
    ],
  ]
  itRefuses('/similarity', { inputs }, REFUSALS)
})

it('is not served if its dialect is switched off', async () => {
  const config = { deadlineSeconds: 600, dialectsOff: ['tei'] }
  const { app, post } = await openSurface(undefined, { config })
  const statuses = await Promise.all(
    ['/embed', '/predict', '/similarity'].map(
      async (url) => (await post(url, { inputs: 'a' })).statusCode,
    ),
  )
  await app.close()
  expect(statuses).toEqual([404, 404, 404])
})
