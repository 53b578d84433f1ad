import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { openWav } from '#workers/audio/wav.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-wav-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const { signal } = new AbortController()
const SIGNAL = [0, 0.5, -0.5, 0.25, -1, 0.75]
const WRITERS = {
  '1/8': (bytes: Buffer, value: number, at: number) => bytes.writeUInt8(value * 128 + 128, at),
  '1/16': (bytes: Buffer, value: number, at: number) => bytes.writeInt16LE(value * 32_768, at),
  '1/24': (bytes: Buffer, value: number, at: number) => bytes.writeIntLE(value * 8_388_608, at, 3),
  '1/32': (bytes: Buffer, value: number, at: number) => bytes.writeInt32LE(value * 2 ** 31, at),
  '3/32': (bytes: Buffer, value: number, at: number) => bytes.writeFloatLE(value, at),
  '3/64': (bytes: Buffer, value: number, at: number) => bytes.writeDoubleLE(value, at),
} as const

interface Kind {
  readonly format?: keyof typeof WRITERS
  readonly channels?: number
  readonly rate?: number
  readonly isExtensible?: boolean
  readonly extra?: Buffer
  readonly statedBytes?: number
  readonly cutBytes?: number
}

/** A file whose channels all hold the signal, but for the second, which is silent. */
function wav(signalOf: readonly number[], kind: Kind = {}): Buffer {
  const { format = '1/16', channels = 1, rate = 16_000, extra = Buffer.alloc(0) } = kind
  const [tag, bits] = format.split('/').map(Number) as [number, number]
  const width = bits / 8
  const form = Buffer.alloc(kind.isExtensible ? 40 : 16)
  form.writeUInt16LE(kind.isExtensible ? 0xfffe : tag, 0)
  form.writeUInt16LE(channels, 2)
  form.writeUInt32LE(rate, 4)
  form.writeUInt32LE(rate * channels * width, 8)
  form.writeUInt16LE(channels * width, 12)
  form.writeUInt16LE(bits, 14)
  if (kind.isExtensible) form.writeUInt16LE(tag, 24)
  const data = Buffer.alloc(signalOf.length * channels * width)
  for (const [at, value] of signalOf.entries()) {
    for (let channel = 0; channel < channels; channel += 1) {
      WRITERS[format](data, channel === 1 ? 0 : value, (at * channels + channel) * width)
    }
  }
  const size = (length: number) => {
    const bytes = Buffer.alloc(4)
    bytes.writeUInt32LE(length)
    return bytes
  }
  const head = [Buffer.from('RIFF'), size(0), Buffer.from('WAVEfmt '), size(form.length), form]
  const stated = size(kind.statedBytes ?? data.length)
  const whole = Buffer.concat([...head, extra, Buffer.from('data'), stated, data])
  return whole.subarray(0, whole.length - (kind.cutBytes ?? 0))
}

async function open(bytes: Buffer) {
  const path = join(folder, 'clip.wav')
  await writeFile(path, bytes)
  return openWav(path, 16_000)
}

async function samplesOf(bytes: Buffer): Promise<number[]> {
  const found = await open(bytes)
  const samples: number[] = []
  for await (const piece of found?.samples(signal) ?? []) samples.push(...piece)
  return samples
}

describe('a plain WAV file', () => {
  it.each(Object.keys(WRITERS) as (keyof typeof WRITERS)[])('is read (%s)', async (format) => {
    expect(await samplesOf(wav(SIGNAL, { format }))).toEqual(SIGNAL)
  })

  it('is mixed down to the mean of its channels', async () => {
    const halves = SIGNAL.map((value) => value / 2)
    expect(await samplesOf(wav(SIGNAL, { channels: 2 }))).toEqual(halves)
  })

  it('may use the extensible format, and contain other chunks, of odd length too', async () => {
    const extra = Buffer.from('LIST\x03\0\0\0abc\0')
    expect(await samplesOf(wav(SIGNAL, { isExtensible: true, extra }))).toEqual(SIGNAL)
  })

  it.each([0, 0xffff_ffff])(
    'may come from a pipe, its length stated as %i',
    async (statedBytes) => {
      expect(await samplesOf(wav(SIGNAL, { statedBytes }))).toEqual(SIGNAL)
    },
  )

  it.each(['RF64', 'BW64'])(
    'may be made for more than 4 GB, its length in a chunk of its own (%s)',
    async (name) => {
      const extra = Buffer.alloc(36)
      extra.write('ds64')
      extra.writeUInt32LE(28, 4)
      extra.writeBigUInt64LE(BigInt(SIGNAL.length * 2), 16)
      const bytes = wav(SIGNAL, { extra, statedBytes: 0xffff_ffff })
      bytes.write(name)
      const tail = Buffer.from('LIST\x04\0\0\0abcd')
      expect(await samplesOf(Buffer.concat([bytes, tail]))).toEqual(SIGNAL)
    },
  )

  it('that was truncated is read to its end', async () => {
    expect(await samplesOf(wav(SIGNAL, { cutBytes: 3 }))).toEqual(SIGNAL.slice(0, 4))
  })

  it('states its length, and has the requested rate', async () => {
    const tone = Array.from({ length: 48_000 }, (_, i) =>
      Math.sin((2 * Math.PI * 440 * i) / 48_000),
    )
    const bytes = wav(tone, { format: '3/32', rate: 48_000 })
    expect((await open(bytes))?.seconds).toBe(1)
    const samples = await samplesOf(bytes)
    expect(samples.length).toBe(16_000)
    for (let i = 1000; i < 15_000; i += 97) {
      expect(samples[i]).toBeCloseTo(Math.sin((2 * Math.PI * 440 * i) / 16_000), 3)
    }
  })

  it('contains no infinity and no NaN', async () => {
    const strange = [0.5, Number.NaN, Number.POSITIVE_INFINITY, -0.5]
    expect(await samplesOf(wav(strange, { format: '3/32' }))).toEqual([0.5, 0, 0, -0.5])
  })
})

describe('a file that needs a real decoder', () => {
  const compressed = wav(SIGNAL)
  compressed.writeUInt16LE(2, 20)
  it.each([
    ['another format', Buffer.from('OggS and more')],
    ['no bytes', Buffer.alloc(0)],
    ['compressed samples', compressed],
    ['no sound', Buffer.from('RIFF\0\0\0\0WAVEfmt ')],
    ['too many channels', wav(SIGNAL, { channels: 9 })],
    ['an unheard-of rate', wav(SIGNAL, { rate: 1 })],
  ])('is left to it: %s', async (_name, bytes) => {
    expect(await open(bytes)).toBeUndefined()
  })
})
