import { describe, expect, it } from 'vitest'

import { createBatchExecutor } from '#api/inference/batchable.ts'
import { systemClock } from '#shared/clock.ts'
import type { EmbedInput } from '#shared/contracts/embedding.ts'
import { countTurns } from '#test/support/turns.ts'

import { answering, CATALOGUE, type Script, ScriptedSubmitter, speak } from './surface.ts'

const ONE = 'AACAPw=='

const play =
  (vector: string): Script =>
  (request) =>
    request.input.task === 'generate'
      ? speak(request.input, ['Hello'])
      : answering(({ items }: EmbedInput) => ({
          task: 'embed',
          vectors: items.map(() => vector),
          dimensions: 1,
        }))(request)

function open(
  checkQuota: (organizationId: string) => Promise<void> = async () => {},
  vector = ONE,
) {
  const submitter = new ScriptedSubmitter(play(vector))
  const config = { deadlineSeconds: 600 }
  const execute = createBatchExecutor({
    submitter,
    catalogue: CATALOGUE,
    clock: systemClock,
    config,
    checkQuota,
  })
  const run = async (
    endpoint: string,
    body: object,
    modelIds: readonly string[] | null = null,
  ): Promise<object> => {
    const answer = await execute({
      endpoint,
      body,
      organizationId: 'org-a',
      modelIds,
      ...{ requestId: 'batch_1:7', apiKeyId: 'key_1', userId: undefined },
      signal: new AbortController().signal,
    })
    return typeof answer === 'string' ? JSON.parse(answer) : answer
  }
  return { submitter, run }
}

const MESSAGES = [{ role: 'user', content: 'Hi' }]

describe('a request of a batch', () => {
  it.each([
    ['/v1/chat/completions', { model: 'tiny-chat', messages: MESSAGES }, 'chat.completion'],
    ['/v1/responses', { model: 'tiny-chat', input: 'Hi' }, 'response'],
    ['/v1/completions', { model: 'gpt-3.5-turbo', prompt: 'Hi' }, 'text_completion'],
    ['/v1/embeddings', { model: 'tiny-embed', input: ['a'] }, 'list'],
  ])('%s is answered as by its endpoint, behind all others', async (endpoint, body, object) => {
    const { submitter, run } = open()
    expect(await run(endpoint, body)).toMatchObject({ object, usage: expect.anything() })
    const account = { requestId: 'batch_1:7', usageId: 'batch_1:7', apiKeyId: 'key_1' }
    expect(submitter.requests).toMatchObject([
      { priorityClass: 'batch', organizationId: 'org-a', account },
    ])
  })

  it('is not run for an organization that has nothing left', async () => {
    const { submitter, run } = open(async (organizationId) => {
      throw new Error(`nothing is left of ${organizationId}`)
    })
    const asked = run('/v1/completions', { model: 'gpt-3.5-turbo', prompt: 'Hi' })
    await expect(asked).rejects.toThrow('nothing is left of org-a')
    expect(submitter.requests).toEqual([])
  })

  it('answers vectors in the format asked for', async () => {
    const body = { model: 'tiny-embed', input: 'a' }
    expect(await open().run('/v1/embeddings', body)).toMatchObject({ data: [{ embedding: [1] }] })
    expect(
      await open().run('/v1/embeddings', { ...body, encoding_format: 'base64' }),
    ).toMatchObject({ data: [{ embedding: 'AACAPw==' }] })
  })

  it('for very many vectors lets others have their turn while they are written', async () => {
    const numbers = Float32Array.from({ length: 1536 }, (_number, place) => place / 7)
    const { run } = open(undefined, Buffer.from(numbers.buffer).toString('base64'))
    const waiting = countTurns()
    const input = Array.from({ length: 100 }, () => 'a')
    const answer = await run('/v1/embeddings', { model: 'tiny-embed', input })
    const data = input.map((_, index) => ({ index, embedding: [...numbers] }))
    expect(answer).toMatchObject({ data })
    expect(waiting.end()).toBeGreaterThan(10)
  })

  it.each([
    ['a wrong field', { messages: MESSAGES, temperature: 3 }, 'invalidRequest', 'temperature'],
    ['no messages', {}, 'invalidRequest', 'messages'],
    ['an unknown model', { model: 'nope', messages: MESSAGES }, 'notFound', undefined],
  ])('with %s is refused as by its endpoint', async (_title, fields, kind, param) => {
    const { submitter, run } = open()
    const body = { model: 'tiny-chat', ...fields }
    await expect(run('/v1/chat/completions', body)).rejects.toMatchObject({ kind, param })
    expect(submitter.requests).toEqual([])
  })

  it('may use only the models of the key that made the batch', async () => {
    const { run } = open()
    const body = { model: 'tiny-chat', messages: MESSAGES }
    await expect(run('/v1/chat/completions', body, ['tiny-embed'])).rejects.toMatchObject({
      code: 'model_not_found',
    })
    expect(await run('/v1/chat/completions', body, ['tiny-chat'])).toHaveProperty('choices')
  })
})
