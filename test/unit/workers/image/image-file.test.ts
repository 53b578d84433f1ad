import { crc32 } from 'node:zlib'

import sharp, { type Sharp } from 'sharp'
import { expect, it } from 'vitest'

import { openImage } from '#workers/image/image-file.ts'

const SIZE = { width: 8, height: 8 }
const RED = [255, 0, 0]
const WHITE = [255, 255, 255]

/** White with a red quarter at the top left, and a header that says how it is held. */
async function photograph(format: 'png' | 'jpeg' | 'webp', orientation: number): Promise<Buffer> {
  const red = { create: { width: 32, height: 32, channels: 3, background: '#f00' } } as const
  const image = sharp({ create: { width: 64, height: 64, channels: 3, background: '#fff' } })
    .composite([{ input: await sharp(red).png().toBuffer(), left: 0, top: 0 }])
    .withMetadata({ orientation })
  const files = {
    png: () => image.png(),
    jpeg: () => image.jpeg({ quality: 100, chromaSubsampling: '4:4:4' }),
    webp: () => image.webp({ lossless: true }),
  }
  return files[format]().toBuffer()
}

// The eight values of the Exif standard, and where the top left of the stored pixels is seen.
it.each([
  ['jpeg', 1, 'top left'],
  ['jpeg', 2, 'top right'],
  ['jpeg', 3, 'bottom right'],
  ['jpeg', 4, 'bottom left'],
  ['jpeg', 5, 'top left'],
  ['jpeg', 6, 'top right'],
  ['jpeg', 7, 'bottom right'],
  ['jpeg', 8, 'bottom left'],
  ['png', 6, 'top right'],
  ['webp', 6, 'top right'],
] as const)('is read as it is looked at: %s held as %i', async (format, orientation, corner) => {
  const image = await openImage(await photograph(format, orientation), 'image')
  const { data } = await image.coloursAt(SIZE)
  const corners = { 'top left': 0, 'top right': 7, 'bottom left': 56, 'bottom right': 63 }
  for (const [name, at] of Object.entries(corners)) {
    const expected = name === corner ? RED : WHITE
    for (const [channel, value] of expected.entries()) {
      expect(Math.abs((data[3 * at + channel] as number) - value), name).toBeLessThan(12)
    }
  }
})

/** Red, with its bottom right quarter transparent. */
function cutOut() {
  const create = { width: 64, height: 64, channels: 4, background: '#f00' } as const
  const hole = { create: { width: 32, height: 32, channels: 4, background: '#000' } } as const
  return sharp({ create }).composite([{ input: hole, left: 32, top: 32, blend: 'dest-out' }])
}

const redraw = async (make: (image: Sharp) => Sharp) =>
  make(sharp(await cutOut().png().toBuffer())).toBuffer()

// As programs write them that are not asked for anything in particular.
it.each([
  ['8 bits', (image) => image.png()],
  ['16 bits', (image) => image.toColourspace('rgb16').png()],
  ['a palette with transparency', (image) => image.png({ palette: true })],
  ['lines that come in seven passes', (image) => image.png({ progressive: true })],
  ['16 bits in seven passes', (image) => image.toColourspace('rgb16').png({ progressive: true })],
  ['WebP', (image) => image.webp({ lossless: true })],
  ['grey', (image) => image.greyscale().png()],
] as [string, (image: Sharp) => Sharp][])(
  'an image of %s is redrawn where it is transparent, and white there',
  async (kind, make) => {
    const image = await openImage(await redraw(make), 'image')
    const [colours, hole] = [await image.coloursAt(SIZE), await image.transparencyAt(SIZE)]
    expect(colours.data).toHaveLength(3 * 64)
    const [first, last] = [0, 63].map((at) => [...colours.data.subarray(3 * at, 3 * at + 3)])
    if (kind !== 'grey')
      expect(first?.map((value) => Math.round(value / 32) * 32)).toEqual([256, 0, 0])
    expect(last).toEqual(WHITE)
    // Nothing but shades between the two along the edge.
    for (let at = 0; at < 64; at += 1) {
      const [, green = 0, blue = 0] = colours.data.subarray(3 * at)
      expect(Math.abs(green - blue)).toBeLessThan(3)
    }
    const expected = Array.from({ length: 64 }, (_, at) => (at % 8 > 3 && at > 31 ? 1 : 0))
    expect([...hole.data]).toEqual(expected)
  },
)

it('reads the first frame of an image with an uncommon animation', async () => {
  // An APNG is a PNG with more chunks before its pixels.
  const still = await redraw((image) => image.png())
  const head = 8 + 25
  const chunk = (name: string, data: Buffer) => {
    const body = Buffer.concat([Buffer.from(name), data])
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
    length.writeUInt32BE(data.length)
    sum.writeUInt32BE(crc32(body))
    return Buffer.concat([length, body, sum])
  }
  const control = Buffer.from([0, 0, 0, 1, 0, 0, 0, 0])
  const moving = Buffer.concat([
    still.subarray(0, head),
    chunk('acTL', control),
    still.subarray(head),
  ])
  const image = await openImage(moving, 'image')
  expect((await image.coloursAt(SIZE)).data).toEqual(
    (await (await openImage(still, 'image')).coloursAt(SIZE)).data,
  )
})
