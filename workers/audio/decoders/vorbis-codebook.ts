import type { LowBitReader } from './bits.ts'

const SYNC_PATTERN = 0x56_43_42
// libvorbis writes fewer than 10,000 entries a book. The format can declare 2^24 in a few bytes.
const ENTRIES_MAX = 2 ** 17
const VALUES_MAX = 2 ** 19

/** A Huffman code and, for residues, the vector of each of its entries (Vorbis I, section 3). */
export interface Codebook {
  readonly dimensions: number
  /** Two children per node: a node's index above zero, or an entry as its complement. */
  readonly tree: Int32Array
  readonly lookup: Lookup | undefined
}

interface Lookup {
  readonly multiplicands: Float64Array
  readonly isSequence: boolean
  /** Type 1: all vectors combine the same values. Type 2: each entry has its own. */
  readonly isCombined: boolean
}

export function readCodebook(bits: LowBitReader): Codebook {
  if (bits.read(24) !== SYNC_PATTERN) throw new Error('no codebook')
  const dimensions = bits.read(16)
  const entries = bits.read(24)
  if (entries === 0 || entries > ENTRIES_MAX) throw new Error('codebook is too large')
  const lengths = bits.readFlag() ? readOrderedLengths(bits, entries) : readLengths(bits, entries)
  return { dimensions, tree: treeOf(lengths), lookup: readLookup(bits, entries, dimensions) }
}

/** The entry that the next bits encode. */
export function readEntry(bits: LowBitReader, { tree }: Codebook): number {
  for (let node = 0; ; ) {
    const child = tree[2 * node + bits.read(1)] ?? 0
    if (child < 0) return ~child
    if (child === 0) throw new Error('unused code')
    node = child
  }
}

/** Calls `add` with each value of an entry's vector. */
export function addVector(
  { dimensions, lookup }: Codebook,
  entry: number,
  add: (dimension: number, value: number) => void,
): void {
  if (lookup === undefined) throw new Error('codebook has no vectors')
  const { multiplicands, isSequence, isCombined } = lookup
  let last = 0
  let divisor = 1
  for (let i = 0; i < dimensions; i += 1) {
    const at = isCombined
      ? Math.floor(entry / divisor) % multiplicands.length
      : entry * dimensions + i
    const value = (multiplicands[at] ?? 0) + last
    add(i, value)
    if (isSequence) last = value
    divisor *= multiplicands.length
  }
}

function readLengths(bits: LowBitReader, entries: number): Uint8Array {
  const isSparse = bits.readFlag()
  return Uint8Array.from({ length: entries }, () =>
    !isSparse || bits.readFlag() ? bits.read(5) + 1 : 0,
  )
}

function readOrderedLengths(bits: LowBitReader, entries: number): Uint8Array {
  const lengths = new Uint8Array(entries)
  let length = bits.read(5) + 1
  for (let at = 0; at < entries; length += 1) {
    const count = bits.read(bitLength(entries - at))
    if (at + count > entries || length > 32) throw new Error('codebook has too many codes')
    lengths.fill(length, at, at + count)
    at += count
  }
  return lengths
}

/** Codes in the order of entries: each takes the lowest free code of its length. */
function treeOf(lengths: Uint8Array): Int32Array {
  const used = lengths.reduce((count, length) => count + (length > 0 ? 1 : 0), 0)
  // The first free code of each length, left-aligned in 32 bits; 0 means that none is free.
  const free = new Float64Array(33)
  const tree: number[] = [0, 0]
  let isFirst = true
  for (const [entry, length] of lengths.entries()) {
    if (length === 0) continue
    let code = 0
    if (isFirst) {
      isFirst = false
      for (let i = 1; i <= length; i += 1) free[i] = 2 ** (32 - i)
    } else {
      let shorter = length
      while (shorter > 0 && free[shorter] === 0) shorter -= 1
      if (shorter === 0) throw new Error('codebook has too many codes')
      code = free[shorter] ?? 0
      free[shorter] = 0
      for (let i = length; i > shorter; i -= 1) free[i] = code + 2 ** (32 - i)
    }
    insert(tree, code, length, entry)
  }
  // A book of one entry has one code of one bit; either bit encodes it.
  if (used === 1) tree[1] = tree[0] ?? 0
  return Int32Array.from(tree)
}

function insert(tree: number[], code: number, length: number, entry: number): void {
  let node = 0
  for (let depth = 0; depth < length; depth += 1) {
    const slot = 2 * node + (Math.floor(code / 2 ** (31 - depth)) % 2)
    if (depth === length - 1) {
      tree[slot] = ~entry
      return
    }
    if ((tree[slot] ?? 0) === 0) {
      tree[slot] = tree.length / 2
      tree.push(0, 0)
    }
    node = tree[slot] ?? 0
    if (node < 0) throw new Error('codes overlap')
  }
}

function readLookup(bits: LowBitReader, entries: number, dimensions: number): Lookup | undefined {
  const kind = bits.read(4)
  if (kind === 0) return undefined
  if (kind > 2) throw new Error('reserved lookup')
  const minimum = readFloat(bits)
  const delta = readFloat(bits)
  const valueBits = bits.read(4) + 1
  const isSequence = bits.readFlag()
  const isCombined = kind === 1
  const count = isCombined ? combinedValues(entries, dimensions) : entries * dimensions
  if (count > VALUES_MAX) throw new Error('codebook is too large')
  const multiplicands = Float64Array.from(
    { length: count },
    () => bits.read(valueBits) * delta + minimum,
  )
  return { multiplicands, isSequence, isCombined }
}

/** The largest number whose power by the dimensions is at most the number of entries. */
function combinedValues(entries: number, dimensions: number): number {
  if (dimensions === 0) throw new Error('vectors have no values')
  let values = Math.floor(entries ** (1 / dimensions))
  while ((values + 1) ** dimensions <= entries) values += 1
  return values
}

function readFloat(bits: LowBitReader): number {
  const word = bits.read(32)
  const mantissa = word % 2 ** 21
  const exponent = Math.floor(word / 2 ** 21) % 2 ** 10
  return (word >= 2 ** 31 ? -mantissa : mantissa) * 2 ** (exponent - 788)
}

/** The number of bits that a number takes; 0 for 0. */
export function bitLength(value: number): number {
  return 32 - Math.clz32(value)
}
