import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { moderate } from '#api/inference/moderations/categories.ts'
import type { ClassifyInput } from '#shared/contracts/embedding.ts'

import { API_KEY, answering, openSurface, serveSurface } from './surface.ts'

const LABELS = ['hate', 'V', 'fine', 'spam']
const ROW = [0.1, 0.8, 0.9, 0.7]
const QUEUE = { kind: 'embedding', modelId: 'judge', isReady: true } as const
const JUDGED = answering(({ items }: ClassifyInput) => ({
  task: 'classify',
  labels: LABELS,
  probabilities: items.map(() => ROW),
}))

let surface: Awaited<ReturnType<typeof openSurface>>
beforeAll(async () => {
  surface = await openSurface(JUDGED)
})
afterAll(() => surface.app.close())

const input = () => surface.submitter.requests.at(-1)?.input as unknown as ClassifyInput

describe('POST /v1/moderations', () => {
  const ask = (body: object) => surface.post('/v1/moderations', body)

  it('names every category, and those of the model besides', async () => {
    const { id, model, results } = (await ask({ input: 'a' })).json()
    expect([id, model]).toEqual([expect.stringMatching(/^modr-/), 'judge'])
    const [result] = results
    expect(result.flagged).toBe(true)
    expect(Object.keys(result.categories)).toHaveLength(14)
    expect(result.categories).toMatchObject({ hate: false, violence: true, spam: true })
    expect(result.category_scores).toMatchObject({ hate: 0.1, violence: 0.8, spam: 0.7, sexual: 0 })
    expect(result.category_scores).not.toHaveProperty('fine')
    expect(result.category_applied_input_types).toMatchObject({ violence: ['text'], sexual: [] })
  })

  it.each([
    ['a text', 'a', ['a']],
    ['several texts', ['a', 'b'], ['a', 'b']],
    [
      'the parts of one message',
      [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ],
      ['a\nb'],
    ],
  ])('judges %s', async (_name, given, texts) => {
    const response = await ask({ input: given, model: 'omni-moderation-latest' })
    expect(response.json().results).toHaveLength(texts.length)
    const reading = { tokensMax: 'split', hasMarkers: true, isActivated: true }
    expect(input()).toEqual({ task: 'classify', items: texts, ...reading })
  })

  it.each([undefined, null, 'text-moderation-stable', 'omni-moderation-2024-09-26'])(
    'asks the first model that classifies where the name is %s',
    async (model) => {
      expect((await ask({ input: 'a', model })).json().model).toBe('judge')
    },
  )

  it('refuses more probabilities than an answer may have before a job is queued', async () => {
    const worker = { queues: [{ ...QUEUE, labelCount: 200 }] }
    const busy = await openSurface(JUDGED, { workersSeen: () => [worker] })
    const response = await busy.post('/v1/moderations', { input: Array(501).fill('a') })
    expect(response.json().error).toMatchObject({
      param: 'input',
      code: 'array_above_max_length',
      message: expect.stringContaining('at most 500 texts'),
    })
    expect(busy.submitter.requests).toEqual([])
    await busy.app.close()
  })

  it.each([
    [{ input: Array(1001).fill('a') }, 400, 'input'],
    [{ input: 'a', model: 'moderation-of-another-name' }, 404, null],
    [{}, 400, 'input'],
    [{ input: [] }, 400, 'input'],
    [
      { input: [{ type: 'image_url', image_url: { url: 'https://a.test/b.png' } }] },
      400,
      'input[0].image_url',
    ],
    [{ input: 'a', model: 'tiny-embed' }, 404, 'model'],
  ])('refuses %j', async (body, status, param) => {
    const response = await ask(body)
    expect([response.statusCode, response.json().error.param]).toEqual([status, param])
  })

  it("answers OpenAI's client", async () => {
    const served = await serveSurface(JUDGED)
    const client = new OpenAI({ apiKey: API_KEY, baseURL: served.baseURL })
    const { results } = await client.moderations.create({ input: ['a', 'b'] })
    expect(results.map(({ flagged }) => flagged)).toEqual([true, true])
    expect(results[0]?.category_scores['self-harm/intent']).toBe(0)
    await served.close()
  })
})

describe('the categories of a model', () => {
  const read = (labels: readonly string[], categories?: Record<string, string | null>) =>
    moderate([
      {
        model: { id: 'm', options: categories ? { categories } : {} },
        type: 'text',
        labels,
        probabilities: [0.2, 0.6],
      },
    ])

  it.each([
    ['Self_Harm', 'self-harm'],
    ['SELF-HARM', 'self-harm'],
    ['violence/graphic', 'violence/graphic'],
  ])('follow from the label %s', (label, category) => {
    expect(read(['hate', label]).category_scores[category]).toBe(0.6)
  })

  it('are flagged only if they are known', () => {
    expect(read(['hate', 'neutral']).flagged).toBe(false)
    expect(read(['hate', 'H2'], { H2: 'hate' })).toMatchObject({
      flagged: true,
      category_scores: { hate: 0.6 },
    })
  })

  it.each(['constructor', '__proto__'])('keep the label %s under its name', (label) => {
    const { category_scores: scores } = read(['hate', label])
    expect(Object.getOwnPropertyDescriptor(scores, label)?.value).toBe(0.6)
  })

  it('are refused if the model has none', () => {
    expect(() => read(['LABEL_0', 'LABEL_1'])).toThrow('options.categories')
  })
})

describe.each(['/classify', '/v1/classify'])('POST %s', (url) => {
  it('labels texts', async () => {
    const response = await surface.post(url, { model: 'judge', input: ['a', 'b'] })
    expect(response.json()).toMatchObject({
      id: expect.stringMatching(/^classify-/),
      object: 'list',
      model: 'judge',
      data: [
        { index: 0, label: 'fine', probs: ROW, num_classes: 4 },
        { index: 1, label: 'fine', probs: ROW, num_classes: 4 },
      ],
    })
    const reading = { hasMarkers: true, isActivated: true }
    expect(input()).toEqual({ task: 'classify', items: ['a', 'b'], ...reading })
  })

  it.each([
    [{ truncate_prompt_tokens: -1 }, { tokensMax: 'context' }],
    [{ truncate_prompt_tokens: 7 }, { tokensMax: 7 }],
    [{ truncation_side: 'left' }, { truncationSide: 'left' }],
    [{ add_special_tokens: false }, { hasMarkers: false }],
    [{ use_activation: false }, { isActivated: false }],
    [{ activation: false, softmax: false }, { isActivated: false }],
    [{ input: [5, 6] }, { items: [[5, 6]] }],
    [{ input: [[5, 6], [7]] }, { items: [[5, 6], [7]] }],
    [
      { labels: ['$&', 'b'], multi_label: true },
      {
        zeroShot: {
          labels: ['$&', 'b'],
          isMultiLabel: true,
          hypotheses: ['This example is $&.', 'This example is b.'],
        },
      },
    ],
    [
      { candidate_labels: ' a, b,', hypothesis_template: 'About {}' },
      { zeroShot: { labels: ['a', 'b'], hypotheses: ['About a', 'About b'], isMultiLabel: false } },
    ],
  ])('reads %j', async (fields, expected) => {
    await surface.post(url, { model: 'judge', input: 'a', ...fields })
    expect(input()).toMatchObject(expected)
  })

  it.each([
    [{ messages: [{ role: 'user', content: 'a' }] }, 'messages'],
    [{ input: 'a', use_activation: true, activation: false }, 'activation'],
    [{ input: 'a', truncate_prompt_tokens: 0 }, 'truncate_prompt_tokens'],
    [{ input: 'a', truncation_side: 'middle' }, 'truncation_side'],
    [{ input: Array(1001).fill('a') }, 'input'],
    [{ input: ['a', [5]] }, 'input[1]'],
    [{ input: 'a', multi_label: true }, 'candidate_labels'],
    [{ input: 'a', labels: ['a'], candidate_labels: ['a'] }, 'labels'],
    [{ input: 'a', labels: ', ' }, 'labels'],
    [{ input: 'a', labels: ['a'], hypothesis_template: 'About it' }, 'hypothesis_template'],
    // Each place would repeat all labels.
    [{ input: 'a', labels: ['a'], hypothesis_template: '{} or {}' }, 'hypothesis_template'],
    [{ input: 'a', labels: 'a'.repeat(201) }, 'labels'],
    [{ input: 'a', labels: ['a'], use_activation: false }, 'use_activation'],
    [{ input: 'a', labels: ['a'], add_special_tokens: false }, 'add_special_tokens'],
    [{ input: [5], labels: ['a'] }, 'input'],
    [{ input: Array(100).fill('a'), labels: Array(21).fill('a') }, 'input'],
  ])('refuses %j', async (fields, param) => {
    const response = await surface.post(url, { model: 'judge', ...fields })
    expect([response.statusCode, response.json().error.param]).toEqual([400, param])
  })

  it('reports fields without an effect', async () => {
    const fields = { cache_salt: 'a', request_id: 'b', priority: 1 }
    const { headers } = await surface.post(url, { model: 'judge', input: 'a', ...fields })
    expect(headers['x-millrace-ignored-parameters']).toBe('priority, request_id, cache_salt')
  })
})
