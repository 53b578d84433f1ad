import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, expect, it, vi } from 'vitest'

import { type AudioDecoder, findAudioDecoder, SAMPLE_RATE } from '#workers/audio/decode.ts'

const TONES = join(import.meta.dirname, '../../../fixtures/audio/tones')
const SECONDS_MAX = 60
const GROWTH_MIB_MAX = 200
const ELAPSED_MS_MAX = 15_000

let folder: string
let decode: AudioDecoder
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-bombs-'))
  vi.stubEnv('PATH', '')
  ;({ decode } = await findAudioDecoder().finally(() => vi.unstubAllEnvs()))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const tone = (name: string) => readFile(join(TONES, name))

it.each<[string, () => Promise<Buffer> | Buffer]>([
  ['a WAV file of 65,535 channels', () => wav({ channels: 65_535, rate: 44_100 })],
  ['a WAV file of 4,294,967,295 samples a second', () => wav({ channels: 1, rate: 2 ** 32 - 1 })],
  ['a WAV file of one sample a second', () => wav({ channels: 1, rate: 1 })],
  ['thousands of chained Ogg streams', async () => repeat(await tone('vorbis.ogg'), 3000)],
  ['Opus packets of three bytes and 120 ms', opusOfSilence],
  ['a Vorbis codebook of 2^24 entries in a few bytes', vorbisOfOneLargeBook],
  ['a Vorbis header at the end of a long segment table', vorbisBehindLongTable],
  ['an Ogg packet that never ends', () => repeat(oggPage({ flags: 1, table: 255 }), 300)],
  ['a Matroska file of a million tracks', () => matroska(repeat(Buffer.from([0xae, 0x80]), 1e6))],
  [
    'Matroska elements without an end',
    () => repeat(Buffer.from([0x1f, 0x43, 0xb6, 0x75, 0xff]), 1e6),
  ],
  ['FLAC frames that promise 65,535 samples and break off', flacOfBrokenFrames],
])('refuses %s in bounded time and memory', { timeout: 60_000 }, async (_name, make) => {
  const path = join(folder, 'clip')
  await writeFile(path, await make())
  const before = { rss: process.memoryUsage.rss(), at: performance.now() }
  let samples = 0
  const listen = async () => {
    const signal = new AbortController().signal
    for await (const piece of decode(path, { secondsMax: SECONDS_MAX, signal })) {
      samples += piece.length
    }
  }
  await expect(listen()).rejects.toMatchObject({ kind: 'invalidRequest', param: 'file' })
  expect(samples).toBeLessThanOrEqual(SECONDS_MAX * SAMPLE_RATE)
  expect(performance.now() - before.at).toBeLessThan(ELAPSED_MS_MAX)
  expect((process.memoryUsage.rss() - before.rss) / 2 ** 20).toBeLessThan(GROWTH_MIB_MAX)
})

function repeat(bytes: Buffer, times: number): Buffer {
  return Buffer.alloc(Math.min(bytes.length * times, 25 * 2 ** 20), bytes)
}

function wav({ channels, rate }: { channels: number; rate: number }): Buffer {
  const head = Buffer.alloc(44)
  head.write('RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0', 'latin1')
  head.writeUInt16LE(channels, 22)
  head.writeUInt32LE(rate, 24)
  head.writeUInt16LE((channels * 2) & 0xffff, 32)
  head.writeUInt16LE(16, 34)
  head.write('data\xff\xff\xff\xff', 36, 'latin1')
  return Buffer.concat([head, Buffer.alloc(200_000, 7)])
}

function oggPage(of: { flags: number; table: number; packets?: readonly Buffer[] }): Buffer {
  const head = Buffer.alloc(27)
  head.write('OggS')
  head[5] = of.flags
  if (of.packets === undefined) {
    head.fill(0xff, 6, 14)
    head[26] = 255
    return Buffer.concat([head, Buffer.alloc(255, of.table), Buffer.alloc(255 * 255, 1)])
  }
  head[26] = of.packets.length
  return Buffer.concat([head, Buffer.from(of.packets.map(({ length }) => length)), ...of.packets])
}

function opusOfSilence(): Buffer {
  const head = Buffer.from('OpusHead\x01\x01\0\0\x80\xbb\0\0\0\0\0', 'latin1')
  const start = [head, Buffer.from('OpusTags')].map((packet, index) =>
    oggPage({ flags: index === 0 ? 2 : 0, table: 0, packets: [packet] }),
  )
  // Code 3, two frames of 60 ms of SILK each (RFC 6716, section 3.2.5).
  const packets = Array.from({ length: 255 }, () => Buffer.from([0x1b, 0x02]))
  return Buffer.concat([...start, repeat(oggPage({ flags: 0, table: 0, packets }), 400)])
}

function vorbisOfOneLargeBook(): Buffer {
  const identification = Buffer.alloc(30)
  identification.write('\x01vorbis', 'latin1')
  identification[11] = 1
  identification.writeUInt32LE(44_100, 12)
  identification[28] = 0xb8
  identification[29] = 1
  // One codebook: its pattern, one dimension, 2^24 - 1 entries, ordered lengths.
  const setup = Buffer.from('\x05vorbis\0BCV\x01\0\xff\xff\xff\xff\xff\xff\xff', 'latin1')
  const comments = Buffer.from('\x03vorbis\0\0\0\0\0\0\0\0\x01', 'latin1')
  return Buffer.concat(
    [identification, comments, setup].map((packet, index) =>
      oggPage({ flags: index === 0 ? 2 : 0, table: 0, packets: [packet] }),
    ),
  )
}

function vorbisBehindLongTable(): Buffer {
  const page = oggPage({
    flags: 2,
    table: 0,
    packets: Array.from({ length: 30 }, () => Buffer.alloc(0)),
  })
  return Buffer.concat([page, Buffer.from('\x01vorbis', 'latin1')])
}

function matroska(entries: Buffer): Buffer {
  const head = Buffer.from([0x1a, 0x45, 0xdf, 0xa3, 0x80, 0x18, 0x53, 0x80, 0x67, 0xff])
  return Buffer.concat([head, Buffer.from([0x16, 0x54, 0xae, 0x6b, 0xff]), entries])
}

async function flacOfBrokenFrames(): Promise<Buffer> {
  const file = await tone('tone.flac')
  const frame = file.indexOf(Buffer.from([0xff, 0xf8]))
  // Real frames of which only the heads are left.
  return Buffer.concat([file.subarray(0, frame), repeat(file.subarray(frame, frame + 24), 1e6)])
}
