import type { Grammar } from './grammar.ts'
import type { JsonGrammar } from './json-grammar.ts'

/** Inclusive or exclusive bounds of a JSON number, as in its schema. */
export interface NumberBounds {
  readonly minimum?: number
  readonly maximum?: number
  readonly exclusiveMinimum?: number
  readonly exclusiveMaximum?: number
}

const MAGNITUDE_MAX = 1e15 - 1 // the same digits as an unbounded integer
const DECIMALS_MAX = 6

/** Integers within the bounds, or undefined when there are none. */
export function integersWithin(json: JsonGrammar, bounds: NumberBounds): Grammar | undefined {
  return scaledWithin(json, bounds, 0)
}

/**
 * Numbers within the bounds, or undefined when there are none: integers, and decimals with up to
 * two digits more than the bounds.
 */
export function numbersWithin(json: JsonGrammar, bounds: NumberBounds): Grammar | undefined {
  const given = [bounds.minimum, bounds.maximum, bounds.exclusiveMinimum, bounds.exclusiveMaximum]
  const decimals = Math.max(...given.map((bound) => decimalsOf(bound ?? 0)))
  const grammars = Array.from({ length: Math.min(decimals + 2, DECIMALS_MAX) + 1 }, (_, places) =>
    scaledWithin(json, bounds, places),
  ).filter((grammar) => grammar !== undefined)
  return grammars.length === 0 ? undefined : json.builder.choiceOf(grammars)
}

/** Multiples of 10^-places within the bounds, all written with that many decimals. */
function scaledWithin(
  json: JsonGrammar,
  bounds: NumberBounds,
  places: number,
): Grammar | undefined {
  const low = lowestWithin(bounds, 10 ** places)
  const high = -lowestWithin(mirrored(bounds), 10 ** places)
  if (low > high) return undefined
  const parts: Grammar[] = []
  if (high >= 0) parts.push(...spell(json, Math.max(low, 0), high, places))
  if (low < 0) {
    const negative = spell(json, Math.max(-high, 1), -low, places)
    parts.push(json.builder.sequence(json.builder.literal('-'), json.builder.choiceOf(negative)))
  }
  return json.builder.choiceOf(parts)
}

/** The smallest multiple of 1/scale that is not too small, as that multiple. */
function lowestWithin(bounds: NumberBounds, scale: number): number {
  const { minimum = -Infinity, exclusiveMinimum = -Infinity } = bounds
  // A product is rounded; a quotient of such integers equals the parsed decimals.
  const near = Math.round(Math.max(minimum, exclusiveMinimum) * scale) - 2
  let lowest = Math.min(Math.max(near, -MAGNITUDE_MAX), MAGNITUDE_MAX + 1)
  while (lowest <= MAGNITUDE_MAX && !isLargeEnough(lowest / scale, bounds)) lowest += 1
  return lowest
}

/** Digits of multiples of a whole number, with an optional sign: one rule per remainder. */
export function multiplesOf(json: JsonGrammar, step: number): Grammar {
  const { builder } = json
  const rules: Grammar[] = Array.from({ length: step }, (_, remainder) =>
    builder.choice(
      ...Array.from({ length: 10 }, (_unused, digit) =>
        builder.sequence(
          builder.byte([0x30 + digit, 0x30 + digit]),
          builder.reference(() => rules[(remainder * 10 + digit) % step] as Grammar),
        ),
      ),
      ...(remainder === 0 ? [builder.literal('')] : []),
    ),
  )
  return builder.sequence(builder.optional(builder.literal('-')), rules[0] as Grammar)
}

/** Whether a number is within the bounds. */
export function isWithin(value: number, bounds: NumberBounds): boolean {
  return isLargeEnough(value, bounds) && isLargeEnough(-value, mirrored(bounds))
}

function isLargeEnough(
  value: number,
  { minimum = -Infinity, exclusiveMinimum = -Infinity }: NumberBounds,
): boolean {
  return value >= minimum && value > exclusiveMinimum
}

/** The same bounds of the numbers with the opposite sign. */
function mirrored({ maximum, exclusiveMaximum }: NumberBounds): NumberBounds {
  return {
    ...(maximum !== undefined && { minimum: -maximum }),
    ...(exclusiveMaximum !== undefined && { exclusiveMinimum: -exclusiveMaximum }),
  }
}

/** Non-negative numbers from `low` to `high`, as rows of digit ranges with a decimal point. */
function spell(json: JsonGrammar, low: number, high: number, places: number): Grammar[] {
  return digitRows(low, high, places + 1).map((row) => {
    const digits = row.map(([from, to]) => json.builder.byte([0x30 + from, 0x30 + to]))
    if (places > 0) digits.splice(digits.length - places, 0, json.builder.literal('.'))
    return json.builder.sequenceOf(digits)
  })
}

type DigitRow = readonly (readonly [number, number])[]

/** Covers `low` to `high` with rows of digit ranges: at most about two per digit and length. */
function digitRows(low: number, high: number, lengthMin: number): DigitRow[] {
  const rows: DigitRow[] = []
  for (let length = lengthMin; length <= String(high).length || length === lengthMin; length += 1) {
    const from = Math.max(low, length === lengthMin ? 0 : 10 ** (length - 1))
    const to = Math.min(high, 10 ** length - 1)
    if (from > to) continue
    const digitsOf = (value: number) =>
      [...String(value).padStart(length, '0')].map((digit) => Number(digit))
    rows.push(...sameLengthRows(digitsOf(from), digitsOf(to)))
  }
  return rows
}

function sameLengthRows(low: readonly number[], high: readonly number[]): DigitRow[] {
  const [first, ...lowRest] = low
  const [last, ...highRest] = high
  if (first === undefined || last === undefined) return [[]]
  const prefixed = (digit: number, rows: DigitRow[]) =>
    rows.map((row): DigitRow => [[digit, digit], ...row])
  if (first === last) return prefixed(first, sameLengthRows(lowRest, highRest))
  const anyRest: DigitRow = lowRest.map(() => [0, 9] as const)
  const isLowest = lowRest.every((digit) => digit === 0)
  const isHighest = highRest.every((digit) => digit === 9)
  const from = isLowest ? first : first + 1
  const to = isHighest ? last : last - 1
  return [
    ...(isLowest
      ? []
      : prefixed(
          first,
          sameLengthRows(
            lowRest,
            lowRest.map(() => 9),
          ),
        )),
    ...(from <= to ? [[[from, to] as const, ...anyRest]] : []),
    ...(isHighest
      ? []
      : prefixed(
          last,
          sameLengthRows(
            highRest.map(() => 0),
            highRest,
          ),
        )),
  ]
}

function decimalsOf(value: number): number {
  const text = String(value)
  if (text.includes('e-')) return Number(text.split('e-')[1])
  return text.split('.')[1]?.length ?? 0
}
