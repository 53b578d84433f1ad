import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, expect, it, vi } from 'vitest'

import { findAudioDecoder } from '#workers/audio/decode.ts'

const CLIPS = join(import.meta.dirname, '../../../fixtures/audio')
const { decode, name } = await findAudioDecoder()
const folder = await mkdtemp(join(tmpdir(), 'millrace-decode-'))
// Content that a stranger must not get: a recording beside the one that was sent.
const secret = join(folder, 'secret.mp3')
await copyFile(join(CLIPS, 'en-4.mp3'), secret)

afterAll(() => rm(folder, { recursive: true }))

const segment = `#EXTINF:10,\n${secret}\n#EXT-X-ENDLIST\n`

it('decodes with FFmpeg', ({ skip }) => {
  if (name !== 'ffmpeg') skip('no FFmpeg on this machine; these cases meet the built-in decoders')
})

it.each([
  ['a playlist by its path', 'mp3', `#EXTM3U\n#EXT-X-TARGETDURATION:10\n${segment}`],
  ['a playlist by its name', 'mp3', `#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:10,\nsecret.mp3\n`],
  ['a manifest', 'mp4', manifest(`file://${secret}`)],
  ['a list of files', 'mp3', "ffconcat version 1.0\nfile 'secret.mp3'\n"],
])('reads no other file that the sent one names: %s', async (_title, extension, text) => {
  const path = join(folder, `clip.${extension}`)
  await writeFile(path, text)
  await expect(listen(path)).rejects.toMatchObject({ kind: 'invalidRequest', param: 'file' })
})

it('decodes the same recording if the client sends it directly', async () => {
  expect(await listen(secret)).toBeGreaterThan(16_000)
})

it.each(['en-long.flac', 'en-1.wav'])(
  'waits for a model that takes minutes for a window: %s',
  async (file) => {
    const whole = await listen(join(CLIPS, file))
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const slowly = () => vi.advanceTimersByTime(60_000)
    expect(await listen(join(CLIPS, file), slowly).finally(() => vi.useRealTimers())).toBe(whole)
  },
)

it('limits the memory of FFmpeg', async ({ skip }) => {
  if (process.platform !== 'linux') skip('only Linux holds processes to it')
  // A recording of a few kilobytes can claim so many samples that their index takes gigabytes.
  const script = `#!/bin/sh\nulimit -d > '${folder}/limit'\n`
  await writeFile(join(folder, 'ffmpeg'), script, { mode: 0o700 })
  vi.stubEnv('PATH', folder)
  await findAudioDecoder().finally(() => vi.unstubAllEnvs())
  expect(Number(await readFile(join(folder, 'limit'), 'utf8'))).toBeLessThanOrEqual(512 * 1024)
})

it('refuses a recording that is too long before decoding it, stated or not', async () => {
  // Silence in frames of eleven bytes, each of which says that it lasts 4,096 samples.
  const path = join(folder, 'clip.flac')
  await writeFile(path, hoursOfSilence())
  let samples = 0
  const options = { secondsMax: 600, signal: new AbortController().signal }
  const decodeAll = async () => {
    for await (const piece of decode(path, options)) samples += piece.length
  }
  await expect(decodeAll()).rejects.toMatchObject({ code: 'audio_too_long', param: 'file' })
  if (name === 'ffmpeg') expect(samples).toBe(0)
})

/** A FLAC file of one channel at 16 kHz that states no length (RFC 9639). */
function hoursOfSilence(): Buffer {
  const info = Buffer.alloc(42)
  info.write('fLaC')
  info.writeUInt32BE(0x80_00_00_22, 4)
  info.writeUInt16BE(4096, 8)
  info.writeUInt16BE(4096, 10)
  info.writeUInt32BE(((16_000 << 12) | (15 << 4)) >>> 0, 18)
  return Buffer.concat([info, ...Array.from({ length: 20_000 }, (_, at) => silentFrame(at))])
}

function silentFrame(at: number): Buffer {
  // Frames are numbered as UTF-8 writes code points.
  const place = Buffer.from(String.fromCodePoint(at))
  // Block of 4,096 samples, 16 kHz, one channel, 16 bits.
  const head = Buffer.concat([Buffer.from([0xff, 0xf8, 0xc5, 0x08]), place])
  // A constant subframe of zero.
  const body = Buffer.concat([head, Buffer.from([checksum(head, 8, 0x07)]), Buffer.alloc(3)])
  const sum = Buffer.alloc(2)
  sum.writeUInt16BE(checksum(body, 16, 0x8005))
  return Buffer.concat([body, sum])
}

function checksum(bytes: Buffer, width: number, polynomial: number): number {
  let value = 0
  for (const byte of bytes) {
    value ^= byte << (width - 8)
    for (let bit = 0; bit < 8; bit += 1) {
      const isCarried = (value >> (width - 1)) & 1
      value = ((value << 1) & (2 ** width - 1)) ^ (isCarried ? polynomial : 0)
    }
  }
  return value
}

function manifest(address: string): string {
  return `<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"
    mediaPresentationDuration="PT3S" profiles="urn:mpeg:dash:profile:isoff-on-demand:2011"><Period>
    <AdaptationSet mimeType="audio/mp4"><Representation id="1" bandwidth="1">
    <BaseURL>${address}</BaseURL></Representation></AdaptationSet></Period></MPD>`
}

async function listen(path: string, afterEach = () => {}): Promise<number> {
  let samples = 0
  const options = { secondsMax: 60, signal: new AbortController().signal }
  for await (const piece of decode(path, options)) {
    samples += piece.length
    afterEach()
  }
  return samples
}
