import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createImageIntake, RequestImages, withImages } from '#api/inference/request-images.ts'
import { HeldBytes } from '#api/jobs/held-bytes.ts'
import type { GenerateInput, MessageImage } from '#shared/contracts/completion.ts'
import { createLogger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { readObject } from '#shared/storage/object-store.ts'

import { openSurface, speak } from './surface.ts'

const PNG = await sharp({
  create: { width: 3, height: 2, channels: 3, background: '#c00' },
})
  .png()
  .toBuffer()
const DATA = PNG.toString('base64')
const DATA_URL = `data:image/png;base64,${DATA}`
const TEXT = { type: 'text', text: 'What is this?' }

const FOLDER = await mkdtemp(join(tmpdir(), 'millrace-images-'))

type Surface = Awaited<ReturnType<typeof openSurface>>

/** The images of a job, with the bytes that its key had while it ran. */
interface Seen {
  readonly image: MessageImage
  readonly bytes: Buffer
}

const store = openDirectoryStore(FOLDER)
const seen: Seen[] = []
/** Requests for images that have no answer yet. */
const slow: { readonly name: string; readonly response: ServerResponse }[] = []
let surface: Surface
let server: ReturnType<typeof createServer>
let origin = ''

beforeAll(async () => {
  server = createServer((request, response) => {
    if (request.url === '/image.png') response.end(PNG)
    else if (request.url?.startsWith('/slow/')) slow.push({ name: request.url, response })
    else if (request.url === '/large') response.end(Buffer.alloc(2_000_000))
    else response.writeHead(404).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  await store.put('files/one', PNG)
  surface = await openSurface(lookAt, {
    store,
    images: createImageIntake({ countMax: 3, bytesMax: 1_000_000, urls: 'all' }),
    files: {
      find: async (_organization, id) => {
        if (id !== 'file-1') return undefined
        return { objectKey: 'files/one', purpose: 'vision', bytes: PNG.length }
      },
    },
  })
})

afterAll(async () => {
  await surface.app.close()
  server.close()
  await rm(FOLDER, { recursive: true })
})

async function* lookAt({ input }: { readonly input: unknown }) {
  for (const prompt of (input as GenerateInput).prompts) {
    const messages = prompt.form === 'chat' ? prompt.messages : []
    for (const image of messages.flatMap(({ images = [] }) => images)) {
      seen.push({ image, bytes: await readObject(store, image.key, 1_000_000) })
    }
  }
  yield* speak(input as GenerateInput, ['Red'])
}

const chat = (...content: object[]) => ({
  url: '/v1/chat/completions',
  body: { messages: [{ role: 'user', content }] },
})
const imageUrl = (url: string, more: object = {}) => ({
  type: 'image_url',
  image_url: { url, ...more },
})

describe('images of a request', () => {
  it.each<[string, { url: string; body: object }, readonly Partial<MessageImage>[]]>([
    [
      'chat: several, between texts',
      chat(imageUrl(DATA_URL), TEXT, imageUrl(DATA_URL, { detail: 'low' })),
      [
        { at: 0, path: 'messages[0].content[0].image_url' },
        { at: 13, path: 'messages[0].content[2].image_url', detail: 'low' },
      ],
    ],
    [
      'chat: as a text, and in the result of a tool',
      {
        url: '/v1/chat/completions',
        body: {
          messages: [
            { role: 'user', content: [{ type: 'image_url', image_url: DATA_URL }, TEXT] },
            // Without a type, as clients of Mistral's API send it.
            {
              role: 'assistant',
              tool_calls: [{ id: 'c1', function: { name: 'f', arguments: '{}' } }],
            },
            { role: 'tool', tool_call_id: 'c1', content: [TEXT, imageUrl(DATA_URL)] },
          ],
        },
      },
      [
        { at: 0, path: 'messages[0].content[0].image_url' },
        { at: 13, path: 'messages[2].content[1].image_url' },
      ],
    ],
    [
      'responses: by URL and by file',
      {
        url: '/v1/responses',
        body: {
          input: [
            {
              role: 'user',
              content: [
                { type: 'input_text', text: 'Hi' },
                { type: 'input_image', image_url: DATA_URL, detail: 'auto' },
                { type: 'input_image', file_id: 'file-1' },
              ],
            },
          ],
        },
      },
      [
        { at: 2, path: 'input[0].content[1].image_url' },
        { at: 2, path: 'input[0].content[2].file_id' },
      ],
    ],
    [
      'messages: merged turns, base64 and file',
      {
        url: '/v1/messages',
        body: {
          max_tokens: 5,
          messages: [
            { role: 'user', content: 'One' },
            {
              role: 'user',
              content: [
                TEXT,
                {
                  type: 'image',
                  source: { type: 'base64', media_type: 'image/png', data: DATA },
                },
                { type: 'image', source: { type: 'file', file_id: 'file-1' } },
              ],
            },
          ],
        },
      },
      [
        { at: 18, path: 'messages.1.content.1.source' },
        { at: 18, path: 'messages.1.content.2.source' },
      ],
    ],
  ])('are at their keys while the job runs: %s', async (_title, { url, body }, expected) => {
    seen.length = 0
    const answer = await surface.post(url, { model: 'tiny-vision', ...body })
    expect([answer.statusCode, answer.body]).toEqual([200, expect.stringContaining('Red')])
    expect(seen.map(({ image }) => image)).toMatchObject(expected)
    for (const { image, bytes } of seen) {
      expect(bytes).toEqual(PNG)
      expect(await store.head(image.key)).toBeUndefined()
    }
  })

  it('are fetched from URLs', async () => {
    seen.length = 0
    const request = chat(imageUrl(`${origin}/image.png`))
    await surface.post(request.url, { model: 'tiny-vision', ...request.body })
    expect(seen.map(({ bytes }) => bytes)).toEqual([PNG])
  })

  const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>').toString('base64')
  const bomb = Buffer.from(PNG)
  bomb.writeUInt32BE(60_000, 16)
  bomb.writeUInt32BE(60_000, 20)
  const thread = Buffer.from(PNG)
  thread.writeUInt32BE(1, 16)
  thread.writeUInt32BE(9_000_000, 20)
  it.each<[string, object[], string]>([
    ['no image', [imageUrl('data:image/png;base64,AAAA')], 'invalid_image_format'],
    ['SVG', [imageUrl(`data:image/svg+xml;base64,${svg}`)], 'invalid_image_format'],
    [
      'a pixel bomb',
      [imageUrl(`data:image/png;base64,${bomb.toString('base64')}`)],
      'image_too_large',
    ],
    [
      'nine million lines of one pixel',
      [imageUrl(`data:image/png;base64,${thread.toString('base64')}`)],
      'image_too_large',
    ],
    ['a data URL without base64', [imageUrl('data:image/png,x')], 'invalid_image_url'],
    ['a path', [imageUrl('/etc/passwd')], 'invalid_image_url'],
    ['a file URL', [imageUrl('file:///etc/passwd')], 'invalid_image_url'],
    ['too many', Array(2000).fill(imageUrl(DATA_URL)), 'too_many_images'],
  ])('are refused: %s', async (_title, content, code) => {
    const request = chat(...content)
    const { statusCode, body } = await surface.post(request.url, {
      model: 'tiny-vision',
      ...request.body,
    })
    const index = code === 'too_many_images' ? 3 : 0
    const param = `messages[0].content[${index}].image_url`
    expect([statusCode, JSON.parse(body).error]).toMatchObject([400, { code, param }])
  })

  it('are fetched for a few requests of an organization at a time', async () => {
    const services = {
      store,
      log: createLogger({ level: 'silent' }),
      images: createImageIntake({ countMax: 1, bytesMax: 1_000_000, urls: 'all' }),
      files: { find: async () => undefined },
      temporaryBytes: new HeldBytes(1024 ** 2),
    }
    const load = (organizationId: string) => {
      const images = new RequestImages()
      images.add({ kind: 'url', url: `${origin}/slow/${organizationId}` }, { path: 'image' })
      return withImages(services, { images, organizationId }, async () => organizationId)
    }
    const countOf = (name: string) => slow.filter((one) => one.name === `/slow/${name}`).length
    const loading = Array.from({ length: 8 }, () => load('one'))
    await expect.poll(() => countOf('one')).toBe(6)
    loading.push(load('two'))
    await expect.poll(() => countOf('two')).toBe(1)
    expect(countOf('one')).toBe(6)
    for (const { response } of slow) response.end(PNG)
    await expect.poll(() => countOf('one')).toBe(8)
    for (const { response } of slow) response.end(PNG)
    expect(await Promise.all(loading)).toHaveLength(9)
  })

  it.each([
    ['/missing', /status 404/, 'invalid_image_url'],
    ['/large', /larger than 1000000 bytes/, 'image_too_large'],
  ])('are refused where the URL gives none: %s', async (path, message, code) => {
    const request = chat(imageUrl(origin + path))
    const answer = await surface.post(request.url, { model: 'tiny-vision', ...request.body })
    const { error } = JSON.parse(answer.body)
    expect([answer.statusCode, error.code]).toEqual([400, code])
    expect(error.message).toMatch(message)
  })

  it.each([
    ['http://example.com/a.png', 'public', /Expected an https URL/],
    ['https://127.0.0.1/a.png', 'public', /not on the public internet/],
    ['https://[::1]/a.png', 'public', /not on the public internet/],
    ['https://example.com/a.png', 'none', /not fetched here/],
  ] as const)('are not fetched from %s with %s URLs', async (url, urls, message) => {
    const images = createImageIntake({ countMax: 3, bytesMax: 1000, urls })
    const { app, post } = await openSurface(undefined, { images })
    const request = chat(imageUrl(url))
    const answer = await post(request.url, { model: 'tiny-vision', ...request.body })
    await app.close()
    expect([answer.statusCode, JSON.parse(answer.body).error.code]).toEqual([
      400,
      'invalid_image_url',
    ])
    expect(JSON.parse(answer.body).error.message).toMatch(message)
  })
})
