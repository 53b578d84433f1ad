import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { JobEvent } from '#api/jobs/observers.ts'
import type { CompletionResult } from '#shared/contracts/completion.ts'

import { itRefuses, type Refusal, USER } from './refusals.ts'
import { openSurface } from './surface.ts'

const USAGE = { promptTokens: 0, completionTokens: 0, cachedTokens: 0 }
const TIMINGS = { queueMs: 0, prepareMs: 0, runMs: 0 }
const ADD = { name: 'add', parameters: { type: 'object' } }

function* answers(result: CompletionResult): Generator<JobEvent<'completion'>> {
  yield { type: 'started', workerId: 'w1', promptTokens: 0 }
  yield { type: 'result', result, usage: USAGE, timings: TIMINGS }
}

describe('tokens', () => {
  let surface: Awaited<ReturnType<typeof openSurface>>
  beforeAll(async () => {
    surface = await openSurface(({ input }) =>
      answers(
        input.task === 'detokenize'
          ? { task: 'detokenize', text: 'Hi' }
          : { task: 'tokenize', tokenIds: [7, 8], texts: ['H', 'i'], contextLength: 512 },
      ),
    )
  })
  afterAll(() => surface.app.close())
  const ask = async (path: string, fields: object) => {
    const response = await surface.post(path, { model: 'gpt-3.5-turbo', ...fields })
    return { body: response.json(), input: surface.submitter.requests.at(-1)?.input }
  }

  it('of a prompt are counted and listed', async () => {
    const { body, input } = await ask('/v1/tokenize', { prompt: 'Hi', return_token_strs: true })
    expect(body).toEqual({ count: 2, max_model_len: 512, tokens: [7, 8], token_strs: ['H', 'i'] })
    expect(input).toEqual({
      task: 'tokenize',
      prompt: { form: 'text', text: 'Hi' },
      addSpecialTokens: true,
      withTexts: true,
    })
  })

  it('of a conversation include its functions and template', async () => {
    const { input } = await ask('/v1/tokenize', {
      messages: [USER],
      tools: [{ type: 'function', function: ADD }],
      add_generation_prompt: false,
    })
    expect(input).toMatchObject({
      prompt: { form: 'chat', tools: [ADD], template: { opensAnswer: false } },
      addSpecialTokens: false,
      withTexts: false,
    })
    const marked = await ask('/v1/tokenize', { messages: [USER], add_special_tokens: true })
    expect(marked.input).toMatchObject({ addSpecialTokens: true })
  })

  it('become text again', async () => {
    const { body, input } = await ask('/v1/detokenize', { tokens: [7, 8] })
    expect(body).toEqual({ prompt: 'Hi' })
    expect(input).toEqual({ task: 'detokenize', tokenIds: [7, 8] })
  })

  it.each(['tiny-embed', 'nope'])('are not those of %s', async (model) => {
    const response = await surface.post('/v1/tokenize', { model, prompt: 'Hi' })
    expect(response.statusCode).toBe(404)
  })
})

const TOKENIZE: readonly Refusal[] = [
  [{ prompt: undefined }, 'prompt', 'missing_required_parameter', /./],
  [{ messages: [USER] }, 'messages', 'invalid_value', /together with 'prompt'/],
  [{ add_generation_prompt: true }, 'add_generation_prompt', 'invalid_value', /'messages'/],
  [{ content: 'x' }, 'content', 'unknown_parameter', "Unknown parameter: 'content'."],
]
itRefuses('/v1/tokenize', { model: 'tiny-chat', prompt: 'Hi' }, TOKENIZE)

const DETOKENIZE: readonly Refusal[] = [
  [{ tokens: undefined }, 'tokens', 'missing_required_parameter', /./],
  [{ tokens: [-1] }, 'tokens[0]', 'integer_below_min_value', /./],
]
itRefuses('/v1/detokenize', { model: 'tiny-chat', tokens: [1] }, DETOKENIZE)
