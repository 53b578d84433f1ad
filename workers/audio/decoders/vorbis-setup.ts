import { LowBitReader } from './bits.ts'
import { CHANNELS_MAX, UnsupportedAudioError } from './pcm.ts'
import { bitLength, type Codebook, readCodebook } from './vorbis-codebook.ts'

/** The content of the identification and setup headers (Vorbis I, section 4.2). */
export interface VorbisSetup {
  readonly channels: number
  readonly sampleRate: number
  /** Samples of a short and of a long block. */
  readonly blockSizes: readonly [number, number]
  readonly codebooks: readonly Codebook[]
  readonly floors: readonly Floor[]
  readonly residues: readonly Residue[]
  readonly mappings: readonly Mapping[]
  readonly modes: readonly { readonly isLong: boolean; readonly mapping: number }[]
}

export interface Floor {
  readonly partitions: readonly FloorClass[]
  readonly multiplier: number
  readonly xs: readonly number[]
  /** Indexes of `xs` in rising order of their values. */
  readonly order: readonly number[]
}

interface FloorClass {
  readonly dimensions: number
  readonly subclassBits: number
  readonly masterBook: number
  readonly books: readonly number[]
}

export interface Residue {
  readonly kind: number
  readonly begin: number
  readonly end: number
  readonly partitionSize: number
  readonly classifications: number
  readonly classBook: number
  /** A book for each pass of each class; -1 where a pass adds nothing. */
  readonly books: readonly (readonly number[])[]
}

export interface Mapping {
  readonly couplings: readonly { readonly magnitude: number; readonly angle: number }[]
  readonly submapOf: readonly number[]
  readonly submaps: readonly { readonly floor: number; readonly residue: number }[]
}

const RATE_MAX = 200_000
// The limit of all codebooks of a stream together: libvorbis writes some 20,000 nodes.
const NODES_MAX = 2 ** 19

/** Reads the identification header and the setup header. */
export function readSetup(identification: Uint8Array, setup: Uint8Array): VorbisSetup {
  const head = readIdentification(identification)
  const bits = openHeader(setup, 5)
  const codebooks: Codebook[] = []
  let nodes = 0
  for (let left = bits.read(8) + 1; left > 0; left -= 1) {
    const book = readCodebook(bits)
    nodes += book.tree.length + (book.lookup?.multiplicands.length ?? 0)
    if (nodes > NODES_MAX) throw new Error('codebooks are too large')
    codebooks.push(book)
  }
  for (let left = bits.read(6) + 1; left > 0; left -= 1) bits.read(16)
  const floors = list(bits, () => readFloor(bits))
  const residues = list(bits, () => readResidueSetup(bits))
  const mappings = list(bits, () => readMapping(bits, head.channels))
  const modes = list(bits, () => {
    const isLong = bits.readFlag()
    bits.read(32)
    return { isLong, mapping: bits.read(8) }
  })
  return { ...head, codebooks, floors, residues, mappings, modes }
}

function readIdentification(packet: Uint8Array) {
  const bits = openHeader(packet, 1)
  bits.read(32)
  const channels = bits.read(8)
  const sampleRate = bits.read(32)
  for (let left = 3; left > 0; left -= 1) bits.read(32)
  const blockSizes = [2 ** bits.read(4), 2 ** bits.read(4)] as const
  const isSized = blockSizes[0] >= 64 && blockSizes[1] <= 8192 && blockSizes[0] <= blockSizes[1]
  if (channels === 0 || channels > CHANNELS_MAX || sampleRate === 0 || sampleRate > RATE_MAX) {
    throw new UnsupportedAudioError('Vorbis layout')
  }
  if (!isSized) throw new Error('block sizes are out of range')
  return { channels, sampleRate, blockSizes }
}

function openHeader(packet: Uint8Array, kind: number): LowBitReader {
  const isHeader = packet[0] === kind && Buffer.from(packet.subarray(1, 7)).toString() === 'vorbis'
  if (!isHeader) throw new Error('no Vorbis header')
  return new LowBitReader(packet.subarray(7))
}

function list<T>(bits: LowBitReader, read: () => T): T[] {
  return Array.from({ length: bits.read(6) + 1 }, read)
}

function readFloor(bits: LowBitReader): Floor {
  // Type 0 was abandoned before Vorbis 1.0; no encoder in use writes it.
  if (bits.read(16) !== 1) throw new UnsupportedAudioError('Vorbis floor type 0')
  const classOf = Array.from({ length: bits.read(5) }, () => bits.read(4))
  const classes = Array.from({ length: Math.max(-1, ...classOf) + 1 }, () => {
    const dimensions = bits.read(3) + 1
    const subclassBits = bits.read(2)
    const masterBook = subclassBits > 0 ? bits.read(8) : -1
    const books = Array.from({ length: 2 ** subclassBits }, () => bits.read(8) - 1)
    return { dimensions, subclassBits, masterBook, books }
  })
  const multiplier = bits.read(2) + 1
  const rangeBits = bits.read(4)
  const partitions = classOf.flatMap((index) => classes[index] ?? [])
  const xs = [0, 2 ** rangeBits]
  for (const { dimensions } of partitions) {
    for (let left = dimensions; left > 0; left -= 1) xs.push(bits.read(rangeBits))
  }
  if (new Set(xs).size !== xs.length) throw new Error('floor has a place twice')
  const order = xs.map((_, index) => index).sort((a, b) => (xs[a] ?? 0) - (xs[b] ?? 0))
  return { partitions, multiplier, xs, order }
}

function readResidueSetup(bits: LowBitReader): Residue {
  const kind = bits.read(16)
  if (kind > 2) throw new Error('reserved residue')
  const begin = bits.read(24)
  const end = bits.read(24)
  const partitionSize = bits.read(24) + 1
  const classifications = bits.read(6) + 1
  const classBook = bits.read(8)
  const cascades = Array.from({ length: classifications }, () => {
    const low = bits.read(3)
    return bits.readFlag() ? low + 8 * bits.read(5) : low
  })
  const books = cascades.map((cascade) =>
    Array.from({ length: 8 }, (_, pass) => ((cascade >> pass) & 1 ? bits.read(8) : -1)),
  )
  return { kind, begin, end, partitionSize, classifications, classBook, books }
}

function readMapping(bits: LowBitReader, channels: number): Mapping {
  if (bits.read(16) !== 0) throw new Error('reserved mapping')
  const numSubmaps = bits.readFlag() ? bits.read(4) + 1 : 1
  const channelBits = bitLength(channels - 1)
  const couplings = Array.from({ length: bits.readFlag() ? bits.read(8) + 1 : 0 }, () => {
    const pair = { magnitude: bits.read(channelBits), angle: bits.read(channelBits) }
    if (pair.magnitude === pair.angle || Math.max(pair.magnitude, pair.angle) >= channels) {
      throw new Error('channels cannot be coupled')
    }
    return pair
  })
  if (bits.read(2) !== 0) throw new Error('reserved bits')
  const submapOf = Array.from({ length: channels }, () => (numSubmaps > 1 ? bits.read(4) : 0))
  const submaps = Array.from({ length: numSubmaps }, () => {
    bits.read(8)
    return { floor: bits.read(8), residue: bits.read(8) }
  })
  return { couplings, submapOf, submaps }
}
