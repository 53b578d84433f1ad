import sharp from 'sharp'
import { expect, it } from 'vitest'

import { openPicture } from '#workers/image/picture-file.ts'

const SIZE = { width: 8, height: 8 }
const RED = [255, 0, 0]
const WHITE = [255, 255, 255]

/** White with a red quarter at the top left, and a header that says how it is held. */
async function photograph(format: 'png' | 'jpeg' | 'webp', orientation: number): Promise<Buffer> {
  const red = { create: { width: 32, height: 32, channels: 3, background: '#f00' } } as const
  const picture = sharp({ create: { width: 64, height: 64, channels: 3, background: '#fff' } })
    .composite([{ input: await sharp(red).png().toBuffer(), left: 0, top: 0 }])
    .withMetadata({ orientation })
  const files = {
    png: () => picture.png(),
    jpeg: () => picture.jpeg({ quality: 100, chromaSubsampling: '4:4:4' }),
    webp: () => picture.webp({ lossless: true }),
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
  const picture = await openPicture(await photograph(format, orientation), 'image')
  const { data } = await picture.coloursAt(SIZE)
  const corners = { 'top left': 0, 'top right': 7, 'bottom left': 56, 'bottom right': 63 }
  for (const [name, at] of Object.entries(corners)) {
    const expected = name === corner ? RED : WHITE
    for (const [channel, value] of expected.entries()) {
      expect(Math.abs((data[3 * at + channel] as number) - value), name).toBeLessThan(12)
    }
  }
})
