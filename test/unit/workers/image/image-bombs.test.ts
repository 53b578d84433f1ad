import { crc32, deflateSync } from 'node:zlib'

import sharp from 'sharp'
import { expect, it } from 'vitest'

import { openImage } from '#workers/image/image-file.ts'

const ELAPSED_MS_MAX = 15_000
const GROWTH_MIB_MAX = 300
const TEXT = { type: 'zTXt', prefix: 'a\0\0' }

it.each<[string, () => Promise<Buffer> | Buffer]>([
  ['a progressive JPEG of 3,000 scans', jpegOfScans],
  ['a PNG whose text inflates to 200 MiB', () => png(TEXT)],
  ['a PNG of 60 texts that inflate to 8 MB each', () => png({ ...TEXT, count: 60, size: 7.9e6 })],
  ['a PNG of 200,000 chunks', () => png({ type: 'teXt', prefix: 'a', count: 200_000, size: 0 })],
  ['a PNG whose colour profile inflates to 200 MiB', () => png({ type: 'iCCP', prefix: 'a\0\0' })],
  ['an SVG that grows by entities', () => Buffer.from(svgOfEntities())],
  ['an SVG that names a file', () => Buffer.from(svg('<image href="file:///etc/passwd"/>'))],
  [
    'a GIF of 60,000 × 60,000 pixels',
    () => Buffer.from('GIF89a\x60\xea\x60\xea\x80\0\0', 'latin1'),
  ],
  ['a PNG of nine million lines of one pixel', () => pngOfLines(9_000_000)],
  ['a WebP cut off in the middle', async () => (await plain().webp().toBuffer()).subarray(0, 60)],
  ['an animated WebP', movingWebp],
])('reads or refuses %s in bounded time and memory', { timeout: 60_000 }, async (_name, make) => {
  const bytes = await make()
  const before = { rss: process.memoryUsage.rss(), at: performance.now() }
  const size = { width: 64, height: 64 }
  const colours = await openImage(bytes, 'image')
    .then(async (image) => {
      // The formats that vision models read.
      await image.colours()
      return image.coloursAt(size)
    })
    .catch((error: unknown) => {
      expect(error).toMatchObject({ kind: 'invalidRequest', param: 'image' })
      return undefined
    })
  if (colours !== undefined) expect(colours.data).toHaveLength(64 * 64 * 3)
  expect(performance.now() - before.at).toBeLessThan(ELAPSED_MS_MAX)
  expect((process.memoryUsage.rss() - before.rss) / 2 ** 20).toBeLessThan(GROWTH_MIB_MAX)
})

function plain(side = 256) {
  return sharp({ create: { width: side, height: side, channels: 3, background: '#d22' } })
}

/** Each further scan makes the decoder go through all coefficients again. */
async function jpegOfScans(): Promise<Buffer> {
  const bytes = await plain(4000).jpeg({ progressive: true }).toBuffer()
  const scan = bytes.lastIndexOf(Buffer.from([0xff, 0xda]))
  const end = bytes.length - 2
  const scans = Array.from({ length: 3000 }, () => bytes.subarray(scan, end))
  return Buffer.concat([bytes.subarray(0, scan), ...scans, bytes.subarray(end)])
}

/** A PNG of 8 × 8 pixels with chunks that inflate to a size each. */
function png({
  type,
  prefix,
  count = 1,
  size = 200 * 2 ** 20,
}: {
  type: string
  prefix: string
  count?: number
  size?: number
}): Buffer {
  const bomb = Buffer.concat([Buffer.from(prefix), deflateSync(Buffer.alloc(size))])
  const bombs = Array.from({ length: count }, () => chunk(type, bomb))
  return pngOf({ width: 8, height: 8, colours: 2 }, bombs)
}

function pngOfLines(height: number): Buffer {
  return pngOf({ width: 1, height, colours: 0 }, [])
}

/** A black PNG, grey or of three colours, with chunks before its pixels. */
function pngOf(
  { width, height, colours }: { width: number; height: number; colours: 0 | 2 },
  chunks: readonly Buffer[],
): Buffer {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([8, colours], 8)
  return Buffer.concat([
    Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'),
    chunk('IHDR', header),
    ...chunks,
    chunk('IDAT', deflateSync(Buffer.alloc((width * (colours + 1) + 1) * height))),
    chunk('IEND', Buffer.alloc(0)),
  ])
}

function chunk(name: string, body: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(name), body])
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
  length.writeUInt32BE(body.length)
  sum.writeUInt32BE(crc32(named))
  return Buffer.concat([length, named, sum])
}

function svg(body: string): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">${body}</svg>`
}

function svgOfEntities(): string {
  const names = [...'abcdefghij']
  const entities = names.map((name, at) => {
    const value = at === 0 ? 'x' : `&${names[at - 1]};`.repeat(10)
    return `<!ENTITY ${name} "${value}">`
  })
  return `<!DOCTYPE svg [${entities.join('')}]>${svg('<text>&j;</text>')}`
}

async function movingWebp(): Promise<Buffer> {
  const frames = await Promise.all(
    ['#d22', '#22d'].map((background) =>
      sharp({ create: { width: 64, height: 64, channels: 3, background } })
        .png()
        .toBuffer(),
    ),
  )
  return sharp(frames, { join: { animated: true } })
    .webp({ delay: [100, 100] })
    .toBuffer()
}
