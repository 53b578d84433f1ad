import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'

import { Redis } from 'ioredis'
import OpenAI, { toFile } from 'openai'
import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import {
  measuredScores,
  modelFolder,
  readEvals,
  readJson,
  SCORE_MARGIN,
} from '#test/golden/models/shipped.ts'
import { type FaultTiers, openFaultTiers } from '#test/support/fault-tiers.ts'
import { readImage } from '#test/support/image-judge.ts'
import { createDatabase } from '#test/support/services.ts'
import { API_KEY } from '#test/support/tiers.ts'

import { wordErrors, wordsOf } from './word-errors.ts'

const CLIPS = join(import.meta.dirname, '../../fixtures/audio')
const SIDE = 256
const MODELS = 'tiny-embed,tiny-rerank,tiny-moderation,tiny-chat,tiny-whisper,tiny-sd'
const LONG = { timeout: 300_000 }

interface Clip {
  readonly file: string
  /** Null where nothing is said. */
  readonly language: string | null
  readonly seconds: number
  readonly text: string
  readonly english: string
}

interface Trial {
  readonly queries: readonly string[]
  readonly documents: readonly string[]
  /** The document of each query. */
  readonly right: readonly number[]
}

interface Judged {
  readonly text: string
  readonly labels: readonly string[]
}

interface Classified {
  readonly data: readonly {
    readonly label: string
    readonly probs: readonly number[]
    readonly num_classes: number
  }[]
}

interface Group {
  readonly query: string
  readonly documents: readonly string[]
  readonly right: number
}

let tiers: FaultTiers
let client: OpenAI
let base = ''
let close: () => Promise<void>

beforeAll(async () => {
  const { url, drop } = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-sense-'))
  const keyPrefix = `sense-${process.pid}`
  const redisUrl = inject('redisUrl')
  const env = { MILLRACE_WORKER_MODELS: MODELS }
  tiers = openFaultTiers({ databaseUrl: url, redisUrl, keyPrefix, folder, env })
  close = async () => {
    await tiers.stop()
    await drop()
    await rm(folder, { recursive: true, force: true })
    const redis = new Redis(redisUrl)
    const keys = await redis.keys(`${keyPrefix}*`)
    if (keys.length > 0) await redis.del(keys)
    redis.disconnect()
  }
  base = (await tiers.startApi()).url
  await tiers.startWorker()
  client = new OpenAI({ baseURL: `${base}/v1`, apiKey: API_KEY, maxRetries: 0, timeout: 120_000 })
}, 240_000)
afterAll(() => close())

describe('embeddings', () => {
  // Held-out texts and measured scores, both by `python -m models.training.tiny_embed evaluate`.
  it.each(['paraphrase', 'handWritten'])(
    'put what means the same first: %s',
    LONG,
    async (name) => {
      const { trials } = readEvals<{ trials: Record<string, Trial> }>('tiny-embed')
      const measured = measuredScores('tiny-embed')
      const { queries, documents, right } = trials[name] as Trial
      const { data } = await client.embeddings.create({
        model: 'text-embedding-3-small',
        input: [...queries, ...documents],
      })
      const vectors = data.map(({ embedding }) => embedding)
      const found = queries.filter((_query, at) => {
        const likeness = documents.map((_document, other) =>
          cosine(vectors[at] as number[], vectors[queries.length + other] as number[]),
        )
        return likeness.indexOf(Math.max(...likeness)) === right[at]
      })
      const least = (measured[name] as number) - SCORE_MARGIN
      expect(found.length / queries.length).toBeGreaterThanOrEqual(least)
    },
  )
})

describe('moderations', () => {
  // Held-out texts and measured scores, both by `python -m models.training.tiny_moderation
  // evaluate`.
  it('flag the categories of a text and no others', LONG, async () => {
    const { texts } = readEvals<{ texts: readonly Judged[] }>('tiny-moderation')
    const input = texts.map(({ text }) => text)
    const { model, results } = await client.moderations.create({ input })
    expect(model).toBe('tiny-moderation')
    const right = results.filter(({ categories }, at) => {
      const flagged = Object.entries(categories).flatMap(([name, is]) => (is ? [name] : []))
      return isDeepStrictEqual(flagged.toSorted(), texts[at]?.labels)
    })
    const least = (measuredScores('tiny-moderation').exact as number) - SCORE_MARGIN
    expect(right.length / texts.length).toBeGreaterThanOrEqual(least)
    expect(results[0]?.category_applied_input_types).toMatchObject({
      violence: ['text'],
      'sexual/minors': [],
    })
  })

  it('label texts in the form of vLLM', async () => {
    const body = { model: 'tiny-moderation', input: ['I will kill you.', 'The cat sleeps.'] }
    const ask = (fields: object) =>
      client.post('/classify', { body: { ...body, ...fields } }) as Promise<Classified>
    const [probable, raw] = await Promise.all([ask({}), ask({ use_activation: false })])
    for (const [at, { probs, label, num_classes }] of probable.data.entries()) {
      expect(num_classes).toBe(6)
      const logits = raw.data[at]?.probs ?? []
      for (const [index, logit] of logits.entries()) {
        expect(probs[index]).toBeCloseTo(1 / (1 + Math.exp(-logit)), 5)
      }
      expect(raw.data[at]?.label).toBe(label)
    }
    const zeroShot = { candidate_labels: ['sport'] }
    await expect(ask(zeroShot)).rejects.toMatchObject({ param: 'candidate_labels' })
  })
})

describe('rerank', () => {
  // Held-out groups and measured scores, both by `python -m models.training.tiny_rerank evaluate`.
  it.each(['paraphrase', 'question', 'unseenWords', 'passage', 'handWritten'])(
    'puts the right document of ten first: %s',
    LONG,
    async (name) => {
      const { groups } = readEvals<{ groups: Record<string, Group[]> }>('tiny-rerank')
      const { gates } = readJson<{ gates: Record<string, { after: number }> }>(
        join(modelFolder('tiny-rerank'), 'eval.json'),
      )
      const problems = groups[name] as Group[]
      let found = 0
      for (const { query, documents, right } of problems) {
        const body = { model: 'tiny-rerank', query, documents, top_n: 1 }
        const { results } = (await client.post('/rerank', { body })) as {
          results: { index: number }[]
        }
        if (results[0]?.index === right) found += 1
      }
      // Some of the card's problems, where one weighs more.
      const least = (gates[name]?.after as number) - SCORE_MARGIN - 1 / problems.length
      expect(found / problems.length).toBeGreaterThanOrEqual(least)
    },
  )
})

describe('speech', () => {
  it('is transcribed and translated within the error rate of the model card', LONG, async () => {
    const { clips } = JSON.parse(await readFile(join(CLIPS, 'clips.json'), 'utf8')) as {
      clips: readonly Clip[]
    }
    // By its name the API would take an .opus file for something else.
    const short = clips.filter(
      ({ language, seconds, file }) => language !== null && seconds < 10 && !file.endsWith('.opus'),
    )
    const measured = measuredScores('tiny-whisper')
    const sum = { words: 0, transcribed: 0, translated: 0, byCard: 0, translatedByCard: 0 }
    for (const { file, language, text, english } of short) {
      const bytes = await readFile(join(CLIPS, file))
      const upload = () => toFile(bytes, file)
      const transcript = await client.audio.transcriptions.create({
        file: await upload(),
        model: 'whisper-1',
        language: language as string,
      })
      const translated = await client.audio.translations.create({
        file: await upload(),
        model: 'whisper-1',
      })
      const words = wordsOf(text).length
      const rateOf = (task: string) => measured[`${language} ${task}`] ?? 0
      sum.words += words
      sum.transcribed += wordErrors(transcript.text, text)
      sum.translated += wordErrors(translated.text, english)
      sum.byCard += words * rateOf('transcribe')
      sum.translatedByCard += words * rateOf('translate')
    }
    expect(sum.words).toBeGreaterThan(50)
    // The card's rates are of sixty clips a language; of ten in all, one may be off altogether.
    const { words } = sum
    expect(sum.transcribed / words).toBeLessThanOrEqual(sum.byCard / words + 0.1)
    expect(sum.translated / words).toBeLessThanOrEqual(sum.translatedByCard / words + 0.2)
  })

  it('has the same text in every format, with times that fit the clip', LONG, async () => {
    const bytes = await readFile(join(CLIPS, 'en-1.wav'))
    const ask = async (response_format: string, more: object = {}) =>
      client.audio.transcriptions.create({
        file: await toFile(bytes, 'en-1.wav'),
        model: 'whisper-1',
        ...more,
        response_format: response_format as 'json',
      })
    const { text } = await ask('json')
    expect(text.length).toBeGreaterThan(10)
    expect(String(await ask('text'))).toBe(`${text}\n`)
    const srt = String(await ask('srt'))
    const [, from, to, line] =
      /^1\n00:00:(\d\d,\d{3}) --> 00:00:(\d\d,\d{3})\n(.+)\n/.exec(srt) ?? []
    expect(line).toBe(text)
    expect(String(await ask('vtt'))).toBe(
      `WEBVTT\n\n00:00:${from?.replace(',', '.')} --> 00:00:${to?.replace(',', '.')}\n${text}\n\n`,
    )
    const verbose = (await ask('verbose_json', {
      timestamp_granularities: ['word', 'segment'],
    })) as unknown as {
      language: string
      duration: number
      segments: { start: number; end: number }[]
      words: { word: string; start: number; end: number }[]
    }
    expect(verbose.language).toBe('english')
    expect(verbose.words.map(({ word }) => word).join(' ')).toBe(text.replace(/[.?!,]/g, ''))
    const [segment] = verbose.segments
    for (const { start, end } of verbose.words) {
      // The attention to a first word may begin in the pause before it, by half a second at most.
      expect(start).toBeGreaterThanOrEqual((segment?.start as number) - 0.5)
      expect(end).toBeGreaterThanOrEqual(start)
      expect(end).toBeLessThanOrEqual(verbose.duration)
    }
  })

  it('is streamed as it is recognized, with log-probabilities of all tokens', LONG, async () => {
    const bytes = await readFile(join(CLIPS, 'en-three.flac'))
    const ask = async () => ({
      file: await toFile(bytes, 'en-three.flac'),
      model: 'whisper-1',
      include: ['logprobs' as const],
    })
    const { text, logprobs = [] } = await client.audio.transcriptions.create(await ask())
    expect(spelled(logprobs)).toBe(text)
    for (const { logprob } of logprobs) expect(logprob).toBeLessThanOrEqual(0)
    const events = await Array.fromAsync(
      await client.audio.transcriptions.create({ ...(await ask()), stream: true }),
    )
    const done = events.at(-1)
    if (done?.type !== 'transcript.text.done') throw new Error(`the last event is ${done?.type}`)
    const deltas = events.filter(({ type }) => type === 'transcript.text.delta')
    const parts = deltas as OpenAI.Audio.TranscriptionTextDeltaEvent[]
    expect(parts.length).toBe(events.length - 1)
    expect(parts.map(({ delta }) => delta).join('')).toBe(text)
    expect(parts.flatMap((part) => part.logprobs ?? [])).toEqual(logprobs)
    expect(done).toMatchObject({ text, logprobs, usage: { type: 'tokens', input_tokens: 0 } })
    // Timestamps count, too.
    expect(done.usage?.output_tokens).toBeGreaterThanOrEqual(logprobs.length)
  })
})

describe('images', () => {
  it('show the requested content', LONG, async () => {
    const image = await drawn(
      await client.images.generate({
        prompt: 'a red circle on a white background',
        size: '256x256',
        ...({ seed: 3 } as object),
      }),
    )
    const { background, things } = readImage(image)
    expect(background).toBe('white')
    expect(things.map(({ colour }) => colour)).toEqual(['red'])
  })

  it('are edited only where the mask is transparent', LONG, async () => {
    const image = await flat({ r: 40, g: 90, b: 220, alpha: 1 })
    const half = { create: { width: SIDE / 2, height: SIDE, channels: 4, background: 'black' } }
    const opaqueRight = await sharp(half as never)
      .png()
      .toBuffer()
    const mask = await sharp(await flat({ r: 0, g: 0, b: 0, alpha: 0 }))
      .composite([{ input: opaqueRight, left: SIDE / 2, top: 0 }])
      .png()
      .toBuffer()
    const { data, width } = await drawn(
      await client.images.edit({
        image: await toFile(image, 'image.png'),
        mask: await toFile(mask, 'mask.png'),
        prompt: 'a yellow star on a black background',
        size: '256x256',
        ...({ seed: 1 } as object),
      }),
    )
    const isSame = (at: number) =>
      data[3 * at] === 40 && data[3 * at + 1] === 90 && data[3 * at + 2] === 220
    const pixels = Array.from({ length: width * width }, (_, at) => at)
    const right = pixels.filter((at) => at % width >= width / 2)
    const left = pixels.filter((at) => at % width < width / 2)
    expect(right.every(isSame)).toBe(true)
    expect(left.filter(isSame).length).toBeLessThan(left.length / 2)
  })

  it('keep their colours in variations, which differ from each other', LONG, async () => {
    const image = await flat({ r: 214, g: 40, b: 40, alpha: 1 })
    const answer = await client.images.createVariation({
      image: await toFile(image, 'image.png'),
      n: 2,
      size: '256x256',
      response_format: 'b64_json',
      // One in 25 variations is a pale one.
      ...({ seed: 1 } as object),
    })
    const files = answer.data?.map(({ b64_json: text = '' }) => text) ?? []
    expect(new Set(files).size).toBe(2)
    for (const file of files) {
      const { channels } = await sharp(Buffer.from(file, 'base64')).stats()
      const [red, green, blue] = channels.map(({ mean }) => mean) as [number, number, number]
      expect(red).toBeGreaterThan(Math.max(green, blue) + 60)
    }
  })

  it('have any number and size, and signed addresses', LONG, async () => {
    const answer = await client.images.generate({
      prompt: 'a blue square on a black background',
      n: 10,
      size: '256x256',
      ...({ steps: 2 } as object),
    })
    const urls = answer.data?.map(({ url = '' }) => url) ?? []
    expect(new Set(urls).size).toBe(10)
    const forged = new URL(urls[0] as string)
    forged.searchParams.set('expires', '9999999999')
    expect((await fetch(forged)).status).toBe(403)
    for (const size of ['512x512', '1024x1024'] as const) {
      const one = await client.images.generate({
        prompt: 'a cat',
        size,
        ...({ steps: 1 } as object),
      })
      expect((await drawn(one)).width).toBe(Number(size.split('x')[0]))
    }
  })
})

function spelled(tokens: readonly { bytes?: number[] }[]): string {
  return Buffer.from(tokens.flatMap(({ bytes = [] }) => bytes))
    .toString()
    .trim()
}

async function flat(background: { r: number; g: number; b: number; alpha: number }) {
  return sharp({ create: { width: SIDE, height: SIDE, channels: 4, background } })
    .png()
    .toBuffer()
}

async function drawn({ data }: OpenAI.ImagesResponse) {
  const file = await (await fetch(data?.[0]?.url as string)).arrayBuffer()
  const read = await sharp(file).removeAlpha().raw().toBuffer({ resolveWithObject: true })
  return { data: new Uint8Array(read.data), width: read.info.width, height: read.info.height }
}

function cosine(a: readonly number[], b: readonly number[]): number {
  return a.reduce((sum, value, at) => sum + value * (b[at] as number), 0)
}
