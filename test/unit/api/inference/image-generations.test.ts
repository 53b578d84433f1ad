import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { STORED_REQUEST_HEADER, StoredRequests } from '#api/jobs/stored-requests.ts'
import { sweepMedia } from '#api/media/sweep.ts'
import type { ImageInput } from '#shared/contracts/image.ts'

import { type ImageSurface, openImageSurface } from './image-surface.ts'
import { itRefuses, type Refusal } from './refusals.ts'
import { API_KEY, openSurface, type Script, serveSurface } from './surface.ts'

let images: ImageSurface
let surface: ImageSurface['surface']

beforeAll(async () => {
  images = await openImageSurface()
  surface = images.surface
})
afterAll(() => images.close())

const generate = (fields: object) =>
  surface.post('/v1/images/generations', { prompt: 'a red circle', ...fields })

describe('POST /v1/images/generations', () => {
  it('answers addresses that serve the images without a key', async () => {
    const { created, data } = (await generate({ n: 2 })).json()
    expect([created, data.length]).toEqual([1_750_000_000, 2])
    const { pathname, search } = new URL(data[1].url)
    const served = await surface.app.inject({ url: pathname + search })
    expect(served.statusCode).toBe(200)
    expect(served.headers).toMatchObject({
      'content-type': 'image/png',
      'cache-control': 'private, max-age=3600',
    })
    expect(served.body).toBe(`image ${images.submitted().outputPrefix}/1.png`)
  })

  it('answers addresses below the path of a proxy to clients that used it', async () => {
    const below = await openSurface(images.draw, {
      store: images.store,
      publicUrl: 'http://example.test/millrace/',
    })
    const originOf = async (host: string) => {
      const headers = { host }
      const answer = await below.post('/v1/images/generations', { prompt: 'a red circle' }, headers)
      return answer.json().data[0].url.split('/v1/media/', 1)[0]
    }
    expect(await originOf('example.test')).toBe('http://example.test/millrace')
    expect(await originOf('127.0.0.1:8081')).toBe('http://127.0.0.1:8081')
    await below.app.close()
  })

  it('answers public addresses to a background job, whose client asks elsewhere', async () => {
    const storedRequests = new StoredRequests()
    const below = await openSurface(images.draw, {
      store: images.store,
      publicUrl: 'https://example.test/millrace/',
      storedRequests,
    })
    const token = storedRequests.add({
      id: 'job_1',
      createdAtMs: 0,
      signal: new AbortController().signal,
      caller: { organizationId: 'org-a', modelIds: null, scopes: null, expiresAtMs: null },
      noteUse: () => {},
      leaveSlot: () => {},
    })
    const headers = { [STORED_REQUEST_HEADER]: token }
    const answer = await below.post('/v1/images/generations', { prompt: 'a circle' }, headers)
    expect(answer.json().data[0].url).toMatch(/^https:\/\/example\.test\/millrace\/v1\/media\//)
    await below.app.close()
  })

  it('answers bytes in base64 on demand, and stores them no longer', async () => {
    const { data } = (await generate({ response_format: 'b64_json' })).json()
    const { outputPrefix } = images.submitted()
    expect(Buffer.from(data[0].b64_json, 'base64').toString()).toBe(`image ${outputPrefix}/0.png`)
    expect(await images.keys(outputPrefix)).toEqual([])
  })

  it('answers base64 to clients of GPT Image models, which never request it', async () => {
    const { data } = (await generate({ model: 'gpt-image-1' })).json()
    expect(Object.keys(data[0])).toEqual(['b64_json'])
    const model = { model: 'gpt-image-1', response_format: 'url' }
    expect(Object.keys((await generate(model)).json().data[0])).toEqual(['url'])
    expect(Object.keys((await generate({ model: 'dall-e-2' })).json().data[0])).toEqual(['url'])
  })

  it.each(['jpeg', 'webp'])('asks for %s files and serves them as such', async (format) => {
    const answer = await generate({ output_format: format, output_compression: 40 })
    expect(answer.headers).not.toHaveProperty('x-millrace-ignored-parameters')
    expect(images.submitted()).toMatchObject({ format, quality: 40 })
    const { pathname, search } = new URL(answer.json().data[0].url)
    const served = await surface.app.inject({ url: pathname + search })
    expect(served.headers['content-type']).toBe(`image/${format}`)
  })

  it('reports fields that PNG files and unstreamed answers do not use', async () => {
    const answer = await generate({ output_compression: 40, partial_images: 2 })
    expect(answer.headers['x-millrace-ignored-parameters']).toBe(
      'output_compression, partial_images',
    )
    expect(images.submitted()).not.toHaveProperty('partialImages')
  })

  it('streams each partial image once to the official client, and stores none', async () => {
    const drawPartial: Script = async function* (request) {
      const { outputPrefix } = request.input as unknown as ImageInput
      // The second run is that of a worker that replaces a lost one.
      for (const index of [0, 0, 1]) {
        const key = `${outputPrefix}/0-partial-${index}.png`
        await images.store.put(key, Buffer.from(`partial ${index}`))
        const partialImage = { image: 0, index, key }
        yield { type: 'progress', step: index + 1, steps: 4, partialImage }
      }
      yield* images.draw(request)
    }
    const served = await serveSurface(drawPartial, { store: images.store })
    const client = new OpenAI({ baseURL: served.baseURL, apiKey: API_KEY })
    const fields = { size: '256x256', output_format: 'png', partial_images: 2 } as const
    const stream = await client.images.generate({ prompt: 'a cat', stream: true, ...fields })
    const events = await Array.fromAsync(stream)
    const about = { created_at: expect.any(Number), size: '256x256', output_format: 'png' }
    const rest = { ...about, quality: 'auto', background: 'auto', b64_json: expect.any(String) }
    expect(events).toEqual([
      ...[0, 1].map((index) => {
        const type = 'image_generation.partial_image'
        return { type, ...rest, partial_image_index: index }
      }),
      { type: 'image_generation.completed', ...rest, usage: expect.any(Object) },
    ])
    const texts = events.map(({ b64_json: text }) => Buffer.from(text, 'base64').toString())
    expect(texts.slice(0, 2)).toEqual(['partial 0', 'partial 1'])
    expect(await images.keys('media/')).not.toContainEqual(expect.stringContaining('partial'))
    await served.close()
  })

  it('streams an event for each image, to the official client', async () => {
    const served = await serveSurface(images.draw, { store: images.store })
    const client = new OpenAI({ baseURL: served.baseURL, apiKey: API_KEY })
    const stream = await client.images.generate({ prompt: 'a cat', n: 2, stream: true })
    const events = await Array.fromAsync(stream)
    expect(events.map(({ type }) => type)).toEqual(Array(2).fill('image_generation.completed'))
    const texts = events.map(({ b64_json: text }) => Buffer.from(text, 'base64').toString())
    expect(texts).toEqual([/0\.png$/, /1\.png$/].map((name) => expect.stringMatching(name)))
    await served.close()
  })

  it('hands every parameter to the worker, and the defaults', async () => {
    const fields = { steps: 4, guidance_scale: 1.5, negative_prompt: 'blue', user: 'u' }
    await generate({ n: 2, size: '256x256', seed: 5, model: 'tiny-sd', ...fields })
    expect(images.submitted()).toEqual({
      task: 'generate',
      prompt: 'a red circle',
      n: 2,
      width: 256,
      height: 256,
      seed: 5,
      outputPrefix: expect.stringMatching(/^media\/img-\w{24}$/),
      steps: 4,
      guidanceScale: 1.5,
      negativePrompt: 'blue',
    })
    await generate({})
    expect(images.submitted()).toMatchObject({ n: 1, width: 1024, height: 1024 })
    expect(surface.submitter.requests.at(-1)?.model.id).toBe('tiny-sd')
  })
})

describe('GET /v1/media', () => {
  it('refuses addresses that are expired, forged or point to nothing', async () => {
    const { data } = (await generate({})).json()
    const { pathname, search } = new URL(data[0].url)
    const get = async (url: string) => {
      const response = await surface.app.inject({ url })
      return [response.statusCode, response.json().error.code]
    }
    expect(await get(pathname)).toEqual([403, 'invalid_signature'])
    expect(await get(`${pathname}x${search}`)).toEqual([403, 'invalid_signature'])
    expect(await get(pathname + search.replace(/expires=\d/, 'expires=9'))).toEqual([
      403,
      'invalid_signature',
    ])
    surface.clock.nowMs += 3_601_000
    expect(await get(pathname + search)).toEqual([403, 'url_expired'])
    surface.clock.nowMs -= 3_601_000
    await images.store.delete(pathname.replace('/v1/', ''))
    expect(await get(pathname + search)).toEqual([404, 'media_not_found'])
  })

  it('is emptied after its hour, also of files that dead requests left', async () => {
    await images.store.put('temporary/left', Buffer.from('x'))
    await images.store.put('files/file-stays', Buffer.from('x'))
    // A leftover of a process that was killed during an upload.
    await images.store.put('.staging/0b3f', Buffer.from('x'))
    await generate({})
    const sweepIn = (minutes: number) =>
      sweepMedia({
        store: images.store,
        clock: { now: () => Date.now() + minutes * 60_000, monotonic: () => 0 },
      })
    expect(await sweepIn(60)).toBe(0)
    expect(await sweepIn(66)).toBeGreaterThan(1)
    expect(await images.keys('')).toEqual(['files/file-stays'])
    expect(await images.keys('.staging/')).toEqual(['.staging/0b3f'])
    // Uploads may take longer than that.
    expect(await sweepIn(361)).toBe(1)
    expect(await images.keys('.staging/')).toEqual([])
  })
})

const REFUSALS: readonly Refusal[] = [
  [{ prompt: undefined }, 'prompt', 'missing_required_parameter', /./],
  [{ prompt: '' }, 'prompt', 'empty_string', /./],
  [{ prompt: 'x'.repeat(1001) }, 'prompt', 'string_above_max_length', /./],
  [{ n: 11 }, 'n', 'integer_above_max_value', /./],
  [
    { size: '256x257' },
    'size',
    'invalid_value',
    "Invalid value: '256x257'. Supported values are: '256x256', '512x512', '1024x1024', '1536x1024', '1024x1536', '1792x1024', '1024x1792', and 'auto'.",
  ],
  [{ response_format: 'png' }, 'response_format', 'invalid_value', /./],
  [{ output_format: 'gif' }, 'output_format', 'invalid_value', /'png', 'jpeg', and 'webp'/],
  [{ output_compression: 101 }, 'output_compression', 'integer_above_max_value', /./],
  [{ partial_images: 4 }, 'partial_images', 'integer_above_max_value', /./],
  [{ style: 'loud' }, 'style', 'invalid_value', /./],
  [{ image: 'x' }, 'image', 'unknown_parameter', /./],
]
itRefuses('/v1/images/generations', { model: 'tiny-sd', prompt: 'a cat' }, REFUSALS)
