import { afterAll, beforeAll, expect, it } from 'vitest'

import type { JobEvent } from '#api/jobs/observers.ts'
import type { GenerateInput } from '#shared/contracts/completion.ts'

import { openSurface, readStream, speak } from './surface.ts'

const PROMPT_IDS = [[5, 6]]
const USER = { role: 'user', content: 'Say hello' }

let surface: Awaited<ReturnType<typeof openSurface>>

beforeAll(async () => {
  surface = await openSurface(({ input }) => withPromptIds(input as GenerateInput))
})
afterAll(() => surface.app.close())

/** As a worker answers: a stream has the ids of its prompt at the beginning, others at the end. */
function* withPromptIds(input: GenerateInput): Generator<JobEvent<'completion'>> {
  const report = input.returnsPromptTokens === true && { promptTokenIds: PROMPT_IDS }
  for (const event of speak(input, ['Hel', 'lo'])) {
    if (event.type === 'started') yield { ...event, ...(input.stream && report) }
    else if (event.type === 'result' && event.result.task === 'generate') {
      yield { ...event, result: { ...event.result, ...(!input.stream && report) } }
    } else yield event
  }
}

const chat = (fields: object) =>
  surface.post('/v1/chat/completions', { model: 'tiny-chat', messages: [USER], ...fields })
const complete = (fields: object) =>
  surface.post('/v1/completions', { model: 'tiny-chat', prompt: 'x', ...fields })
const ASKED = { return_token_ids: true }

it('returns the token ids of prompt and answer on demand', async () => {
  const answer = (await chat(ASKED)).json()
  expect([answer.prompt_token_ids, answer.choices[0].token_ids]).toEqual([
    [5, 6],
    [0, 1],
  ])
  const [choice] = (await complete(ASKED)).json().choices
  expect([choice.prompt_token_ids, choice.token_ids]).toEqual([
    [5, 6],
    [0, 1],
  ])
  for (const ask of [chat, complete]) expect((await ask({})).body).not.toContain('token_ids')
})

it('streams them, those of the prompt first', async () => {
  const { chunks } = readStream((await chat({ ...ASKED, stream: true })).body)
  const idsOf = (chunk: object) => (chunk as { token_ids?: number[] }).token_ids ?? []
  expect(chunks.map((chunk) => chunk.prompt_token_ids)).toEqual([
    [5, 6],
    ...Array(3).fill(undefined),
  ])
  expect(chunks.flatMap(({ choices }) => choices.flatMap(idsOf))).toEqual([0, 1])
  const completed = readStream((await complete({ ...ASKED, stream: true })).body).chunks
  const choices = completed.flatMap((chunk) => chunk.choices)
  expect(choices.flatMap(idsOf)).toEqual([0, 1])
  expect(choices[0]).toMatchObject({ prompt_token_ids: [5, 6] })
  expect(choices[1]).not.toHaveProperty('prompt_token_ids')
})

it('returns the token that ended an answer behind those of its text', async () => {
  surface.submitter.script = function* ({ input }): Generator<JobEvent<'completion'>> {
    for (const event of withPromptIds(input as GenerateInput)) {
      if (event.type === 'result' && event.result.task === 'generate') {
        const candidates = event.result.candidates.map((one) => ({ ...one, endTokenId: 9 }))
        yield { ...event, result: { ...event.result, candidates } }
      } else if (event.type === 'delta') {
        const deltas = event.deltas.map((one) =>
          one.finishReason === undefined ? one : { ...one, endTokenId: 9 },
        )
        yield { ...event, deltas }
      } else yield event
    }
  }
  for (const ask of [chat, complete]) {
    expect((await ask(ASKED)).json().choices[0].token_ids).toEqual([0, 1, 9])
    const { chunks } = readStream((await ask({ ...ASKED, stream: true })).body)
    const ids = chunks.flatMap(({ choices }) =>
      choices.flatMap((one) => (one as { token_ids?: number[] }).token_ids ?? []),
    )
    expect(ids).toEqual([0, 1, 9])
  }
  surface.submitter.script = ({ input }) => withPromptIds(input as GenerateInput)
})

it('asks the worker for names of tokens by their ids on demand', async () => {
  for (const ask of [chat, complete]) {
    await ask({ return_tokens_as_token_ids: true, logprobs: ask === chat ? true : 1 })
    expect(surface.submitter.input).toMatchObject({ namesTokensById: true })
  }
})

it('echoes the last message of the assistant in a chat', async () => {
  const messages = [USER, { role: 'assistant', content: 'Well, ' }]
  const fields = { messages, echo: true, continue_final_message: true }
  expect((await chat(fields)).json().choices[0].message.content).toBe('Well, Hello')
  const { chunks } = readStream((await chat({ ...fields, stream: true })).body)
  const pieces = chunks.map(({ choices }) => choices[0]?.delta?.content ?? '')
  expect(pieces.join('')).toBe('Well, Hello')
  expect((await chat({ echo: true })).json().choices[0].message.content).toBe('Hello')
})
