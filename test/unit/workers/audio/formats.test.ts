import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'

import { type AudioDecoder, findAudioDecoder, SAMPLE_RATE } from '#workers/audio/decode.ts'

const TONES = join(import.meta.dirname, '../../../fixtures/audio/tones')
const AMPLITUDES = { 440: 0.25, 1000: 0.125 } // of the mean of both channels

let folder: string
let decode: AudioDecoder
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-formats-'))
  vi.stubEnv('PATH', '')
  const found = await findAudioDecoder().finally(() => vi.unstubAllEnvs())
  expect(found.name).toBe('built-in')
  decode = found.decode
})
afterAll(() => rm(folder, { recursive: true, force: true }))

describe('without FFmpeg', () => {
  it.each([
    ['tone.flac', { seconds: 1, tolerance: 0.01 }],
    ['flac.oga', { seconds: 1, tolerance: 0.01 }],
    ['flac.mkv', { seconds: 1, tolerance: 0.01 }],
    ['vorbis.ogg', { seconds: 1, tolerance: 0.03 }],
    ['vorbis.webm', { seconds: 1, tolerance: 0.03 }],
    ['opus.ogg', { seconds: 1, tolerance: 0.03 }],
    ['opus.webm', { seconds: 1, tolerance: 0.03 }],
    // The channel for low frequencies loses its tone.
    ['six-channels.opus', { seconds: 1, tolerance: 0.35 }],
    ['tone.mp3', { seconds: 1, tolerance: 0.06 }],
    ['a-law.wav', { seconds: 1, tolerance: 0.03 }],
    ['mu-law.wav', { seconds: 1, tolerance: 0.03 }],
    ['chained.ogg', { seconds: 2, tolerance: 0.03 }],
  ])('decodes all channels of %s', async (name, { seconds, tolerance }) => {
    const samples = await samplesOf(join(TONES, name))
    expect(samples.length / SAMPLE_RATE).toBeCloseTo(seconds, 1)
    for (const [frequency, amplitude] of Object.entries(AMPLITUDES)) {
      const found = amplitudeOf(samples.slice(1600, 14_400), Number(frequency))
      expect(Math.abs(found / amplitude - 1)).toBeLessThan(tolerance)
    }
    // Everything beside the two tones is far below both.
    expect(amplitudeOf(samples.slice(1600, 14_400), 2300)).toBeLessThan(0.002)
  })

  it.each([
    ['M4A', Buffer.from('\0\0\0\u001cftypM4A \0\0\0\0')],
    ['AAC in ADTS', Buffer.from([0xff, 0xf1, 0x50, 0x80, 0x02, 0x1f, 0xfc, 0x00])],
    ['WAV with ADPCM', wavWithTag(0x11)],
    ['WebM with AAC', webmWithCodec('A_AAC')],
    ['Ogg with Speex', oggWithCodec('Speex   ')],
  ])('names the accepted formats and FFmpeg when it refuses %s', async (_name, bytes) => {
    const path = join(folder, 'clip')
    await writeFile(path, bytes)
    await expect(samplesOf(path)).rejects.toMatchObject({
      kind: 'invalidRequest',
      param: 'file',
      code: 'unsupported_value',
      message: expect.stringMatching(/accepts WAV .*MP3, FLAC, Ogg and WebM.* need FFmpeg/),
    })
  })
})

async function samplesOf(path: string): Promise<Float32Array> {
  const samples: number[] = []
  const signal = new AbortController().signal
  for await (const piece of decode(path, { secondsMax: 60, signal })) {
    for (const value of piece) samples.push(value)
  }
  return Float32Array.from(samples)
}

/** The amplitude of one frequency, by the discrete Fourier transform at that frequency. */
function amplitudeOf(samples: Float32Array, frequency: number): number {
  const step = (2 * Math.PI * frequency) / SAMPLE_RATE
  let re = 0
  let im = 0
  for (const [at, value] of samples.entries()) {
    re += value * Math.cos(at * step)
    im += value * Math.sin(at * step)
  }
  return (2 * Math.hypot(re, im)) / samples.length
}

function wavWithTag(tag: number): Buffer {
  const bytes = Buffer.alloc(60)
  bytes.write('RIFF\x34\0\0\0WAVEfmt \x10\0\0\0', 'latin1')
  bytes.writeUInt16LE(tag, 20)
  bytes.write('data', 36)
  return bytes
}

function element(id: readonly number[], ...contents: readonly (Buffer | string)[]): Buffer {
  const body = Buffer.concat(contents.map((part) => Buffer.from(part)))
  return Buffer.concat([Buffer.from([...id, 0x40 | (body.length >> 8), body.length & 0xff]), body])
}

function webmWithCodec(codec: string): Buffer {
  const number = element([0xd7], Buffer.from([1]))
  const type = element([0x83], Buffer.from([2]))
  const tracks = element(
    [0x16, 0x54, 0xae, 0x6b],
    element([0xae], number, type, element([0x86], codec)),
  )
  const cluster = element(
    [0x1f, 0x43, 0xb6, 0x75],
    element([0xa3], Buffer.from([0x81, 0, 0, 0, 1, 2, 3])),
  )
  const head = element([0x1a, 0x45, 0xdf, 0xa3], element([0x42, 0x82], 'webm'))
  return Buffer.concat([head, element([0x18, 0x53, 0x80, 0x67], tracks, cluster)])
}

function oggWithCodec(name: string): Buffer {
  const page = Buffer.alloc(28)
  page.write('OggS')
  page[5] = 2
  page[26] = 1
  page[27] = 80
  return Buffer.concat([page, Buffer.from(name.padEnd(80, '\0'))])
}
