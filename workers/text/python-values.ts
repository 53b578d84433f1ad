import { type ArrayValue, NewScope, represent, type Value } from './template-values.ts'

const SCRATCH = new NewScope()
const [TRUE, FALSE] = [converted(true), converted(false)]

/** A value of the template library. */
export function toValue(plain: unknown): Value {
  if (typeof plain === 'boolean') return plain ? TRUE : FALSE
  return converted(plain)
}

function converted(plain: unknown): Value {
  SCRATCH.set('value', plain)
  const value = SCRATCH.lookupVariable('value')
  SCRATCH.variables.delete('value')
  return value
}

/** A list of values. */
export function listOf(values: readonly Value[]): ArrayValue {
  const list = toValue([]) as ArrayValue
  list.value.push(...values)
  return list
}

/** A value as Python's `str` writes it at the outermost level. */
export function textOf(value: Value): string {
  if (value.type === 'StringValue') return value.value
  return value.type === 'UndefinedValue' ? '' : represent(value)
}

/** The number of a value; undefined for others, also for booleans. */
export function numberOf(value: Value): number | undefined {
  return (value.type as string) === 'IntegerValue' || (value.type as string) === 'FloatValue'
    ? Number(value.value)
    : undefined
}

export function isInteger(value: Value): boolean {
  return (value.type as string) === 'IntegerValue'
}

/** The entries over which Python iterates; undefined where it cannot. */
export function entriesOf(value: Value): readonly Value[] | undefined {
  switch (value.type) {
    case 'ArrayValue':
      return value.value
    case 'StringValue':
      return [...value.value].map(toValue)
    case 'ObjectValue':
      return [...value.value.keys()].map(toValue)
    case 'UndefinedValue':
      return []
    default:
      return undefined
  }
}

/** Whether Python iterates over a value. */
export function isIterable({ type }: Value): boolean {
  return ['ArrayValue', 'ObjectValue', 'StringValue', 'UndefinedValue'].includes(type)
}

/** Whether two values are equal, lists and mappings by their content. */
export function isEqual(one: Value, other: Value): boolean {
  if (one === other) return true
  if (one.type === 'ArrayValue' && other.type === 'ArrayValue') {
    const { value: entries } = other
    return (
      one.value.length === entries.length &&
      one.value.every((entry, index) => isEqual(entry, entries[index] as Value))
    )
  }
  if (one.type === 'ObjectValue' && other.type === 'ObjectValue') {
    const { value: entries } = other
    return (
      one.value.size === entries.size &&
      [...one.value].every(([key, entry]) => {
        const counterpart = entries.get(key)
        return counterpart !== undefined && isEqual(entry, counterpart)
      })
    )
  }
  const isNothing = (value: Value): boolean => ['NullValue', 'UndefinedValue'].includes(value.type)
  if (isNothing(one) || isNothing(other)) return one.type === other.type
  if (one.type === 'StringValue' || other.type === 'StringValue') {
    return one.type === other.type && one.value === other.value
  }
  const [first, second] = [one, other].map(scalarOf)
  return first !== undefined && first === second
}

function scalarOf(value: Value): number | undefined {
  return value.type === 'BooleanValue' ? Number(value.value) : numberOf(value)
}

/** The sign of the order of two numbers or texts; undefined for others. */
export function orderOf(one: Value, other: Value): number | undefined {
  const [first, second] = [one, other].map((value) =>
    value.type === 'StringValue' ? value.value : numberOf(value),
  )
  if (first === undefined || typeof first !== typeof second) return undefined
  return first < (second as typeof first) ? -1 : Number(first > (second as typeof first))
}

const LENGTH_MAX = 1 << 20

/** The result of an operator that the library computes differently or lacks. */
export function operate(operator: string, left: Value, right: Value): Value | undefined {
  switch (operator) {
    case '==':
      return toValue(isEqual(left, right))
    case '!=':
      return toValue(!isEqual(left, right))
    case 'in':
    case 'not in': {
      if (right.type !== 'ArrayValue') return undefined
      const isHeld = right.value.some((entry) => isEqual(entry, left))
      return toValue(isHeld === (operator === 'in'))
    }
    case '+':
      if ([left, right].some(isCollection) && [left, right].some(isTextual)) {
        throw new Error('can only concatenate texts to a text')
      }
      return undefined
    case '*':
      return repeated(left, right) ?? repeated(right, left)
    case '%':
      return remainder(left, right)
    case '<':
    case '>':
    case '<=':
    case '>=': {
      const order = left.type === 'StringValue' ? orderOf(left, right) : undefined
      if (order === undefined) return undefined
      const isEither = operator.endsWith('=') && order === 0
      return toValue(isEither || (operator.startsWith('<') ? order < 0 : order > 0))
    }
    default:
      return undefined
  }
}

function isCollection({ type }: Value): boolean {
  return type === 'ArrayValue' || type === 'ObjectValue'
}

function isTextual({ type }: Value): boolean {
  return type === 'StringValue'
}

function repeated(value: Value, times: Value): Value | undefined {
  if (!isInteger(times)) return undefined
  const count = Math.max(0, Number(times.value))
  if (value.type !== 'StringValue' && value.type !== 'ArrayValue') return undefined
  if (value.value.length * count > LENGTH_MAX) throw new Error('the repetition is too long')
  return value.type === 'StringValue'
    ? toValue(value.value.repeat(count))
    : listOf(Array.from({ length: count }, () => value.value).flat())
}

/** The remainder has the sign of the divisor. */
function remainder(left: Value, right: Value): Value | undefined {
  if (!isInteger(left) || !isInteger(right)) return undefined
  const [dividend, divisor] = [Number(left.value), Number(right.value)]
  if (divisor === 0) throw new Error('integer division or modulo by zero')
  return toValue((((dividend % divisor) + divisor) % divisor) + 0)
}
