import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { crc32, deflateSync } from 'node:zlib'

import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openTarget, type Refusal, type Target } from './hostile-target.ts'

const FIXTURES = join(import.meta.dirname, '../../fixtures')
const SETUP_TIMEOUT_MS = 400_000

let target: Target
beforeAll(async () => {
  target = await openTarget()
  // Memory that every kind of request allocates once is not growth caused by hostile ones.
  for (let time = 0; time < 3; time += 1) {
    await vary(await plainImage(64))
    await listen('a.wav', randomBytes(1000))
  }
}, SETUP_TIMEOUT_MS)
afterAll(() => target.close())
const post: Target['post'] = (...request) => target.post(...request)
const unharmed: Target['unharmed'] = (act) => target.unharmed(act)

function form(fields: Readonly<Record<string, string | Blob>>): FormData {
  const body = new FormData()
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'string') body.set(name, value)
    else body.set(name, value, 'file.png')
  }
  return body
}

const blob = (bytes: Buffer) => new Blob([Uint8Array.from(bytes)])
const vary = (image: Buffer) =>
  post('/images/variations', form({ image: blob(image), size: '256x256' }))

function listen(filename: string, bytes: Buffer): Promise<Refusal> {
  const body = form({ model: 'speech' })
  body.set('file', blob(bytes), filename)
  return post('/audio/transcriptions', body)
}

function plainImage(side: number): Promise<Buffer> {
  const create = { width: side, height: side, channels: 4, background: '#d22' } as const
  return sharp({ create }).png().toBuffer()
}

/** A PNG file that says of itself what it likes. */
function png(side: number, pixels: Buffer, depth = 8): Buffer {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(side, 0)
  header.writeUInt32BE(side, 4)
  header.set([depth, 6], 8)
  const chunk = (type: string, bytes: Buffer): Buffer => {
    const named = Buffer.concat([Buffer.from(type), bytes])
    const length = Buffer.alloc(4)
    length.writeUInt32BE(bytes.length)
    const sum = Buffer.alloc(4)
    sum.writeUInt32BE(crc32(named))
    return Buffer.concat([length, named, sum])
  }
  return Buffer.concat([
    Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'),
    chunk('IHDR', header),
    chunk('IDAT', deflateSync(pixels)),
    chunk('IEND', Buffer.alloc(0)),
  ])
}

describe('images', () => {
  it.each<[string, () => Promise<Buffer> | Buffer]>([
    ['of 50,000 × 50,000 pixels, in its own words', () => png(50_000, Buffer.alloc(1000))],
    ['of no pixels', () => png(0, Buffer.alloc(0))],
    ['that end in the middle', async () => (await plainImage(512)).subarray(0, 300)],
    [
      'that are text',
      () => Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'),
    ],
    ['that move', moving],
    [
      'that only begin like one',
      () => Buffer.concat([Buffer.from('RIFF\x10\0\0\0WEBP', 'latin1'), randomBytes(999)]),
    ],
  ])('%s are refused, naming the field', { timeout: 120_000 }, async (_title, make) => {
    const image = await make()
    await unharmed(async () => {
      expect(await vary(image)).toMatchObject({ status: 400, param: 'image' })
    })
  })

  it("of the largest size do not delay the worker's other work", {
    timeout: 240_000,
  }, async () => {
    const image = png(4096, Buffer.alloc((4096 * 8 + 1) * 4096), 16)
    expect((await vary(image)).status).toBe(200)
    expect(
      (await post('/images/edits', form({ image: blob(image), prompt: 'a', size: '256x256' })))
        .status,
    ).toBe(200)
    expect(target.worker.isRunning()).toBe(true)
  })

  it('with a mask of another size are refused, naming the mask', async () => {
    const fields = {
      prompt: 'a',
      image: blob(await plainImage(64)),
      mask: blob(await plainImage(32)),
    }
    expect(await post('/images/edits', form(fields))).toMatchObject({ status: 400, param: 'mask' })
  })
})

async function moving(): Promise<Buffer> {
  const frames = [
    await plainImage(64),
    await sharp({ create: { width: 64, height: 64, channels: 4, background: '#22d' } })
      .png()
      .toBuffer(),
  ]
  return sharp(frames, { join: { animated: true } })
    .webp({ loop: 0, delay: [100, 100] })
    .toBuffer()
}

describe('recordings', () => {
  const extensions = ['flac', 'm4a', 'mp3', 'mp4', 'mpeg', 'mpga', 'oga', 'ogg', 'wav', 'webm']
  it.each(extensions)(
    'that are noise by the name of .%s are refused',
    { timeout: 120_000 },
    async (extension) => {
      await unharmed(async () => {
        expect(await listen(`a.${extension}`, randomBytes(50_000))).toMatchObject({
          status: 400,
          param: 'file',
        })
      })
    },
  )

  it.each([
    ['playlist.mp3', '#EXTM3U\nfile:///etc/passwd\n'],
    ['list.mp3', "ffconcat version 1.0\nfile '/etc/passwd'\n"],
    ['session.wav', 'v=0\no=- 0 0 IN IP4 127.0.0.1\nm=audio 5000 RTP/AVP 0\n'],
    ['page.mp3', '<html>hello</html>'],
    ['archive.flac', `PK\x03\x04${'a'.repeat(2000)}`],
  ])('that are something else are refused: %s', { timeout: 120_000 }, async (name, text) => {
    expect(await listen(name, Buffer.from(text))).toMatchObject({ status: 400, param: 'file' })
  })

  it('with hours of silence in a small file are refused before they are decoded', {
    timeout: 120_000,
  }, async () => {
    const file = await readFile(join(FIXTURES, 'audio/en-3.opus'))
    // The last page says when it ends: ten hours from the beginning.
    file.writeBigUInt64LE(BigInt(10 * 3600 * 48_000), file.lastIndexOf('OggS') + 6)
    await unharmed(async () => {
      expect(await listen('a.ogg', file)).toMatchObject({
        status: 400,
        param: 'file',
        code: 'audio_too_long',
      })
    })
  })
})
