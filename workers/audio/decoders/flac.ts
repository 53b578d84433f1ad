import { HighBitReader } from './bits.ts'
import { CHANNELS_MAX, type PacketDecoder, type Pcm, UnsupportedAudioError } from './pcm.ts'

// RFC 9639, tables 14 and 15: block sizes and sample rates by their codes; 0 where the code means
// something else.
const BLOCK_SIZES = [0, 192, 576, 1152, 2304, 4608, 0, 0]
const RATES = [
  0, 88_200, 176_400, 192_000, 8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000,
]
const SAMPLE_BITS = [0, 8, 12, 0, 16, 20, 24, 32]
// RFC 9639, section 9.2.5: predictors by order, as weights of the samples before.
const FIXED_PREDICTORS = [[], [1], [2, -1], [3, -3, 1], [4, -6, 4, -1]]
const STREAM_INFO_BYTES = 34
const INDEPENDENT_CHANNELS_MAX = 8
const LEFT_SIDE = 8
const SIDE_RIGHT = 9

// Each may take as long as a whole block, while its bytes overlap with those of the next.
const DAMAGED_FRAMES_MAX = 500

/** The bytes only look like the start of a frame. */
class NoFrameError extends Error {}

/** The stream parameters of the first metadata block. */
interface StreamInfo {
  readonly sampleRate: number
  readonly channels: number
  readonly sampleBits: number
}

/** Reads a STREAMINFO block (RFC 9639, section 8.2). */
export function readStreamInfo(block: Uint8Array): StreamInfo {
  if (block.length < STREAM_INFO_BYTES) throw new Error('STREAMINFO is too short')
  const bits = new HighBitReader(block, 10)
  const info = {
    sampleRate: bits.read(20),
    channels: bits.read(3) + 1,
    sampleBits: bits.read(5) + 1,
  }
  if (info.channels > CHANNELS_MAX || info.sampleRate === 0) {
    throw new UnsupportedAudioError('FLAC layout')
  }
  return info
}

/** Decodes the frames of a FLAC file; bytes that are not frames are skipped. */
export function* decodeFlac(bytes: Uint8Array, start: number): Generator<Pcm> {
  let at = start + 4
  let info: StreamInfo | undefined
  for (let isLast = false; !isLast; ) {
    const head = new HighBitReader(bytes, at)
    isLast = head.read(1) === 1
    const kind = head.read(7)
    const length = head.read(24)
    at += 4
    if (kind === 0) info = readStreamInfo(bytes.subarray(at, at + length))
    at += length
  }
  if (info === undefined) throw new Error('STREAMINFO is missing')
  for (let damaged = 0; at + 2 < bytes.length; ) {
    at = nextSync(bytes, at)
    const frame = at < bytes.length ? tryFrame(bytes, at, info) : undefined
    if (frame === undefined || frame === 'damaged') {
      if (frame === 'damaged') damaged += 1
      if (damaged > DAMAGED_FRAMES_MAX) throw new Error('too many damaged frames')
      at += 1
      continue
    }
    yield frame.pcm
    at = frame.end
  }
}

/** Decodes packets that hold one frame each, as Ogg and Matroska carry FLAC. */
export function createFlacDecoder(info: StreamInfo): PacketDecoder {
  return {
    decode: (packet) => {
      const frame = tryFrame(packet, 0, info)
      return frame === 'damaged' ? undefined : frame?.pcm
    },
  }
}

function nextSync(bytes: Uint8Array, from: number): number {
  let at = from
  while (at < bytes.length && !(bytes[at] === 0xff && ((bytes[at + 1] ?? 0) & 0xfe) === 0xf8)) {
    at = bytes.indexOf(0xff, at + 1)
    if (at < 0) return bytes.length
  }
  return at
}

function tryFrame(bytes: Uint8Array, at: number, info: StreamInfo) {
  try {
    return readFrame(bytes, at, info)
  } catch (error) {
    if (error instanceof NoFrameError) return undefined
    // A damaged or incomplete frame is dropped; decoding continues at the next one.
    if (error instanceof RangeError) throw error
    return 'damaged' as const
  }
}

function readFrame(bytes: Uint8Array, at: number, info: StreamInfo): { pcm: Pcm; end: number } {
  const bits = new HighBitReader(bytes, at)
  if (bits.read(15) !== 0x7ffc) throw new NoFrameError()
  bits.read(1)
  const sizeCode = bits.read(4)
  const rateCode = bits.read(4)
  const layout = bits.read(4)
  const sampleBits = SAMPLE_BITS[bits.read(3)] || info.sampleBits
  bits.read(1)
  // The frame's number, encoded like UTF-8.
  const first = bits.read(8)
  const following = Math.max(0, Math.clz32(~(first << 24)) - 1)
  bits.read(8 * following)
  const blockSize = readBlockSize(bits, sizeCode)
  const sampleRate = readRate(bits, rateCode, info)
  const headEnd = bits.byteOffset
  if (bits.read(8) !== crc8(bytes, at, headEnd)) throw new NoFrameError()
  const numChannels = layout < INDEPENDENT_CHANNELS_MAX ? layout + 1 : 2
  if (layout > 10) throw new Error('reserved channel layout')
  const channels = Array.from({ length: numChannels }, (_, channel) => {
    // The difference of two channels has one more bit.
    const isSide = layout === SIDE_RIGHT ? channel === 0 : layout > 7 && channel === 1
    return readSubframe(bits, blockSize, sampleBits + (isSide ? 1 : 0))
  })
  undoStereo(channels, layout)
  bits.skipToByte()
  bits.read(16)
  const scale = 2 ** (1 - sampleBits)
  const pcm = channels.map((values) => {
    const scaled = new Float32Array(values.length)
    for (let i = 0; i < values.length; i += 1) scaled[i] = (values[i] ?? 0) * scale
    return scaled
  })
  return { pcm: { channels: pcm, sampleRate }, end: bits.byteOffset }
}

function readBlockSize(bits: HighBitReader, code: number): number {
  if (code === 0) throw new Error('reserved block size')
  if (code === 6) return bits.read(8) + 1
  if (code === 7) return bits.read(16) + 1
  return code >= 8 ? 2 ** code : (BLOCK_SIZES[code] ?? 0)
}

function readRate(bits: HighBitReader, code: number, info: StreamInfo): number {
  if (code === 15) throw new Error('forbidden sample rate')
  if (code === 12) return bits.read(8) * 1000
  if (code === 13) return bits.read(16)
  if (code === 14) return bits.read(16) * 10
  return RATES[code] || info.sampleRate
}

function readSubframe(bits: HighBitReader, size: number, frameBits: number): Float64Array {
  if (bits.read(1) !== 0) throw new Error('no subframe')
  const kind = bits.read(6)
  const wasted = bits.read(1) === 1 ? bits.readUnary() + 1 : 0
  const sampleBits = frameBits - wasted
  if (sampleBits < 1) throw new Error('no bits are left')
  const samples = new Float64Array(size)
  if (kind === 0) samples.fill(bits.readSigned(sampleBits))
  else if (kind === 1) for (let i = 0; i < size; i += 1) samples[i] = bits.readSigned(sampleBits)
  else if (kind >= 8 && kind <= 12) {
    readPredicted(bits, samples, sampleBits, {
      weights: FIXED_PREDICTORS[kind - 8] ?? [],
      shift: 0,
    })
  } else if (kind >= 32) readPredicted(bits, samples, sampleBits, kind - 31)
  else throw new Error('reserved subframe')
  return wasted === 0 ? samples : samples.map((value) => value * 2 ** wasted)
}

interface Predictor {
  readonly weights: readonly number[]
  readonly shift: number
}

/** Warm-up samples, the predictor unless it is fixed, then the residual. */
function readPredicted(
  bits: HighBitReader,
  samples: Float64Array,
  sampleBits: number,
  given: Predictor | number,
): void {
  const order = typeof given === 'number' ? given : given.weights.length
  if (order > samples.length) throw new Error('predictor is longer than the block')
  for (let i = 0; i < order; i += 1) samples[i] = bits.readSigned(sampleBits)
  const { weights, shift } = typeof given === 'number' ? readPredictor(bits, given) : given
  readResidual(bits, samples, order)
  const scale = 2 ** -shift
  for (let i = order; i < samples.length; i += 1) {
    let sum = 0
    for (let j = 0; j < order; j += 1) sum += (weights[j] ?? 0) * (samples[i - 1 - j] ?? 0)
    samples[i] = (samples[i] ?? 0) + Math.floor(sum * scale)
  }
}

function readPredictor(bits: HighBitReader, order: number): Predictor {
  const precision = bits.read(4) + 1
  if (precision === 16) throw new Error('reserved precision')
  const shift = bits.readSigned(5)
  if (shift < 0) throw new Error('negative shift')
  return { shift, weights: Array.from({ length: order }, () => bits.readSigned(precision)) }
}

/** Rice codes in partitions (RFC 9639, section 9.2.7). */
function readResidual(bits: HighBitReader, samples: Float64Array, order: number): void {
  const method = bits.read(2)
  if (method > 1) throw new Error('reserved residual coding')
  const parameterBits = method === 0 ? 4 : 5
  const rawCode = 2 ** parameterBits - 1
  const partitions = 2 ** bits.read(4)
  const length = samples.length / partitions
  if (!Number.isInteger(length) || length < order) throw new Error('uneven partitions')
  for (let partition = 0, at = order; partition < partitions; partition += 1) {
    const parameter = bits.read(parameterBits)
    const rawBits = parameter === rawCode ? bits.read(5) : 0
    for (const end = (partition + 1) * length; at < end; at += 1) {
      if (parameter === rawCode) {
        samples[at] = rawBits === 0 ? 0 : bits.readSigned(rawBits)
        continue
      }
      const folded = bits.readUnary() * 2 ** parameter + bits.read(parameter)
      samples[at] = folded % 2 === 0 ? folded / 2 : -(folded + 1) / 2
    }
  }
}

/** Restores left and right from a channel and the difference of both. */
function undoStereo([a, b]: readonly Float64Array[], layout: number): void {
  if (a === undefined || b === undefined || layout < LEFT_SIDE) return
  for (let i = 0; i < a.length; i += 1) {
    const x = a[i] ?? 0
    const y = b[i] ?? 0
    if (layout === LEFT_SIDE) b[i] = x - y
    else if (layout === SIDE_RIGHT) a[i] = x + y
    else {
      // The mean has lost its lowest bit, which equals that of the difference.
      const sum = 2 * x + (Math.abs(y) % 2)
      a[i] = (sum + y) / 2
      b[i] = (sum - y) / 2
    }
  }
}

function crc8(bytes: Uint8Array, from: number, to: number): number {
  let value = 0
  for (let at = from; at < to; at += 1) {
    value ^= bytes[at] ?? 0
    for (let bit = 0; bit < 8; bit += 1) value = ((value << 1) ^ (value & 0x80 ? 0x07 : 0)) & 0xff
  }
  return value
}
