import { createReadStream } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import OpenAI, { toFile } from 'openai'
import { Configuration, OpenAIApi } from 'openai-3'
import OpenAI4, { toFile as toFile4 } from 'openai-4'
import sharp from 'sharp'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'

import type { ScoreInput } from '#shared/contracts/completion.ts'
import type { EmbedInput } from '#shared/contracts/embedding.ts'
import type { ImageInput } from '#shared/contracts/image.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import {
  API_KEY,
  answering,
  type Script,
  serveSurface,
  speak,
} from '#test/unit/api/inference/surface.ts'

const CLIP = join(import.meta.dirname, '../../fixtures/audio/en-1.wav')
const VECTOR = new Float32Array([0.25, -1.5, 0.1])
const BASE64 = Buffer.from(VECTOR.buffer).toString('base64')

let served: Awaited<ReturnType<typeof serveSurface>>
let surface: (typeof served)['surface']
let baseURL = ''
let folder = ''
let imagePath = ''

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-media-'))
  imagePath = join(folder, 'image.png')
  const background = { r: 200, g: 0, b: 0, alpha: 0.5 }
  const image = sharp({ create: { width: 64, height: 64, channels: 4, background } })
  await writeFile(imagePath, await image.png().toBuffer())
  served = await serveSurface(undefined, { store: openDirectoryStore(join(folder, 'objects')) })
  ;({ surface, baseURL } = served)
})
beforeEach(() => {
  surface.submitter.script = answer
})
afterAll(async () => {
  await served.close()
  await rm(folder, { recursive: true })
})

/** Answers every kind of job. */
const answer: Script = async function* (request) {
  const input = request.input as { readonly task: string }
  const store = openDirectoryStore(join(folder, 'objects'))
  switch (input.task) {
    case 'generate':
    case 'edit':
    case 'variation': {
      if ('prompts' in input) {
        yield* speak(request.input as never, ['the cat'])
        return
      }
      const { n, outputPrefix } = input as unknown as ImageInput
      const imageKeys = Array.from({ length: n }, (_, at) => `${outputPrefix}/${at}.png`)
      for (const key of imageKeys) await store.put(key, await readFile(imagePath))
      yield* answering({ imageKeys })(request)
      return
    }
    case 'embed': {
      const vectors = (input as EmbedInput).items.map(() => BASE64)
      yield* answering({ task: 'embed', vectors, dimensions: 3 })(request)
      return
    }
    case 'score': {
      const scores = (input as ScoreInput).documents.map(({ length }) => length * 100)
      yield* answering({ task: 'score', scores })(request)
      return
    }
    default:
      yield* answering({
        text: ' Hello.',
        language: 'en',
        durationSeconds: 1,
        segments: [{ start: 0, end: 1, text: ' Hello.' }],
        words: [{ word: 'Hello', start: 0, end: 1 }],
      })(request)
  }
}

// Both speak the same calls; their types are near enough for what is used here.
describe.each([
  ['7', () => new OpenAI({ baseURL, apiKey: API_KEY, maxRetries: 0 }), toFile],
  [
    '4',
    () => new OpenAI4({ baseURL, apiKey: API_KEY, maxRetries: 0 }) as unknown as OpenAI,
    toFile4 as unknown as typeof toFile,
  ],
])('the official client, version %s', (_version, open, asFile) => {
  it('embeds, in base64, which it requests by default, and in numbers', async () => {
    const request = { model: 'tiny-embed', input: ['a', 'b'] }
    const unasked = await open().embeddings.create(request)
    const numbers = await open().embeddings.create({ ...request, encoding_format: 'float' })
    expect(unasked.data.map(({ embedding }) => embedding)).toEqual([[...VECTOR], [...VECTOR]])
    expect(numbers.data).toEqual(unasked.data)
    expect(numbers.usage).toEqual({ prompt_tokens: 3, total_tokens: 3 })
  })

  it('makes images, whose addresses serve them', async () => {
    const made = await open().images.generate({ prompt: 'a red circle', n: 2, size: '256x256' })
    const response = await fetch(made.data?.[1]?.url ?? '')
    expect(response.headers.get('content-type')).toBe('image/png')
    const image = await readFile(imagePath)
    expect(Buffer.from(await response.arrayBuffer()).equals(image)).toBe(true)
    const inline = await open().images.generate({ prompt: 'x', response_format: 'b64_json' })
    expect(inline.data?.[0]?.b64_json).toBe(image.toString('base64'))
  })

  it('edits and varies images from streams and buffers', async () => {
    const image = createReadStream(imagePath) as never
    const mask = await asFile(await readFile(imagePath), 'mask.png')
    const edited = await open().images.edit({ image, mask, prompt: 'a hat', n: 2 })
    expect(edited.data).toHaveLength(2)
    expect(surface.submitter.requests.at(-1)?.input).toMatchObject({ task: 'edit', n: 2 })
    const varied = await open().images.createVariation({
      image: await asFile(await readFile(imagePath), 'a.png'),
      response_format: 'b64_json',
    })
    expect(varied.data?.[0]?.b64_json).toBeDefined()
  })

  it('transcribes and translates in every format', async () => {
    const file = () => createReadStream(CLIP) as never
    const { transcriptions, translations } = open().audio
    const model = 'whisper-1'
    expect((await transcriptions.create({ file: file(), model })).text).toBe('Hello.')
    const asText = { file: file(), model, response_format: 'text' as const }
    expect(await transcriptions.create(asText)).toBe('Hello.\n')
    const asSrt = { file: file(), model, response_format: 'srt' as const }
    expect(await transcriptions.create(asSrt)).toMatch(/^1\n00:00:00,000 --> 00:00:01,000\n/)
    const received: string[] = []
    for await (const event of await transcriptions.create({ file: file(), model, stream: true })) {
      received.push(event.type === 'transcript.text.delta' ? event.delta : event.type)
    }
    expect(received).toEqual(['Hello.', 'transcript.text.done'])
    const verbose = await transcriptions.create({
      file: file(),
      model,
      language: 'en',
      response_format: 'verbose_json',
      timestamp_granularities: ['word', 'segment'],
    })
    expect(verbose).toMatchObject({
      language: 'english',
      words: [{ word: 'Hello', start: 0, end: 1 }],
      segments: [{ id: 0 }],
    })
    expect((await translations.create({ file: file(), model })).text).toBe('Hello.')
  })

  it('raises the fault of an upload', async () => {
    const image = await asFile(Buffer.from('no image'), 'a.png')
    await expect(open().images.createVariation({ image })).rejects.toMatchObject({
      status: 400,
      param: 'image',
      message: expect.stringContaining('must be a PNG and less than 4 MB'),
    })
    const file = await asFile(Buffer.from('no sound'), 'a.txt')
    await expect(
      open().audio.transcriptions.create({ file, model: 'whisper-1' }),
    ).rejects.toMatchObject({
      status: 400,
      param: 'file',
      message: expect.stringContaining('Invalid file format. Supported formats:'),
    })
  })
})

describe('the official client, version 3', () => {
  const open = () => new OpenAIApi(new Configuration({ basePath: baseURL, apiKey: API_KEY }))

  it('edits texts', async () => {
    const request = { model: 'tiny-chat', input: 'teh cat', instruction: 'Fix it', n: 2 }
    const { data } = await open().createEdit(request)
    expect(data.object).toBe('edit')
    expect(data.choices.map(({ text, index }) => [index, text])).toEqual([
      [0, 'the cat'],
      [1, 'the cat'],
    ])
    expect(data.usage.total_tokens).toBe(data.usage.prompt_tokens + data.usage.completion_tokens)
  })

  it('searches documents', async () => {
    const documents = ['White House', 'hospital', 'school']
    const { data } = await open().createSearch('tiny-chat', { query: 'the president', documents })
    expect(data.data).toEqual([
      { object: 'search_result', document: 0, score: 1100 },
      { object: 'search_result', document: 1, score: 800 },
      { object: 'search_result', document: 2, score: 600 },
    ])
  })

  it('embeds in numbers', async () => {
    const { data } = await open().createEmbedding({ model: 'tiny-embed', input: 'a' })
    expect(data.data[0]?.embedding).toEqual([...VECTOR])
  })

  it('makes, edits and varies images', async () => {
    const image = () => createReadStream(imagePath) as never
    const made = await open().createImage({ prompt: 'a', n: 1, size: '256x256' })
    expect((await fetch(made.data.data[0]?.url ?? '')).status).toBe(200)
    const edited = await open().createImageEdit(image(), 'a hat', image(), 2, '512x512')
    expect(edited.data.data).toHaveLength(2)
    expect(surface.submitter.requests.at(-1)?.input).toMatchObject({ width: 512, n: 2 })
    const varied = await open().createImageVariation(image(), 1, '256x256', 'b64_json')
    expect(varied.data.data[0]).toHaveProperty('b64_json')
  })

  it('transcribes and translates', async () => {
    const file = () => createReadStream(CLIP) as never
    const transcript = await open().createTranscription(
      file(),
      'whisper-1',
      'Hi',
      'json',
      0.2,
      'en',
    )
    expect(transcript.data.text).toBe('Hello.')
    expect(surface.submitter.requests.at(-1)?.input).toMatchObject({
      prompt: 'Hi',
      temperature: 0.2,
      language: 'en',
    })
    const translated = await open().createTranslation(file(), 'whisper-1')
    expect(translated.data.text).toBe('Hello.')
  })
})
