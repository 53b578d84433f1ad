import { FILTERS, LIST_FILTERS } from './python-filters.ts'
import { pieceCount } from './python-texts.ts'
import { countValues, type Value } from './template-values.ts'

/** An operation reads its operands faster than it makes values, at least as fast as this. */
const CHARACTERS_READ_PER_STEP = 64
const ENTRIES_READ_PER_STEP = 4
/** A slice of a text makes a list of its characters. */
const CHARACTERS_SLICED_PER_STEP = 16
/** Each piece of a text becomes a value with an origin. */
const STEPS_PER_PIECE = 4

/** Filters that write every value within another one. */
const WRITES_VALUES: ReadonlySet<string> = new Set(['tojson', 'string'])
/** Filters that read one entry of a list. */
const READS_ONE: ReadonlySet<string> = new Set(['count', 'default', 'd', 'first', 'last', 'length'])
/** Filters that read a text as a whole, though they may also read a list. */
const WHOLE_TEXTS: ReadonlySet<string> = new Set(['e', 'escape', 'length', 'round', 'string'])
/** Filters that make a value of each character of a text. */
const SPLITS_TEXTS: ReadonlySet<string> = new Set(
  [...LIST_FILTERS, ...Object.keys(FILTERS)].filter((name) => !WHOLE_TEXTS.has(name)),
)
/** Operators that read every value within another one. */
const COMPARISONS: ReadonlySet<string> = new Set(['==', '!=', 'in', 'not in'])
/** Methods that make a value of each piece of a text. */
const SPLITS: ReadonlySet<string> = new Set(['rsplit', 'split', 'splitlines'])
/** Tests that read every character of a text. */
const TEXT_TESTS: ReadonlySet<string> = new Set(['eq', 'equalto', 'lower', 'upper'])

// An operation is charged for what it may read before it does, because its result may be small.

export function operatorSteps(operator: string, operand: Value): number {
  return readSteps(operand) + (COMPARISONS.has(operator) ? countValues(operand) : 0)
}

export function filterSteps(name: string, operand: Value): number {
  const written = WRITES_VALUES.has(name) ? countValues(operand) : 0
  if (operand.type !== 'StringValue') {
    return written + (READS_ONE.has(name) ? 0 : readSteps(operand))
  }
  return written + (SPLITS_TEXTS.has(name) ? operand.value.length : readSteps(operand))
}

/** The steps of a method of a text; `separator` is its first argument. */
export function methodSteps(name: string, text: string, separator: () => unknown): number {
  const pieces = SPLITS.has(name) ? pieceCount(text, separator()) : 0
  return pieces * STEPS_PER_PIECE + text.length / CHARACTERS_READ_PER_STEP
}

export function testSteps(name: string, operand: Value): number {
  return TEXT_TESTS.has(name) ? readSteps(operand) : 0
}

export function sliceSteps(operand: Value): number {
  return readSteps(operand, CHARACTERS_SLICED_PER_STEP)
}

function readSteps(operand: Value, charactersPerStep = CHARACTERS_READ_PER_STEP): number {
  if (operand.type === 'StringValue') return operand.value.length / charactersPerStep
  return operand.type === 'ArrayValue' ? operand.value.length / ENTRIES_READ_PER_STEP : 0
}
