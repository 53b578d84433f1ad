import {
  entriesOf,
  isInteger,
  listOf,
  numberOf,
  orderOf,
  textOf,
  toValue,
} from './python-values.ts'
import { Base, EMPTY_SCOPE, type Value } from './template-values.ts'

/** The arguments of a filter without names. */
type Filter = (given: Value, args: readonly Value[]) => Value | undefined

/** Filters that the template library lacks; undefined leaves the value to the library. */
export const FILTERS: Readonly<Record<string, Filter>> = {
  string: (given) => (given.type === 'StringValue' ? undefined : toValue(textOf(given))),
  list: (given) => listed(given, (entries) => listOf(entries)),
  first: (given) => listed(given, (entries) => entries[0] ?? toValue(undefined)),
  last: (given) => listed(given, (entries) => entries.at(-1) ?? toValue(undefined)),
  count: (given) => toValue((entriesOf(given) ?? []).length),
  min: (given) => extreme(given, -1),
  max: (given) => extreme(given, 1),
  sum: (given) => {
    const numbers = (entriesOf(given) ?? []).map(numberOf)
    const sum = numbers.reduce<number>((total, number) => total + (number ?? Number.NaN), 0)
    return (entriesOf(given) ?? []).every(isInteger) ? toValue(sum) : floatOf(sum)
  },
  round: (given, [digits, method]) => {
    const number = numberOf(given)
    if (number === undefined) return undefined
    const name = method === undefined ? 'common' : textOf(method)
    return floatOf(rounded(number, digits === undefined ? 0 : (numberOf(digits) ?? 0), name))
  },
  reverse: (given) =>
    given.type === 'StringValue' ? toValue([...given.value].reverse().join('')) : undefined,
  wordcount: (given) => toValue(textOf(given).split(/\s+/).filter(Boolean).length),
  e: escapeMarkup,
  escape: escapeMarkup,
  batch: (given, [size]) => {
    const entries = entriesOf(given) ?? []
    const length = Math.max(1, size === undefined ? 1 : (numberOf(size) ?? 1))
    const count = Math.ceil(entries.length / length)
    return listOf(
      Array.from({ length: count }, (_, row) =>
        listOf(entries.slice(row * length, (row + 1) * length)),
      ),
    )
  },
}

/** Filters of texts, which read any other value as its text. */
export const TEXT_FILTERS: ReadonlySet<string> = new Set([
  ...['capitalize', 'indent', 'lower', 'replace', 'title', 'trim', 'upper'],
])
/** Filters of lists, which read an undefined value as an empty one. */
export const LIST_FILTERS: ReadonlySet<string> = new Set([
  ...['join', 'length', 'map', 'reject', 'rejectattr', 'reverse', 'select', 'selectattr', 'sort'],
  'unique',
])
/** Filters under a second name. */
export const FILTER_NAMES: Readonly<Record<string, string>> = { d: 'default' }

/** The entries of a value that is no list, for the library knows lists alone. */
function listed(given: Value, read: (entries: readonly Value[]) => Value): Value | undefined {
  const entries = given.type === 'ArrayValue' ? undefined : entriesOf(given)
  return entries === undefined ? undefined : read(entries)
}

function extreme(given: Value, sign: number): Value {
  const entries = entriesOf(given) ?? []
  return entries.reduce(
    (best, entry) => ((orderOf(entry, best) ?? 0) * sign > 0 ? entry : best),
    entries[0] ?? toValue(undefined),
  )
}

function escapeMarkup(given: Value): Value {
  const names: Readonly<Record<string, string>> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    '"': '&#34;',
    "'": '&#39;',
  }
  return toValue(textOf(given).replace(/[&<>"']/g, (letter) => names[letter] as string))
}

/** Rounds half to even, as Python does, or as the name of the method says. */
function rounded(number: number, digits: number, method: string): number {
  const scale = 10 ** digits
  const scaled = number * scale
  if (method === 'ceil') return Math.ceil(scaled) / scale
  const below = Math.floor(scaled)
  if (method === 'floor') return below / scale
  const isHalf = scaled - below === 0.5
  return (isHalf ? below + (below % 2 === 0 ? 0 : 1) : Math.round(scaled)) / scale
}

function floatOf(value: number): Value {
  const node = { type: 'FloatLiteral', value }
  return new Base(EMPTY_SCOPE).evaluate(node, EMPTY_SCOPE)
}
