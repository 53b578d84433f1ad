import { type FileHandle, open } from 'node:fs/promises'

import { CancelledError } from '#shared/errors.ts'

import { createResampler } from './resample.ts'

/** The layout of the samples in a plain WAV file. */
interface WavLayout {
  readonly sampleRate: number
  readonly channels: number
  /** Bytes of one sample of one channel. */
  readonly sampleBytes: number
  readonly read: (bytes: Buffer, at: number) => number
  readonly dataStart: number
  readonly dataBytes: number
}

/** Tags and cover images may precede the sound. */
const HEAD_BYTES = 1024 ** 2
const PIECE_BYTES = 64 * 1024
const CHANNELS_MAX = 8
// Speech needs higher rates. At lower ones, samples of several seconds would grow without limit at
// the models' rate.
const RATE_MIN = 1000
const RATE_MAX = 768_000
const EXTENSIBLE = 0xff_fe
// The latter two are for more than 4 GB (EBU Tech 3306): their chunk `ds64` holds the real lengths.
const KINDS: readonly string[] = ['RIFF', 'RF64', 'BW64']
const LENGTH_ELSEWHERE = 0xff_ff_ff_ff

const READERS: Readonly<Record<string, WavLayout['read']>> = {
  '1/8': (bytes, at) => (bytes.readUInt8(at) - 128) / 128,
  '1/16': (bytes, at) => bytes.readInt16LE(at) / 32_768,
  '1/24': (bytes, at) => bytes.readIntLE(at, 3) / 8_388_608,
  '1/32': (bytes, at) => bytes.readInt32LE(at) / 2_147_483_648,
  '3/32': (bytes, at) => bytes.readFloatLE(at),
  '3/64': (bytes, at) => bytes.readDoubleLE(at),
  '6/8': (bytes, at) => expandALaw(bytes.readUInt8(at)) / 32_768,
  '7/8': (bytes, at) => expandMuLaw(bytes.readUInt8(at)) / 32_768,
}

/**
 * The samples of a plain WAV file (RIFF, PCM or floats), mixed down to one channel. Undefined for
 * other files, which need a decoder. Starting a decoder would cost more than reading such a file.
 */
export async function openWav(
  path: string,
  sampleRate: number,
): Promise<
  { seconds: number; samples(signal: AbortSignal): AsyncGenerator<Float32Array> } | undefined
> {
  const file = await open(path, 'r')
  try {
    const { size } = await file.stat()
    const head = Buffer.alloc(Math.min(HEAD_BYTES, size))
    await file.read(head, 0, head.length, 0)
    const layout = readLayout(head, size)
    if (layout === undefined) return undefined
    const { channels, sampleBytes, dataBytes } = layout
    return {
      seconds: dataBytes / (channels * sampleBytes) / layout.sampleRate,
      samples: (signal) => readSamples(path, layout, sampleRate, signal),
    }
  } finally {
    await file.close()
  }
}

function readLayout(head: Buffer, fileBytes: number): WavLayout | undefined {
  const isWav = head.toString('latin1', 8, 12) === 'WAVE'
  if (!isWav || !KINDS.includes(head.toString('latin1', 0, 4))) return undefined
  let form: Pick<WavLayout, 'sampleRate' | 'channels' | 'sampleBytes' | 'read'> | undefined
  let longBytes = fileBytes
  for (let at = 12; at + 8 <= head.length; ) {
    const name = head.toString('latin1', at, at + 4)
    const length = head.readUInt32LE(at + 4)
    const start = at + 8
    if (name === 'data') {
      // A writer to a pipe does not know the length; a truncated file is shorter than stated.
      const isOpen = length === 0 || length === LENGTH_ELSEWHERE
      const dataBytes = Math.min(isOpen ? longBytes : length, fileBytes - start)
      return form && { ...form, dataStart: start, dataBytes }
    }
    if (name === 'fmt ' && length >= 16 && start + length <= head.length) {
      form = readForm(head.subarray(start, start + length))
      if (form === undefined) return undefined
    }
    if (name === 'ds64' && length >= 16 && start + length <= head.length) {
      longBytes = Number(head.readBigUInt64LE(start + 8)) || fileBytes
    }
    // Chunks begin at even offsets.
    at = start + length + (length % 2)
  }
  return undefined
}

function readForm(chunk: Buffer) {
  const tag = chunk.readUInt16LE(0)
  const kind = tag === EXTENSIBLE && chunk.length >= 26 ? chunk.readUInt16LE(24) : tag
  const channels = chunk.readUInt16LE(2)
  const sampleRate = chunk.readUInt32LE(4)
  const bits = chunk.readUInt16LE(14)
  const read = READERS[`${kind}/${bits}`]
  const isUsual =
    channels >= 1 &&
    channels <= CHANNELS_MAX &&
    sampleRate >= RATE_MIN &&
    sampleRate <= RATE_MAX &&
    chunk.readUInt16LE(12) === (channels * bits) / 8
  return isUsual && read !== undefined
    ? { channels, sampleRate, sampleBytes: bits / 8, read }
    : undefined
}

async function* readSamples(
  path: string,
  layout: WavLayout,
  sampleRate: number,
  signal: AbortSignal,
): AsyncGenerator<Float32Array> {
  const { channels, sampleBytes, dataStart, dataBytes } = layout
  const resampler = createResampler(layout.sampleRate, sampleRate)
  const frameBytes = channels * sampleBytes
  const pieceBytes = PIECE_BYTES - (PIECE_BYTES % frameBytes)
  const end = dataStart + dataBytes - (dataBytes % frameBytes)
  let file: FileHandle | undefined
  try {
    file = await open(path, 'r')
    const bytes = Buffer.alloc(pieceBytes)
    for (let at = dataStart; at < end; at += pieceBytes) {
      if (signal.aborted) throw new CancelledError()
      const { bytesRead } = await file.read(bytes, 0, Math.min(pieceBytes, end - at), at)
      yield resampler.push(mixDown(bytes, Math.floor(bytesRead / frameBytes), layout))
    }
    yield resampler.flush()
  } finally {
    await file?.close()
  }
}

function mixDown(bytes: Buffer, frames: number, layout: WavLayout): Float32Array {
  const { channels, sampleBytes, read } = layout
  const mono = new Float32Array(frames)
  for (let frame = 0, at = 0; frame < frames; frame++) {
    let sum = 0
    for (let channel = 0; channel < channels; channel++, at += sampleBytes) sum += read(bytes, at)
    const value = sum / channels
    // A float file may hold any value.
    mono[frame] = Number.isFinite(value) ? value : 0
  }
  return mono
}

/**
 * ITU-T G.711, table 1: a sign, three bits of exponent and four of mantissa, every other bit
 * inverted.
 */
function expandALaw(code: number): number {
  const bits = code ^ 0x55
  const exponent = (bits >> 4) & 7
  const mantissa = ((bits & 15) << 4) + 8
  const value = exponent === 0 ? mantissa : (mantissa + 256) << (exponent - 1)
  return bits & 0x80 ? value : -value
}

/** ITU-T G.711, table 2: like A-law, with all bits inverted and a bias of 132. */
function expandMuLaw(code: number): number {
  const bits = ~code & 0xff
  const value = (((bits & 15) << 3) + 132) << ((bits >> 4) & 7)
  return bits & 0x80 ? 132 - value : value - 132
}
