import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { describe, expect, it, onTestFinished } from 'vitest'

import { createBatchExecutor } from '#api/inference/batchable.ts'
import { createImageIntake } from '#api/inference/request-images.ts'
import { HeldBytes } from '#api/jobs/held-bytes.ts'
import type { SubmitRequest } from '#api/jobs/observers.ts'
import { systemClock } from '#shared/clock.ts'
import type { GenerateInput } from '#shared/contracts/completion.ts'
import type { EmbedInput } from '#shared/contracts/embedding.ts'
import type { QueueKind } from '#shared/contracts/job.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { countTurns } from '#test/support/turns.ts'

import { answering, CATALOGUE, type Script, ScriptedSubmitter, SILENT, speak } from './surface.ts'

const ONE = 'AACAPw=='

const play =
  (vector: string): Script =>
  (request) => {
    const { kind, input } = request as unknown as SubmitRequest<QueueKind>
    if (kind === 'image') return answering({ imageKeys: ['media/one.png'] })(request)
    if (input.task === 'classify') {
      const probabilities = [[0.75, 0.25]]
      return answering({ task: 'classify', labels: ['V', 'fine'], probabilities })(request)
    }
    if (input.task === 'sparse') {
      const values = Buffer.from(Float32Array.of(1).buffer).toString('base64')
      return answering({ task: 'sparse', vectors: [{ indices: 'AAAAAA==', values }] })(request)
    }
    if (input.task === 'multi-vector') {
      return answering({ task: 'multi-vector', matrices: [ONE], width: 1 })(request)
    }
    if (input.task === 'generate') return speak(request.input as GenerateInput, ['Hello'])
    return input.task === 'rerank'
      ? answering({ task: 'rerank', scores: [0.25, 0.75] })(request)
      : answering(({ items }: EmbedInput) => ({
          task: 'embed',
          vectors: items.map(() => vector),
          dimensions: 1,
        }))(request)
  }

function open(
  checkQuota: (organizationId: string) => Promise<void> = async () => {},
  vector = ONE,
  store = openDirectoryStore(tmpdir()),
) {
  const submitter = new ScriptedSubmitter(play(vector))
  const config = { deadlineSeconds: 600 }
  const execute = createBatchExecutor({
    submitter,
    catalogue: CATALOGUE,
    workersSeen: () => [],
    clock: systemClock,
    config,
    store,
    files: { find: async () => undefined },
    images: createImageIntake({ countMax: 1, bytesMax: 1024, urls: 'none' }),
    temporaryBytes: new HeldBytes(1024 ** 2),
    log: SILENT,
    checkQuota,
  })
  const uses: object[] = []
  const run = async (
    endpoint: string,
    body: object,
    modelIds: readonly string[] | null = null,
  ): Promise<object> => {
    const { body: answer, ...use } = await execute({
      endpoint,
      body,
      organizationId: 'org-a',
      modelIds,
      requestId: 'batch_1:7',
      apiKeyId: 'key_1',
      userId: undefined,
      signal: new AbortController().signal,
    })
    uses.push(use)
    return typeof answer === 'string' ? JSON.parse(answer) : answer
  }
  return { submitter, run, uses }
}

const MESSAGES = [{ role: 'user', content: 'Hi' }]

describe('a request of a batch', () => {
  it('is refused with the field names of its endpoint', async () => {
    const tokens = Array(180_000).fill(1)
    await expect(
      open().run('/v1/embed_sparse', { model: 'splade', inputs: [tokens, tokens] }),
    ).rejects.toMatchObject({ param: 'inputs', code: 'max_tokens_per_request' })
  })

  it.each([
    ['/v1/chat/completions', { model: 'tiny-chat', messages: MESSAGES }, 'chat.completion'],
    ['/v1/responses', { model: 'tiny-chat', input: 'Hi' }, 'response'],
    ['/v1/completions', { model: 'gpt-3.5-turbo', prompt: 'Hi' }, 'text_completion'],
    ['/v1/embeddings', { model: 'tiny-embed', input: ['a'] }, 'list'],
    ['/v1/rerank', { model: 'tiny-rerank', query: 'a', documents: ['b', 'c'] }, 'list'],
    ['/v1/classify', { model: 'judge', input: 'a' }, 'list'],
  ])('%s is answered as by its endpoint, behind all others', async (endpoint, body, object) => {
    const { submitter, run, uses } = open()
    expect(await run(endpoint, body)).toMatchObject({ object, usage: expect.anything() })
    const modelId = submitter.requests[0]?.model.id
    expect(uses).toEqual([
      { modelId, usage: expect.objectContaining({ cachedTokens: expect.any(Number) }) },
    ])
    const account = { requestId: 'batch_1:7', usageId: 'batch_1:7', apiKeyId: 'key_1' }
    expect(submitter.requests).toMatchObject([
      { priorityClass: 'batch', organizationId: 'org-a', account },
    ])
  })

  it('is not run for an organization whose quota is used up', async () => {
    const { submitter, run } = open(async (organizationId) => {
      throw new Error(`nothing is left of ${organizationId}`)
    })
    const asked = run('/v1/completions', { model: 'gpt-3.5-turbo', prompt: 'Hi' })
    await expect(asked).rejects.toThrow('nothing is left of org-a')
    expect(submitter.requests).toEqual([])
  })

  it('answers messages in their own dialect', async () => {
    const { run } = open()
    const body = { model: 'tiny-chat', max_tokens: 5, messages: MESSAGES }
    expect(await run('/v1/messages', body)).toMatchObject({
      type: 'message',
      role: 'assistant',
      content: [{ type: 'text', text: 'Hello' }],
    })
  })

  it('answers texts as weights of tokens', async () => {
    const { run, submitter } = open()
    const answer = await run('/v1/embed_sparse', { inputs: ['a'] })
    expect(answer).toEqual([[{ index: 0, value: 1 }]])
    expect(submitter.requests).toMatchObject([{ input: { task: 'sparse', items: ['a'] } }])
  })

  it('answers texts as vectors of their tokens', async () => {
    const { run, submitter } = open()
    expect(await run('/v1/multi-vector', { input: 'a', input_type: 'query' })).toMatchObject({
      ...{ model: 'colbert', data: [{ index: 0, embeddings: [[1]] }] },
    })
    const input = { task: 'multi-vector', items: ['a'], role: 'query' }
    expect(submitter.requests).toMatchObject([{ input, priorityClass: 'batch' }])
  })

  it('labels texts and judges them', async () => {
    const { run } = open()
    expect(await run('/v1/classify', { model: 'judge', input: 'a' })).toMatchObject({
      data: [{ index: 0, label: 'V', probs: [0.75, 0.25], num_classes: 2 }],
    })
    expect(await run('/v1/moderations', { input: 'a' })).toMatchObject({
      results: [{ flagged: true, category_scores: { violence: 0.75 } }],
    })
  })

  it.each([
    ['{"__proto__":{"model":"tiny-embed"},"messages":[{"role":"user","content":"Hi"}]}', 'model'],
    ['{"model":"tiny-chat","messages":[],"__proto__":{"messages":1}}', '__proto__'],
    ['{"model":{"toString":1},"messages":[{"role":"user","content":"Hi"}]}', 'model'],
    ['{"model":"tiny-chat","messages":{"length":-1}}', 'messages'],
    ['{"constructor":{"prototype":{"model":"tiny-chat"}}}', 'model'],
  ])('that is %s is refused by the name of its field', async (text, param) => {
    const { submitter, run } = open()
    const asked = run('/v1/chat/completions', JSON.parse(text))
    await expect(asked).rejects.toMatchObject({ kind: 'invalidRequest', param })
    expect(submitter.requests).toEqual([])
  })

  it('orders documents by their relevance', async () => {
    const body = { model: 'tiny-rerank', query: 'a', documents: ['b', 'c'], top_n: 1 }
    const results = [{ index: 1, relevance_score: 0.75 }]
    expect(await open().run('/v1/rerank', body)).toMatchObject({ results })
  })

  it('answers the bytes of images, and no addresses, which expire', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'millrace-batchable-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const store = openDirectoryStore(folder)
    await store.put('media/one.png', Buffer.from('a circle'))
    const { run } = open(undefined, ONE, store)
    const body = { prompt: 'A circle' }
    await expect(
      run('/v1/images/generations', { ...body, response_format: 'url' }),
    ).rejects.toMatchObject({ param: 'response_format' })
    expect(await run('/v1/images/generations', body)).toMatchObject({
      data: [{ b64_json: Buffer.from('a circle').toString('base64') }],
    })
    expect(await Array.fromAsync(store.list('media'))).toEqual([])
  })

  it('answers vectors in the requested format', async () => {
    const body = { model: 'tiny-embed', input: 'a' }
    expect(await open().run('/v1/embeddings', body)).toMatchObject({ data: [{ embedding: [1] }] })
    expect(
      await open().run('/v1/embeddings', { ...body, encoding_format: 'base64' }),
    ).toMatchObject({ data: [{ embedding: 'AACAPw==' }] })
  })

  it('for very many vectors lets other requests run while they are written', async () => {
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

  it('may use only the models of the key that created the batch', async () => {
    const { run } = open()
    const body = { model: 'tiny-chat', messages: MESSAGES }
    await expect(run('/v1/chat/completions', body, ['tiny-embed'])).rejects.toMatchObject({
      code: 'model_not_found',
    })
    expect(await run('/v1/chat/completions', body, ['tiny-chat'])).toHaveProperty('choices')
  })
})
