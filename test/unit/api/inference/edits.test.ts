import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { itRefuses, type Refusal } from './refusals.ts'
import { openSurface } from './surface.ts'

const EDIT = { model: 'tiny-chat', input: 'teh cat', instruction: 'Fix the spelling' }

describe('POST /v1/edits', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface()
  })
  afterAll(() => surface.app.close())

  it('answers the edited texts, without an id or the name of the model', async () => {
    const response = await surface.post('/v1/edits', { ...EDIT, n: 2 })
    expect(response.json()).toEqual({
      object: 'edit',
      created: 1_750_000_000,
      choices: [
        { text: 'Hello world', index: 0 },
        { text: 'Hello world', index: 1 },
      ],
      usage: expect.objectContaining({ prompt_tokens: 5, completion_tokens: 4, total_tokens: 9 }),
    })
  })

  it('hands every parameter to the worker', async () => {
    await surface.post('/v1/edits', { ...EDIT, n: 3, temperature: 0.5, top_p: 0.9, seed: 7 })
    expect(surface.submitter.input).toMatchObject({
      task: 'generate',
      prompts: [{ form: 'edit', input: 'teh cat', instruction: 'Fix the spelling' }],
      n: 3,
      bestOf: 3,
      maxTokens: null,
      sampling: { temperature: 0.5, topP: 0.9, seed: 7 },
    })
  })

  it.each([{}, { input: null }, { input: '' }])('takes %o as an empty text', async (fields) => {
    const { input: _input, ...rest } = EDIT
    const response = await surface.post('/v1/edits', { ...rest, ...fields })
    expect(response.statusCode).toBe(200)
    expect(surface.submitter.input.prompts[0]).toMatchObject({ form: 'edit', input: '' })
  })

  it('reads the model from the older path', async () => {
    const { model: _model, ...rest } = EDIT
    const response = await surface.post('/v1/engines/gpt-3.5-turbo/edits', rest)
    expect(response.statusCode).toBe(200)
    expect(surface.submitter.requests.at(-1)?.model.id).toBe('tiny-chat')
  })

  it.each([
    ['nope', 'model_not_found'],
    ['tiny-embed', null],
    ['only-chat', null],
  ])('does not edit with the model %s', async (model, code) => {
    const response = await surface.post('/v1/edits', { ...EDIT, model })
    expect([response.statusCode, response.json().error.code]).toEqual([404, code])
  })
})

const REFUSALS: readonly Refusal[] = [
  [
    { instruction: undefined },
    'instruction',
    'missing_required_parameter',
    "Missing required parameter: 'instruction'.",
  ],
  [{ instruction: '' }, 'instruction', 'empty_string', /./],
  [{ input: 5 }, 'input', 'invalid_type', /expected a string, but got an integer/],
  [{ n: 21 }, 'n', 'integer_above_max_value', /Expected a value <= 20/],
  [{ n: 0 }, 'n', 'integer_below_min_value', /./],
  [{ temperature: 2.1 }, 'temperature', 'decimal_above_max_value', /./],
  [{ top_p: -1 }, 'top_p', 'decimal_below_min_value', /./],
  [{ stream: true }, 'stream', 'unknown_parameter', "Unknown parameter: 'stream'."],
]

itRefuses('/v1/edits', EDIT, REFUSALS)
