import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { serveModels } from '#test/support/served-models.ts'

const MODELS = join(import.meta.dirname, '../../fixtures/models')
const MODEL = 'pictured'
const SERVED = [MODEL, 'towers-vision', 'text-judge', 'image-judge', 'features']
const read = (path: string) => JSON.parse(readFileSync(join(MODELS, path), 'utf8'))
const FILES = read('vision-images.json') as readonly string[]
/** Prompts of transformers; the first is of one image, the second of two. */
const { cases } = read('smolvlm/golden.json') as { cases: { text: string; ids: number[] }[] }

let server: Awaited<ReturnType<typeof serveModels>>

beforeAll(async () => {
  const model = { kind: 'completion', source: join(MODELS, 'smolvlm') }
  const models = [
    { ...model, id: MODEL, capabilities: ['chat', 'vision'] },
    { ...model, id: 'of-text', capabilities: ['chat'] },
    ...['vision', 'embedding'].map((capability) => ({
      kind: 'embedding',
      source: join(MODELS, 'clip'),
      id: `towers-${capability}`,
      capabilities: [capability],
    })),
    {
      id: 'features',
      kind: 'embedding',
      source: join(MODELS, 'dinov2'),
      capabilities: ['embedding', 'vision'],
      options: { matryoshka: true },
    },
    {
      id: 'text-judge',
      kind: 'embedding',
      source: join(MODELS, 'classifier'),
      capabilities: ['classify'],
      aliases: ['omni-moderation-latest'],
      options: { categories: { angry: 'hate', calm: null, glad: null } },
    },
    {
      id: 'image-judge',
      kind: 'embedding',
      source: join(MODELS, 'vit-classifier'),
      capabilities: ['classify', 'vision'],
      options: { categories: { nsfw: 'sexual', normal: null } },
    },
  ]
  server = await serveModels(models, SERVED)
}, 300_000)
afterAll(() => server?.close())

const dataUrl = (file: number) => `data:image/png;base64,${FILES[file]}`
const ASKED = { model: MODEL, temperature: 0 }

/** The fields of all dialects that are looked at. */
interface Answer {
  readonly choices: readonly [{ readonly message: { readonly content: string } }]
  readonly output: readonly [{ readonly content: readonly [{ readonly text: string }] }]
  readonly content: readonly [{ readonly text: string }]
  readonly usage: {
    readonly prompt_tokens: number
    readonly total_tokens: number
    readonly prompt_tokens_details: { readonly cached_tokens: number }
  }
  readonly data: readonly {
    readonly index: number
    readonly embedding: readonly number[]
    readonly label: string
    readonly probs: readonly number[]
  }[]
  readonly results: readonly {
    readonly categories: Readonly<Record<string, boolean>>
    readonly category_scores: Readonly<Record<string, number>>
    readonly category_applied_input_types: Readonly<Record<string, readonly string[]>>
  }[]
  readonly error?: { readonly param: string; readonly code: string }
}

async function post(path: string, body: object) {
  const answer = await server.post(`/v1/${path}`, body)
  return { status: answer.status, body: answer.body as Answer }
}

async function chat(files: readonly number[], text: string, more: object = {}) {
  const images = files.map((file) => ({ type: 'image_url', image_url: { url: dataUrl(file) } }))
  const content = [...images, { type: 'text', text }]
  const messages = [{ role: 'user', content }]
  const { status, body } = await post('chat/completions', {
    ...ASKED,
    max_tokens: 12,
    messages,
    ...more,
  })
  expect([status, body.error]).toEqual([200, undefined])
  return { text: body.choices[0].message.content, usage: body.usage }
}

it('answers about the same image alike in every dialect, and counts its tokens', async () => {
  const [{ text, ids }] = cases as [(typeof cases)[number]]
  const first = await chat([0], text)
  expect(first.usage.prompt_tokens).toBe(ids.length)
  const response = await post('responses', {
    ...ASKED,
    max_output_tokens: 12,
    store: false,
    input: [
      {
        role: 'user',
        content: [
          { type: 'input_image', image_url: dataUrl(0) },
          { type: 'input_text', text },
        ],
      },
    ],
  })
  expect(response.body.output[0].content[0].text).toBe(first.text)
  const source = { type: 'base64', media_type: 'image/png', data: FILES[0] }
  const messages = [
    {
      role: 'user',
      content: [
        { type: 'image', source },
        { type: 'text', text },
      ],
    },
  ]
  const message = await post('messages', { ...ASKED, max_tokens: 12, messages })
  expect(message.body.content[0].text).toBe(first.text)
  const counted = await post('messages/count_tokens', { model: MODEL, messages })
  expect(counted.body).toEqual({ input_tokens: ids.length })
})

it('gives the same answer beside other requests, and reuses images that it has read', async () => {
  const [one, two] = cases as [(typeof cases)[number], (typeof cases)[number]]
  const asked = [
    { files: [0], text: one.text },
    { files: [1, 2], text: two.text },
    { files: [2], text: one.text },
    { files: [], text: 'Say something.' },
  ]
  const alone: string[] = []
  for (const { files, text } of asked) alone.push((await chat(files, text)).text)
  const together = await Promise.all(asked.map(({ files, text }) => chat(files, text)))
  expect(together.map(({ text }) => text)).toEqual(alone)
  const { usage } = await chat([0], one.text)
  expect(usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(one.ids.length / 2)
})

it('needs fewer tokens for little detail', async () => {
  const image_url = { url: dataUrl(0), detail: 'low' }
  const messages = [{ role: 'user', content: [{ type: 'image_url', image_url }] }]
  const { body } = await post('chat/completions', { ...ASKED, max_tokens: 1, messages })
  expect(body.usage.prompt_tokens).toBeLessThan(cases[0]?.ids.length ?? 0)
})

it('refuses damaged images and text-only models, and names the field', async () => {
  const truncated = Buffer.from(FILES[0] ?? '', 'base64')
    .subarray(0, 120)
    .toString('base64')
  const content = [
    { type: 'text', text: 'Hi' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${truncated}` } },
  ]
  const messages = [{ role: 'user', content }]
  const damaged = await post('chat/completions', { ...ASKED, max_tokens: 4, messages })
  expect([damaged.status, damaged.body.error]).toMatchObject([
    400,
    { param: 'messages[0].content[1].image_url', code: 'invalid_image' },
  ])
  const blind = await post('chat/completions', { model: 'of-text', messages })
  expect([blind.status, blind.body.error?.param]).toEqual([400, 'messages[0].content[1].image_url'])
})

it('embeds texts and images of one request in order, and counts both', async () => {
  const golden = read('clip/golden.json') as {
    readonly texts: readonly string[]
    readonly ids: readonly (readonly number[])[]
    readonly textEmbeddings: readonly (readonly number[])[]
    readonly imageEmbeddings: readonly (readonly number[])[]
  }
  const [text, image] = [golden.textEmbeddings, golden.imageEmbeddings]
  const input = [{ image: dataUrl(0) }, { text: golden.texts[1] }, { image: FILES[2] }]
  const { status, body } = await post('embeddings', { model: 'towers-vision', input })
  expect([status, body.error]).toEqual([200, undefined])
  for (const [index, expected] of [image[0], text[1], image[2]].entries()) {
    const { embedding } = body.data[index] as Answer['data'][number]
    expect(embedding).toHaveLength(24)
    for (const [at, value] of embedding.entries()) expect(value).toBeCloseTo(expected?.[at] ?? 9, 4)
  }
  const tokens = 2 * 16 + (golden.ids[1]?.length ?? 0)
  expect(body.usage).toMatchObject({ prompt_tokens: tokens, total_tokens: tokens })
})

it('names the image that it cannot embed', async () => {
  const damaged = FILES[0]?.slice(0, 160)
  const input = [{ text: 'a' }, { image: damaged }]
  const broken = await post('embeddings', { model: 'towers-vision', input })
  expect([broken.status, broken.body.error]).toMatchObject([
    400,
    { param: 'input[1].image', code: 'invalid_image' },
  ])
  const blind = await post('embeddings', { model: 'towers-embedding', input })
  expect([blind.status, blind.body.error]).toMatchObject([
    400,
    { param: 'input[1].image', code: 'unsupported_value' },
  ])
})

it('embeds images with a model that reads no texts', async () => {
  const { first } = read('dinov2/golden.json') as { readonly first: readonly (readonly number[])[] }
  const input = [{ image: dataUrl(1) }, { image: FILES[2] }]
  const { status, body } = await post('embeddings', { model: 'features', input })
  expect([status, body.error]).toEqual([200, undefined])
  const texts = input.map(({ image }) => image)
  const alone = await post('embeddings', { model: 'features', input: texts, modality: 'image' })
  expect(alone.body.data).toEqual(body.data)
  expect(body.usage.prompt_tokens).toBe(2 * 16)
  for (const [index, expected] of first.slice(1).entries()) {
    const { embedding } = body.data[index] as Answer['data'][number]
    for (const [at, value] of embedding.entries()) expect(value).toBeCloseTo(expected[at] ?? 9, 4)
  }
  const short = await post('embeddings', { model: 'features', input, dimensions: 8 })
  expect(short.body.data[0]?.embedding).toHaveLength(8)
  const text = await post('embeddings', {
    model: 'features',
    input: [{ text: 'a' }, { image: dataUrl(1) }],
  })
  expect([text.status, text.body.error]).toMatchObject([400, { code: 'unsupported_value' }])
})

describe('a classifier of images', () => {
  const { labels, probabilities } = read('vit-classifier/golden.json') as {
    readonly labels: readonly string[]
    readonly probabilities: readonly (readonly number[])[]
  }
  const [, expected = []] = probabilities
  const imagePart = { type: 'image_url', image_url: { url: dataUrl(1) } }

  it('labels images', async () => {
    const input = [{ image: dataUrl(1) }, { image: FILES[2] }]
    const { status, body } = await post('classify', { model: 'image-judge', input })
    expect([status, body.error]).toEqual([200, undefined])
    expect(body.data.map(({ label }) => label)).toEqual(['nsfw', 'violence'])
    const { probs } = body.data[0] as Answer['data'][number]
    for (const [at, value] of probs.entries()) expect(value).toBeCloseTo(expected[at] ?? 9, 4)
    expect(body.usage.prompt_tokens).toBe(2 * 16)
  })

  it.each([undefined, 'omni-moderation-latest'])(
    'judges the images of a message beside its texts where the name is %s',
    async (model) => {
      const input = [{ type: 'text', text: 'a sentence' }, imagePart]
      const { status, body } = await post('moderations', { model, input })
      expect([status, body.error]).toEqual([200, undefined])
      expect(body).toMatchObject({ model: 'text-judge,image-judge' })
      const [result, another] = body.results
      expect(another).toBeUndefined()
      expect(result?.category_applied_input_types).toMatchObject({
        hate: ['text'],
        sexual: ['image'],
        violence: ['image'],
        'self-harm': [],
      })
      const scores = result?.category_scores ?? {}
      expect(scores.sexual).toBeCloseTo(expected[labels.indexOf('nsfw')] ?? 9, 4)
      expect(scores.violence).toBeCloseTo(expected[labels.indexOf('violence')] ?? 9, 4)
      expect(result?.categories).toMatchObject({ sexual: true, violence: false })
    },
  )

  it('reads one image', async () => {
    const { body } = await post('moderations', { model: 'image-judge', input: [imagePart] })
    expect(body.results[0]?.category_applied_input_types).toMatchObject({
      hate: [],
      sexual: ['image'],
    })
  })

  it.each([
    ['moderations', { model: 'image-judge', input: 'a' }, 'input'],
    ['moderations', { model: 'text-judge', input: [imagePart] }, 'input'],
    ['classify', { model: 'text-judge', input: [{ image: dataUrl(0) }] }, 'input'],
    ['classify', { model: 'image-judge', input: [{ image: dataUrl(0) }, { text: 'a' }] }, 'input'],
    [
      'classify',
      { model: 'image-judge', input: [{ image: FILES[0]?.slice(0, 160) }] },
      'input[0].image',
    ],
    ['classify', { model: 'image-judge', input: [{ image: FILES[0] }], labels: ['a'] }, 'input'],
  ])('refuses of /v1/%s what it cannot read: %#', async (path, wanted, param) => {
    const { status, body } = await post(path, wanted)
    expect([status, body.error?.param]).toEqual([400, param])
  })
})
