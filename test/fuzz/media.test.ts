import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import multipart from '@fastify/multipart'
import fc from 'fast-check'
import { type FastifyInstance, fastify } from 'fastify'
import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'

import { readForm } from '#api/http/form.ts'
import { normalizeError } from '#api/http/normalize-error.ts'
import { inspectImage } from '#api/inference/images/uploaded-image.ts'
import { addRequestContext } from '#api/v1/request-context.ts'
import { failure } from '#shared/errors.ts'
import { type AudioDecoder, findAudioDecoder, SAMPLE_RATE } from '#workers/audio/decode.ts'
import { openImage } from '#workers/image/image-file.ts'

import { formBody } from './forms.ts'
import { damaged, holds, orRefusal, RUNS } from './properties.ts'
import { hostileValue } from './values.ts'

const AUDIO = join(import.meta.dirname, '../fixtures/audio')
const CLIPS = ['en-1.wav', 'en-2.flac', 'en-3.opus', 'en-4.mp3'].concat([
  'tones/vorbis.ogg',
  'tones/opus.webm',
  'tones/vorbis.webm',
  'tones/flac.oga',
  'tones/chained.ogg',
])
const SECONDS_MAX = 60
const GROWTH_MIB_MAX = 200

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-media-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

describe('recordings', () => {
  const decoders: [string, () => Promise<AudioDecoder | undefined>][] = [
    ['by the decoders that come along', () => findDecoder('built-in')],
    ['by FFmpeg', () => findDecoder('ffmpeg')],
  ]

  it.for(decoders)(
    'are decoded or refused, whatever their bytes: %s',
    { timeout: 600_000 },
    async ([_title, find], { skip }) => {
      const decode = await find()
      if (decode === undefined) return skip('no FFmpeg on this machine')
      const clips = await Promise.all(
        // Enough for every kind of header and some frames after it.
        CLIPS.map(async (name) => (await readFile(join(AUDIO, name))).subarray(0, 30_000)),
      )
      const path = join(folder, 'clip')
      const before = process.memoryUsage.rss()
      await holds(
        fc.oneof(
          damaged(clips),
          fc.uint8Array({ maxLength: 300 }).map((list) => Buffer.from(list)),
        ),
        async (bytes) => {
          await writeFile(path, bytes)
          let samples = 0
          await orRefusal(async () => {
            const signal = new AbortController().signal
            for await (const piece of decode(path, { secondsMax: SECONDS_MAX, signal })) {
              samples += piece.length
            }
          })
          expect(samples).toBeLessThanOrEqual(SECONDS_MAX * SAMPLE_RATE)
        },
        Math.ceil(RUNS / 40),
      )
      expect((process.memoryUsage.rss() - before) / 2 ** 20).toBeLessThan(GROWTH_MIB_MAX)
    },
  )
})

/** The decoder of this name, where the machine has it. */
async function findDecoder(wanted: 'built-in' | 'ffmpeg'): Promise<AudioDecoder | undefined> {
  if (wanted === 'built-in') vi.stubEnv('PATH', '')
  try {
    const { name, decode } = await findAudioDecoder()
    return name === wanted ? decode : undefined
  } finally {
    vi.unstubAllEnvs()
  }
}

describe('images', () => {
  it('are read or refused, with any bytes', { timeout: 300_000 }, async () => {
    const create = { width: 40, height: 40, channels: 4, background: '#d22a' } as const
    const drawn = () => sharp({ create })
    const images = await Promise.all([
      drawn().png().toBuffer(),
      drawn().png({ palette: true }).toBuffer(),
      drawn().jpeg().toBuffer(),
      drawn().webp().toBuffer(),
      drawn().webp({ lossless: true }).toBuffer(),
      drawn().gif().toBuffer(),
      drawn().tiff().toBuffer(),
      Promise.resolve(
        Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'),
      ),
    ])
    const before = process.memoryUsage.rss()
    await holds(damaged(images), async (bytes) => {
      const header = await orRefusal(() => inspectImage(bytes, 'image'))
      if (header !== undefined) expect(header.side).toBeLessThanOrEqual(4096)
      await orRefusal(async () => {
        const image = await openImage(bytes, 'image')
        const { data } = await image.coloursAt({ width: 8, height: 8 })
        expect(data.length).toBe(8 * 8 * 3)
        await image.transparencyAt({ width: 8, height: 8 })
      })
    })
    expect((process.memoryUsage.rss() - before) / 2 ** 20).toBeLessThan(GROWTH_MIB_MAX)
  })
})

it('an image of zero bytes is refused like any other invalid one', async () => {
  await expect(openImage(Buffer.alloc(0), 'image')).rejects.toMatchObject({
    code: 'invalid_image',
  })
})

describe('forms', () => {
  let app: FastifyInstance
  beforeAll(async () => {
    app = fastify()
    addRequestContext(app)
    await app.register(multipart)
    app.setErrorHandler((thrown, _request, reply) => {
      const error = normalizeError(thrown)
      return reply.code(error.status).send({ message: error.message })
    })
    app.post('/', async (request) => {
      const form = await readForm(request, {
        fields: ['model', 'prompt'],
        lists: ['list'],
        files: ['file'],
        bytesMax: 100_000,
        tooLarge: () => failure.tooLarge('The form is too large.'),
        receive: async ({ stream }) => (await stream.toArray()).length,
      })
      expect(Object.keys(form.fields).every((name) => FIELDS.includes(name))).toBe(true)
      return { ok: true }
    })
  })
  afterAll(() => app.close())

  it('are read or refused, with any bytes', { timeout: 300_000 }, async () => {
    const values = fc.record(
      { model: hostileValue, prompt: hostileValue, list: fc.array(hostileValue), x: hostileValue },
      { requiredKeys: [] },
    )
    const seen = new Set<number>()
    await holds(
      formBody(values, ['file', 'model'], { file: ['bytes of a file', '', '\r\n--b0undary\r\n'] }),
      async ({ type, body }) => {
        const answer = await app.inject({
          method: 'POST',
          url: '/',
          payload: Buffer.from(body, 'latin1'),
          headers: { 'content-type': type },
        })
        seen.add(answer.statusCode)
        expect([200, 400, 413, 415]).toContain(answer.statusCode)
      },
      RUNS * 2,
    )
    expect([...seen]).toEqual(expect.arrayContaining([200, 400]))
  })
})

const FIELDS = ['model', 'prompt', 'list']
