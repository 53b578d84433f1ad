import { afterAll, beforeAll, expect, it } from 'vitest'

import type { JobEvent } from '#api/jobs/observers.ts'
import type { GenerateInput, RankedToken } from '#shared/contracts/completion.ts'

import { openSurface, speak } from './surface.ts'

const TOKENS: RankedToken[] = [
  { tokenId: 7, token: 'b', logprob: -2, rank: 4 },
  { tokenId: 3, token: 'a', logprob: -0.5, rank: 1 },
]
const PRESENTED = [
  null,
  {
    7: { logprob: -2, rank: 4, decoded_token: 'b' },
    3: { logprob: -0.5, rank: 1, decoded_token: 'a' },
  },
]

let surface: Awaited<ReturnType<typeof openSurface>>

beforeAll(async () => {
  surface = await openSurface(({ input }) => withScores(input as GenerateInput))
})
afterAll(() => surface.app.close())

function* withScores(input: GenerateInput): Generator<JobEvent<'completion'>> {
  for (const event of speak(input, ['Hello'])) {
    if (event.type === 'result' && input.promptLogprobs !== undefined) {
      const promptLogprobs = input.prompts.map(() => [null, TOKENS])
      yield { ...event, result: { ...event.result, promptLogprobs } as typeof event.result }
    } else yield event
  }
}

const chat = (fields: object) =>
  surface.post('/v1/chat/completions', {
    model: 'tiny-chat',
    messages: [{ role: 'user', content: 'Say hello' }],
    ...fields,
  })
const complete = (fields: object) =>
  surface.post('/v1/completions', { model: 'tiny-chat', prompt: ['x', 'y'], ...fields })

it('returns the log-probabilities of the prompt by token id on demand', async () => {
  expect((await chat({ prompt_logprobs: 1 })).json().prompt_logprobs).toEqual(PRESENTED)
  expect(surface.submitter.input).toMatchObject({ promptLogprobs: 1 })
  const { choices } = (await complete({ prompt_logprobs: 0 })).json()
  expect(choices).toHaveLength(2)
  for (const choice of choices) expect(choice.prompt_logprobs).toEqual(PRESENTED)
  for (const ask of [chat, complete]) {
    expect((await ask({ prompt_logprobs: null })).body).not.toContain('prompt_logprobs')
  }
})

it.each([
  [{ prompt_logprobs: 1, stream: true }, /not available when 'stream' is enabled/],
  [{ prompt_logprobs: -1 }, /prompt_logprobs/],
  [{ prompt_logprobs: 21 }, /prompt_logprobs/],
])('refuses %j', async (fields, message) => {
  for (const ask of [chat, complete]) {
    const answer = await ask(fields)
    expect([answer.statusCode, answer.json().error.param]).toEqual([400, 'prompt_logprobs'])
    expect(answer.json().error.message).toMatch(message)
  }
})
