import { expect, it } from 'vitest'

import { LowBitReader } from '#workers/audio/decoders/bits.ts'
import { addVector, readCodebook, readEntry } from '#workers/audio/decoders/vorbis-codebook.ts'

/** Bits from the lowest of each byte, as Vorbis packs them: pairs of a value and its width. */
function pack(fields: readonly (readonly [value: number, width: number])[]): Uint8Array {
  const bits = fields.flatMap(([value, width]) =>
    Array.from({ length: width }, (_, index) => Math.floor(value / 2 ** index) % 2),
  )
  const bytes = new Uint8Array(Math.ceil(bits.length / 8) + 8)
  for (const [index, bit] of bits.entries()) {
    bytes[index >> 3] = (bytes[index >> 3] ?? 0) | (bit << (index & 7))
  }
  return bytes
}

/** A number as Vorbis writes it: sign, exponent above 788, mantissa. */
const float = (value: number): [number, number] => [
  Math.abs(value) + 788 * 2 ** 21 + (value < 0 ? 2 ** 31 : 0),
  32,
]

/** The entries and vectors of a book with four codes and two values for each. */
function book(kind: 1 | 2, isSequence: boolean) {
  const values = kind === 1 ? [0, 3] : [0, 1, 2, 3, 4, 5, 6, 7]
  const lengths = [1, 2, 3, 3]
  const bits = new LowBitReader(
    pack([
      [0x564342, 24],
      [2, 16],
      [4, 24],
      // Lengths that are neither ordered nor sparse.
      [0, 2],
      ...lengths.map((length): [number, number] => [length - 1, 5]),
      [kind, 4],
      float(-1),
      float(2),
      [2, 4],
      [isSequence ? 1 : 0, 1],
      ...values.map((value): [number, number] => [value, 3]),
      // The codes 0, 10, 110 and 111, from their first bit.
      [0b0, 1],
      [0b01, 2],
      [0b011, 3],
      [0b111, 3],
    ]),
  )
  const codebook = readCodebook(bits)
  const entries = lengths.map(() => readEntry(bits, codebook))
  const vectors: number[] = []
  for (const entry of entries) addVector(codebook, entry, (_, value) => vectors.push(value))
  return { entries, vectors }
}

it.each([
  ['combined values', 1, false, [-1, -1, 5, -1, -1, 5, 5, 5]],
  ['combined values that add up', 1, true, [-1, -2, 5, 4, -1, 4, 5, 10]],
  ['values of its own', 2, false, [-1, 1, 3, 5, 7, 9, 11, 13]],
  ['values of its own that add up', 2, true, [-1, 0, 3, 8, 7, 16, 11, 24]],
] as const)(
  'a codebook reads entries and their vectors from %s',
  (_, kind, isSequence, vectors) => {
    expect(book(kind, isSequence)).toEqual({ entries: [0, 1, 2, 3], vectors })
  },
)
