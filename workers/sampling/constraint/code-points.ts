import { defined } from '#shared/json.ts'

import type { Grammar, GrammarBuilder } from './grammar.ts'

/** Inclusive ranges of Unicode code points, ascending and disjoint. */
export type CodePointRanges = readonly (readonly [number, number])[]

const CODE_POINT_MAX = 0x10ffff
/** Boundaries of the UTF-8 lengths, and of the surrogates. */
const SEGMENTS: CodePointRanges = [
  [0, 0x7f],
  [0x80, 0x7ff],
  [0x800, 0xd7ff],
  [0xe000, 0xffff],
  [0x10000, CODE_POINT_MAX],
]

/** One character of the ranges, in UTF-8. Surrogates are not characters and are excluded. */
export function oneCharacter(builder: GrammarBuilder, ranges: CodePointRanges): Grammar {
  const sequences = ranges.flatMap(([low, high]) =>
    SEGMENTS.flatMap(([start, end]) => splitRange(Math.max(low, start), Math.min(high, end))),
  )
  const single = sequences
    .filter((sequence) => sequence.length === 1)
    .map(([byte]) => defined(byte))
  const longer = sequences
    .filter((sequence) => sequence.length > 1)
    .map((sequence) => builder.sequence(...sequence.map((range) => builder.byte(range))))
  return builder.choiceOf([...(single.length > 0 ? [builder.byte(...single)] : []), ...longer])
}

/** Sorts ranges and joins adjacent ones. */
export function normalizeRanges(ranges: CodePointRanges): CodePointRanges {
  const joined: [number, number][] = []
  for (const [low, high] of ranges.toSorted((a, b) => a[0] - b[0])) {
    const last = joined.at(-1)
    if (last !== undefined && low <= last[1] + 1) last[1] = Math.max(last[1], high)
    else joined.push([low, high])
  }
  return joined
}

/** All code points outside the ranges. */
export function invertRanges(ranges: CodePointRanges): CodePointRanges {
  const inverted: [number, number][] = []
  let next = 0
  for (const [low, high] of normalizeRanges(ranges)) {
    if (low > next) inverted.push([next, low - 1])
    next = high + 1
  }
  if (next <= CODE_POINT_MAX) inverted.push([next, CODE_POINT_MAX])
  return inverted
}

/** The code points of `ranges` that are not in `removed`. */
export function subtractRanges(ranges: CodePointRanges, removed: CodePointRanges): CodePointRanges {
  return invertRanges([...invertRanges(ranges), ...removed])
}

/** Splits a range of equally long characters until each part is a product of byte ranges. */
function splitRange(low: number, high: number): (readonly [number, number])[][] {
  if (low > high) return []
  const length = utf8Length(high)
  for (let tail = 1; tail < length; tail += 1) {
    const mask = 2 ** (6 * tail) - 1
    if ((low | mask) === (high | mask)) continue
    if ((low & mask) !== 0) {
      return [...splitRange(low, low | mask), ...splitRange((low | mask) + 1, high)]
    }
    if ((high & mask) !== mask) {
      const start = high - (high & mask)
      return [...splitRange(low, start - 1), ...splitRange(start, high)]
    }
  }
  const first = utf8(low)
  const last = utf8(high)
  return [Array.from(first, (byte, index) => [byte, last[index] as number] as const)]
}

function utf8Length(codePoint: number): number {
  if (codePoint <= 0x7f) return 1
  if (codePoint <= 0x7ff) return 2
  return codePoint <= 0xffff ? 3 : 4
}

function utf8(codePoint: number): Uint8Array {
  return new TextEncoder().encode(String.fromCodePoint(codePoint))
}
