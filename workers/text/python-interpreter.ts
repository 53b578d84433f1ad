import { FILTER_NAMES, FILTERS, LIST_FILTERS, TEXT_FILTERS } from './python-filters.ts'
import { TEXT_METHODS } from './python-texts.ts'
import {
  entriesOf,
  isInteger,
  isIterable,
  listOf,
  numberOf,
  operate,
  textOf,
  toValue,
} from './python-values.ts'
import {
  Base,
  type BinaryNode,
  type CallNode,
  type FilterNode,
  type LoopNode,
  type MemberNode,
  type Node,
  type ObjectNode,
  type Scope,
  type TestNode,
  type Value,
} from './template-values.ts'

/** A computed value as an expression. */
const HELD = 'Held'
interface HeldNode extends Node {
  readonly held: Value
}

export function hold(held: Value): HeldNode {
  return { type: HELD, held }
}

/** Operators that the library computes differently from Python for some values. */
const OPERATORS: ReadonlySet<string> = new Set([
  ...['==', '!=', 'in', 'not in', '+', '*', '%', '<', '>', '<=', '>='],
])

/** The library's interpreter with operators, filters and methods of Python that it lacks. */
export class PythonInterpreter extends Base {
  /** Mappings whose keys are whole numbers; the library's keys are texts. */
  readonly #numbered = new WeakSet<object>()
  #hasNumbered = false

  override evaluate(node: Node | undefined, scope: Scope): Value {
    switch (node?.type) {
      case HELD:
        return (node as HeldNode).held
      case 'BinaryExpression':
        return this.#binary(node as BinaryNode, scope)
      case 'CallExpression':
        return this.#call(node as CallNode, scope)
      case 'FilterExpression':
        return this.#filter(node as FilterNode, scope)
      case 'MemberExpression':
        return this.#member(node as MemberNode, scope)
      case 'ObjectLiteral':
        return this.#mapping(node as ObjectNode, scope)
      case 'For':
        return this.#loop(node as LoopNode, scope)
      case 'TestExpression':
        return this.#test(node as TestNode, scope)
      default:
        return super.evaluate(node, scope)
    }
  }

  #binary(node: BinaryNode, scope: Scope): Value {
    const { value: operator } = node.operator
    if (!OPERATORS.has(operator)) return super.evaluate(node, scope)
    const left = this.evaluate(node.left, scope)
    const right = this.evaluate(node.right, scope)
    const isKey = isInteger(left) && this.#numbered.has(right)
    const key = isKey ? toValue(String(left.value)) : left
    const held = { ...node, left: hold(key), right: hold(right) } as Node
    return operate(operator, key, right) ?? super.evaluate(held, scope)
  }

  #call(node: CallNode, scope: Scope): Value {
    const { callee, args } = node
    const name = callee.computed === true ? '' : (callee.property?.value ?? '')
    const method = Object.hasOwn(TEXT_METHODS, name) ? TEXT_METHODS[name] : undefined
    const isUsual = method === undefined && !this.#hasNumbered
    if (callee.object === undefined || name === '' || isUsual) return super.evaluate(node, scope)
    const object = this.evaluate(callee.object, scope)
    const pairs = this.#pairsOf(object)
    if (pairs !== undefined && name === 'items') return listOf(pairs)
    if (pairs !== undefined && name === 'keys') return this.#keysOf(pairs)
    if (object.type === 'StringValue' && method !== undefined) {
      const given = args.map((argument) => this.evaluate(argument, scope))
      return toValue(method(object.value, ...given.map(({ value }) => value as string)))
    }
    const [key, ...others] =
      pairs === undefined ? [] : args.map((node) => this.evaluate(node, scope))
    const isKey = key !== undefined && isInteger(key)
    const given = isKey ? [toValue(String(key.value)), ...others].map(hold) : args
    const held = { ...node, args: given, callee: { ...callee, object: hold(object) } } as Node
    return super.evaluate(held, scope)
  }

  #filter(node: FilterNode, scope: Scope): Value {
    const { filter } = node
    const written = filter.value ?? filter.callee?.value ?? ''
    const name = Object.hasOwn(FILTER_NAMES, written) ? (FILTER_NAMES[written] as string) : written
    const args = filter.args ?? []
    const given = this.#operand(name, this.evaluate(node.operand, scope))
    const isNamed = args.some(({ type }) => type === 'KeywordArgumentExpression')
    if (Object.hasOwn(FILTERS, name) && !isNamed) {
      const values = args.map((argument) => this.evaluate(argument, scope))
      const made = FILTERS[name]?.(given, values)
      if (made !== undefined) return made
    }
    const choice = isNamed ? undefined : this.#choose(name, given, args, scope)
    if (choice !== undefined) return choice
    const renamed =
      filter.callee === undefined
        ? { ...filter, value: name }
        : { ...filter, callee: { ...filter.callee, value: name } }
    return super.evaluate({ ...node, operand: hold(given), filter: renamed } as Node, scope)
  }

  /** The value that a filter of texts or lists reads. */
  #operand(name: string, given: Value): Value {
    const pairs = this.#pairsOf(given)
    if (pairs !== undefined && ['dictsort', 'items'].includes(name)) return listOf(pairs)
    if (TEXT_FILTERS.has(name) && given.type !== 'StringValue') return toValue(textOf(given))
    const isListed = LIST_FILTERS.has(name) && given.type !== 'ArrayValue'
    const isText = given.type === 'StringValue' && ['length', 'join', 'reverse'].includes(name)
    const isMeasured = given.type === 'ObjectValue' && name === 'length'
    if (!isListed || isText || isMeasured) return given
    const entries = entriesOf(given)
    return entries === undefined ? given : listOf(entries)
  }

  /** Filters that apply a test or another filter to each entry. */
  #choose(name: string, given: Value, args: readonly Node[], scope: Scope): Value | undefined {
    if (given.type !== 'ArrayValue') return undefined
    // The pairs of a mapping with numbers as keys.
    if (name === 'dictsort') return listOf(given.value.toSorted(byKey))
    if (!['map', 'reject', 'select'].includes(name) || args.length > 1) return undefined
    const [argument] = args
    const word = argument === undefined ? undefined : textOf(this.evaluate(argument, scope))
    const identifier = { type: 'Identifier', value: word }
    if (name === 'map') {
      return listOf(
        given.value.map((entry) => {
          const node = { type: 'FilterExpression', operand: hold(entry), filter: identifier }
          return this.evaluate(node, scope)
        }),
      )
    }
    const isChosen = (entry: Value): boolean => {
      const test = { type: 'TestExpression', operand: hold(entry), negate: false, test: identifier }
      const node = word === undefined ? hold(entry) : test
      const negated = { type: 'UnaryExpression', operator: { value: 'not' }, argument: node }
      return this.evaluate(negated as Node, scope).value === (name === 'reject')
    }
    return listOf(given.value.filter(isChosen))
  }

  #member(node: MemberNode, scope: Scope): Value {
    const isKey = node.computed === true && node.property.type !== 'SliceExpression'
    if (!isKey || !this.#hasNumbered) return super.evaluate(node, scope)
    const object = this.evaluate(node.object, scope)
    const key = this.evaluate(node.property, scope)
    const isNumber = isInteger(key) && this.#numbered.has(object)
    const property = hold(isNumber ? toValue(String(key.value)) : key)
    return super.evaluate({ ...node, object: hold(object), property } as Node, scope)
  }

  #mapping(node: ObjectNode, scope: Scope): Value {
    const keys = [...node.value.keys()]
    const isNumbered = keys.length > 0 && keys.every(({ type }) => type === 'IntegerLiteral')
    if (!isNumbered) return super.evaluate(node, scope)
    const entries = [...node.value].map(
      ([key, value]) => [{ type: 'StringLiteral', value: String(key.value) }, value] as const,
    )
    const made = super.evaluate({ ...node, value: new Map(entries) } as Node, scope)
    this.#numbered.add(made)
    this.#hasNumbered = true
    return made
  }

  #loop(node: LoopNode, scope: Scope): Value {
    const isSelecting = node.iterable.type === 'SelectExpression'
    if (isSelecting || !this.#hasNumbered) return super.evaluate(node, scope)
    const iterable = this.evaluate(node.iterable, scope)
    const pairs = this.#pairsOf(iterable)
    const held = hold(pairs === undefined ? iterable : this.#keysOf(pairs))
    return super.evaluate({ ...node, iterable: held } as Node, scope)
  }

  #test(node: TestNode, scope: Scope): Value {
    if (node.test.value !== 'iterable') return super.evaluate(node, scope)
    return toValue(isIterable(this.evaluate(node.operand, scope)) !== node.negate)
  }

  #pairsOf(value: Value): readonly Value[] | undefined {
    if (value.type !== 'ObjectValue' || !this.#numbered.has(value)) return undefined
    return [...value.value].map(([key, held]) => listOf([toValue(Number(key)), held]))
  }

  #keysOf(pairs: readonly Value[]): Value {
    return listOf(pairs.map((pair) => (pair.value as readonly Value[])[0] as Value))
  }
}

function byKey(one: Value, other: Value): number {
  const [first, second] = [one, other].map((pair) => numberOf((pair.value as Value[])[0] as Value))
  return (first ?? 0) - (second ?? 0)
}
