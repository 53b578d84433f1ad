import sharp from 'sharp'
import { expect, it } from 'vitest'

import { boundImage } from '#shared/image-bytes.ts'

const image = () => sharp({ create: { width: 64, height: 64, channels: 3, background: '#d22' } })
// Length, name, keyword, zero byte, text and checksum.
const TEXT = Buffer.from('0000000374455874610062dc49a23b', 'hex')
const pixelsOf = (bytes: Buffer) => sharp(bytes).raw().toBuffer()
const described = () => image().withExif({ IFD0: { Copyright: 'a'.repeat(1000) } })

it('omits the text of a PNG, and keeps its pixels and its colours', async () => {
  const plain = await image().withIccProfile('p3').png().toBuffer()
  // Behind the header, whose chunk has 25 bytes.
  const bytes = Buffer.concat([plain.subarray(0, 33), TEXT, plain.subarray(33)])
  const bound = boundImage(bytes)
  expect((await sharp(bytes).metadata()).comments).toEqual([{ keyword: 'a', text: 'b' }])
  expect(bound).toEqual(plain)
  expect((await sharp(bound).metadata()).icc).toBeDefined()
  expect(await pixelsOf(bound)).toEqual(await pixelsOf(bytes))
})

it.each([
  ['a PNG without texts', () => described().png().toBuffer()],
  ['a progressive JPEG', () => described().jpeg({ progressive: true }).toBuffer()],
  ['a WebP', () => described().webp().toBuffer()],
  ['the beginning of a PNG', async () => (await image().png().toBuffer()).subarray(0, 20)],
  ['the beginning of a JPEG', async () => (await image().jpeg().toBuffer()).subarray(0, 20)],
  ['no bytes', () => Buffer.alloc(0)],
])('leaves %s as it is', async (_name, make) => {
  const bytes = await make()
  expect(boundImage(bytes)).toBe(bytes)
})

it('refuses a JPEG of more than a hundred scans, not those of images within it', async () => {
  const bytes = await image().jpeg({ progressive: true }).toBuffer()
  const scan = bytes.subarray(bytes.lastIndexOf(Buffer.from([0xff, 0xda])), -2)
  const scans = Buffer.concat(Array.from({ length: 100 }, () => scan))
  const many = Buffer.concat([bytes.subarray(0, -2), scans, bytes.subarray(-2)])
  expect(() => boundImage(many)).toThrow('more than 100 scans')
  const segment = Buffer.concat([Buffer.from([0xff, 0xed, 0, 0]), scans])
  segment.writeUInt16BE(scans.length + 2, 2)
  const within = Buffer.concat([bytes.subarray(0, 2), segment, bytes.subarray(2)])
  expect(boundImage(within)).toBe(within)
})
