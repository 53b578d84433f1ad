import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { failure } from '#shared/errors.ts'

import { formBody, type Part, postForm } from './forms.ts'
import { type ImageSurface, openImageSurface } from './image-surface.ts'

const PNG = await makeImage(64, 'png', { r: 9, g: 9, b: 9, alpha: 0.5 })
const OPAQUE = await makeImage(64, 'png', { r: 9, g: 9, b: 9 })
const GREY = await sharp(OPAQUE).toColourspace('b-w').png().toBuffer()
const GIF = await makeImage(64, 'gif', { r: 1, g: 1, b: 1 })
const OBLONG = await makeImage([64, 32], 'png', { r: 1, g: 1, b: 1 })
const SMALL = await makeImage(32, 'png', { r: 0, g: 0, b: 0, alpha: 0 })
const WEBP = await makeImage(64, 'webp', { r: 0, g: 0, b: 0, alpha: 0 })
const WIDE = await makeImage(5000, 'png', { r: 1, g: 1, b: 1 })
const MOVING = await sharp([PNG, OPAQUE], { join: { animated: true } })
  .webp({ loop: 0 })
  .toBuffer()

async function makeImage(
  size: number | [number, number],
  format: 'png' | 'jpeg' | 'webp' | 'gif',
  background: { r: number; g: number; b: number; alpha?: number },
): Promise<Buffer> {
  const [width, height] = [size, size].flat() as [number, number]
  const channels = background.alpha === undefined ? 3 : 4
  return sharp({ create: { width, height, channels, background } }).toFormat(format).toBuffer()
}

let images: ImageSurface
let surface: ImageSurface['surface']

beforeAll(async () => {
  images = await openImageSurface()
  surface = images.surface
})
afterAll(() => images.close())

const post = (url: string, body: readonly Part[] | Buffer) =>
  postForm(surface.app, `/v1/images/${url}`, body)
const file = (name: string, bytes: Buffer, filename = 'a.png'): Part => [name, { filename, bytes }]

describe('POST /v1/images/edits', () => {
  const PROMPT: Part = ['prompt', 'a hat']

  it.each([
    ['files first', [file('image', PNG), file('mask', PNG), PROMPT, ['n', '2']]],
    ['texts first', [['n', '2'], PROMPT, file('image', PNG), file('mask', PNG)]],
    ['brackets', [PROMPT, file('image[]', PNG), ['n', '2'], file('mask', PNG)]],
  ] as [string, Part[]][])('takes an image and a mask, %s', async (_title, parts) => {
    const response = await post('edits', parts)
    expect(response.json().data).toHaveLength(2)
    expect(images.submitted()).toMatchObject({ task: 'edit', prompt: 'a hat', n: 2 })
    expect(images.seen()).toEqual([PNG, PNG])
    expect(await images.keys('temporary/')).toEqual([])
  })

  it('accepts a transparent image without a mask, and its numbers', async () => {
    const texts: Part[] = [
      ['seed', '3'],
      ['strength', '0.5'],
      ['size', '256x256'],
    ]
    expect((await post('edits', [file('image', PNG), PROMPT, ...texts])).statusCode).toBe(200)
    expect(images.submitted()).toMatchObject({ seed: 3, strength: 0.5, width: 256 })
    expect(images.submitted()).not.toHaveProperty('maskKey')
  })

  it('reads empty texts as fields that were left out', async () => {
    const empty = ['response_format', 'size', 'n', 'user', 'stream'].map((name): Part => [name, ''])
    const response = await post('edits', [PROMPT, ...empty, file('image', PNG)])
    expect(response.json().data).toEqual([{ url: expect.any(String) }])
  })

  it('accepts several images, draws on the first and reports the others', async () => {
    const others = [file('image[]', SMALL), file('image[]', WEBP), file('mask', PNG)]
    const response = await post('edits', [file('image[]', PNG), ...others, PROMPT])
    expect(response.statusCode, response.body).toBe(200)
    expect(images.seen()).toEqual([PNG, PNG])
    expect(response.headers['x-millrace-ignored-parameters']).toBe('image[1]')
  })

  it('streams the edited image', async () => {
    const response = await post('edits', [file('image', PNG), PROMPT, ['stream', 'true']])
    expect(response.headers['content-type']).toContain('text/event-stream')
    expect(response.body).toMatch(/^event: image_edit\.completed\ndata: \{.*"b64_json":"/)
    // A stream ends before what it was made from is deleted.
    await expect.poll(() => images.keys('temporary/')).toEqual([])
  })

  it.each(['jpeg', 'webp'] as const)('takes an image in %s', async (format) => {
    const image = await makeImage(64, format, { r: 1, g: 2, b: 3 })
    const parts = [file('image', image, 'blob'), file('mask', PNG), PROMPT]
    expect((await post('edits', parts)).statusCode).toBe(200)
  })

  it.each([
    ['an opaque', OPAQUE],
    ['a grey', GREY],
  ])(
    'lets the worker redraw all of %s image without making a mask of its size',
    async (_kind, image) => {
      const response = await post('edits', [file('image', image), PROMPT, ['quality', 'hd']])
      expect(response.statusCode).toBe(200)
      expect(response.headers['x-millrace-ignored-parameters']).toBe('quality')
      expect(images.submitted()).not.toHaveProperty('maskKey')
      expect(images.seen()).toEqual([image])
    },
  )

  it('leaves no files when its job fails', async () => {
    surface.submitter.script = () => {
      throw failure.invalidRequest('The pixels are broken.', { param: 'image' })
    }
    const response = await post('edits', [file('image', PNG), PROMPT])
    surface.submitter.script = images.draw
    expect([response.statusCode, response.json().error.param]).toEqual([400, 'image'])
    expect(await images.keys('temporary/')).toEqual([])
  })

  const NOT_PNG = /^Uploaded image must be a PNG and less than 4 MB\./
  const HUGE = Buffer.concat([PNG.subarray(0, 16), Buffer.from([0, 0, 0xc3, 0x50])])
  const rows: [string, Part[], string | null, string | null, RegExp][] = [
    ['no image', [PROMPT], 'image', 'missing_required_parameter', /./],
    ['no prompt', [file('image', PNG)], 'prompt', 'missing_required_parameter', /./],
    ['an empty prompt', [file('image', PNG), ['prompt', '']], 'prompt', 'empty_string', /./],
    ['a text as image', [['image', 'x'], PROMPT], 'image', 'invalid_type', /expected a file/],
    ['a file as prompt', [file('image', PNG), file('prompt', PNG)], 'prompt', 'invalid_type', /./],
    ['two masks', [file('mask', PNG), file('mask', PNG)], 'mask', 'duplicate_parameter', /./],
    ['two prompts', [PROMPT, PROMPT], 'prompt', 'duplicate_parameter', /./],
    ['an unknown text', [PROMPT, ['colour', 'red']], 'colour', 'unknown_parameter', /./],
    ['an unknown file', [file('picture', PNG)], 'picture', 'unknown_parameter', /./],
    [
      'n out of range',
      [file('image', PNG), PROMPT, ['n', '11']],
      'n',
      'integer_above_max_value',
      /./,
    ],
    ['n that is not a number', [file('image', PNG), PROMPT, ['n', 'x']], 'n', 'invalid_type', /./],
    [
      'an unknown size',
      [file('image', PNG), PROMPT, ['size', '2x2']],
      'size',
      'invalid_value',
      /./,
    ],
    ['a quality', [file('image', PNG), PROMPT, ['quality', 'x']], 'quality', 'invalid_value', /./],
    [
      'text as image',
      [file('image', Buffer.from('hello')), PROMPT],
      'image',
      'invalid_image',
      NOT_PNG,
    ],
    ['an empty image', [file('image', Buffer.alloc(0)), PROMPT], 'image', 'invalid_image', NOT_PNG],
    ['a GIF', [file('image', GIF), PROMPT], 'image', 'invalid_image', NOT_PNG],
    ['a broken header', [file('image', HUGE), PROMPT], 'image', 'invalid_image', NOT_PNG],
    [
      '4 MB',
      [file('image', Buffer.concat([PNG, Buffer.alloc(4 * 1024 * 1024)])), PROMPT],
      'image',
      'invalid_image',
      NOT_PNG,
    ],
    [
      'an image that is too wide',
      [file('image', WIDE), PROMPT],
      'image',
      'invalid_image_format',
      /^Uploaded image must be at most 4096 pixels wide and high, but it is 5000\.$/,
    ],
    [
      'an image that moves',
      [file('image', MOVING), PROMPT],
      'image',
      'invalid_image_format',
      /^Uploaded image must not be animated\.$/,
    ],
    [
      'no square',
      [file('image', OBLONG), PROMPT],
      'image',
      'invalid_image_format',
      /^Uploaded image must be square\.$/,
    ],
    [
      'an opaque mask',
      [file('image', OPAQUE), file('mask', OPAQUE), PROMPT],
      'mask',
      'invalid_image_format',
      /^Invalid mask image/,
    ],
    [
      'a mask of another size',
      [file('image', PNG), file('mask', SMALL), PROMPT],
      'mask',
      'invalid_image_format',
      /expected 64x64, but got 32x32/,
    ],
    [
      'a mask in WebP',
      [file('image', PNG), file('mask', WEBP), PROMPT],
      'mask',
      'invalid_image_format',
      /must be a PNG/,
    ],
  ]
  it.each(rows)('refuses %s', async (_title, parts, param, code, message) => {
    const { length } = surface.submitter.requests
    const response = await post('edits', parts)
    expect(response.statusCode).toBe(400)
    expect(response.json().error).toMatchObject({ param, code, type: 'invalid_request_error' })
    expect(response.json().error.message).toMatch(message)
    expect(surface.submitter.requests).toHaveLength(length)
    expect(await images.keys('temporary/')).toEqual([])
  })

  it('refuses an image whose header promises 50,000 pixels a side', async () => {
    const header = Buffer.from(PNG)
    header.writeUInt32BE(50_000, 16)
    header.writeUInt32BE(50_000, 20)
    const response = await post('edits', [file('image', header), PROMPT])
    expect([response.statusCode, response.json().error.param]).toEqual([400, 'image'])
  })
})

describe('POST /v1/images/variations', () => {
  it('needs nothing but an image', async () => {
    const response = await post('variations', [file('image', OPAQUE)])
    expect(response.json().data).toHaveLength(1)
    expect(images.submitted()).toMatchObject({ task: 'variation', n: 1 })
    expect(images.seen()).toEqual([OPAQUE])
  })

  it('knows neither a prompt nor a mask', async () => {
    for (const part of [['prompt', 'x'], file('mask', PNG)] as Part[]) {
      const response = await post('variations', [file('image', PNG), part])
      expect(response.json().error).toMatchObject({ code: 'unknown_parameter', param: part[0] })
    }
  })

  it('refuses forms that break off, are no forms or are too large', async () => {
    const whole = formBody([file('image', PNG)])
    const status = async (body: Buffer) => (await post('variations', body)).statusCode
    expect(await status(whole.subarray(0, 200))).toBe(400)
    expect(await status(whole.subarray(0, 40))).toBe(400)
    expect(await status(Buffer.alloc(0))).toBe(400)
    expect(await status(Buffer.from('no form at all'))).toBe(400)
    expect(await status(Buffer.alloc(17 * 1024 * 1024))).toBe(413)
    const json = await surface.post('/v1/images/variations', { image: 'x' })
    expect(json.statusCode).toBe(415)
    expect((await post('variations', [file('image', PNG)])).statusCode).toBe(200)
  })
})
