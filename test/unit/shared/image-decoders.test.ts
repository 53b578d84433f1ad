import sharp from 'sharp'
import { expect, it } from 'vitest'

import { restrictImageDecoders } from '#shared/image-decoders.ts'

const square = () => sharp({ create: { width: 8, height: 8, channels: 4, background: '#f00' } })
const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"/>')

it('parses only images of the listed formats', async () => {
  const read = {
    png: await square().png().toBuffer(),
    jpeg: await square().jpeg().toBuffer(),
    webp: await square().webp().toBuffer(),
    gif: await square().gif().toBuffer(),
  }
  const refused = {
    svg,
    'svg behind the start of a GIF': Buffer.concat([Buffer.from('GIF89a '), svg]),
    avif: await square().avif().toBuffer(),
    tiff: await square().tiff().toBuffer(),
    'portable pixel map': Buffer.from('P6 1 1 255\n\0\0\0'),
  }
  restrictImageDecoders(sharp)
  restrictImageDecoders(sharp)
  for (const [format, bytes] of Object.entries(read)) {
    expect(await sharp(bytes).metadata()).toMatchObject({ format, width: 8 })
  }
  for (const [format, bytes] of Object.entries(refused)) {
    await expect(sharp(bytes).metadata(), format).rejects.toThrow(/unsupported|corrupt/)
  }
})
