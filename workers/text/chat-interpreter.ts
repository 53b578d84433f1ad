import type { WorkBudget } from '#workers/preparation/work-budget.ts'

import { OUTPUT, type OutputNode } from './compile-template.ts'
import {
  leastTrusted,
  markOwn,
  markTurns,
  type RenderedText,
  TemplateOrigins,
  toRenderedText,
} from './content-spans.ts'
import { hold, PythonInterpreter } from './python-interpreter.ts'
import { bracePieces, type FormatPiece, percentPieces } from './python-texts.ts'
import { textOf } from './python-values.ts'
import { filterSteps, methodSteps, operatorSteps, sliceSteps, testSteps } from './template-costs.ts'
import {
  type ArrayValue,
  type BinaryNode,
  type BlockNode,
  type CallNode,
  countValues,
  EMPTY_SCOPE,
  type FilterNode,
  type LoopNode,
  type MemberNode,
  NewScope,
  type Node,
  type Program,
  represent,
  restoreFloats,
  type Scope,
  STRIPS,
  type StringValue,
  type Strip,
  strippedRange,
  type TestNode,
  type Value,
} from './template-values.ts'

/** The variables of a template. */
interface TemplateVariables {
  /** Text of the model folder and of the server, in which control tokens are recognized. */
  readonly own: Readonly<Record<string, unknown>>
  /** Text of clients. */
  readonly supplied: Readonly<Record<string, unknown>>
}

/**
 * Renders a compiled template with the given variables, like Python's Jinja. Charges the budget for
 * every operation.
 */
export function renderTemplate(
  program: Program,
  variables: TemplateVariables,
  budget: WorkBudget,
): RenderedText {
  const environment = new NewScope()
  const origins = new TemplateOrigins(budget)
  for (const [name, value] of Object.entries({ ...variables.supplied, ...variables.own })) {
    environment.set(name, value)
    const held = environment.lookupVariable(name)
    restoreFloats(held)
    if (Object.hasOwn(variables.own, name)) markOwn(held, origins)
    else if (name === 'messages') markTurns(held, origins)
  }
  const { value } = new ChatInterpreter(environment, origins, budget).run(program)
  const { text, runs } = origins.resolve(String(value))
  return toRenderedText(text, runs)
}

/**
 * Far more than the longest chats take; a million take about a second. An operation is one step, a
 * loop iteration several, and a new list or text more according to its length.
 */
const STEPS_MAX = 1_500_000
const STEPS_PER_ROUND = 8
/** The steps of a budget that one operation takes: those of the longest rendering are within it. */
const BUDGET_PER_STEP = 3
const CHARACTERS_PER_STEP = 256
const MAKES_VALUES: ReadonlySet<string> = new Set([
  ...['BinaryExpression', 'CallExpression', 'FilterExpression'],
])
const TEXT_LENGTH_MAX = 64 << 20
/** Methods of mappings, which Python finds before entries of the same name. */
const MAPPING_METHODS: ReadonlySet<unknown> = new Set(['get', 'items', 'keys', 'values'])

/**
 * An interpreter that records which text comes from the template, and stops templates that compute
 * for too long.
 */
class ChatInterpreter extends PythonInterpreter {
  readonly #origins: TemplateOrigins
  readonly #macros = new WeakSet<object>()
  readonly #budget: WorkBudget
  #steps = 0

  constructor(environment: Scope, origins: TemplateOrigins, budget: WorkBudget) {
    super(environment)
    this.#origins = origins
    this.#budget = budget
  }

  override evaluate(node: Node | undefined, environment: Scope): Value {
    this.#charge(1)
    const value = this.#evaluate(node, environment)
    if (node !== undefined && MAKES_VALUES.has(node.type)) {
      if (value.type === 'ArrayValue') this.#charge(value.value.length)
      if (value.type === 'StringValue') this.#charge(value.value.length / CHARACTERS_PER_STEP)
    }
    if (value.type === 'StringValue' && value.value.length > TEXT_LENGTH_MAX) {
      throw new Error('the template writes a text that is too long')
    }
    return value
  }

  #charge(steps: number): void {
    this.#steps += steps
    if (this.#steps > STEPS_MAX) throw new Error('the template takes too many steps')
    this.#budget.charge(steps * BUDGET_PER_STEP)
  }

  #evaluate(node: Node | undefined, environment: Scope): Value {
    switch (node?.type) {
      case OUTPUT:
        return this.#print(this.evaluate((node as unknown as OutputNode).printed, environment))
      case 'StringLiteral':
        return this.#own(super.evaluate(node, environment))
      case 'TupleLiteral':
        // A loop cannot unpack the library's tuples.
        return super.evaluate({ ...node, type: 'ArrayLiteral' }, environment)
      case 'BinaryExpression':
        return this.#binary(node as unknown as BinaryNode, environment)
      case 'CallExpression':
        return this.#call(node as unknown as CallNode, environment)
      case 'FilterExpression':
        return this.#filter(node as unknown as FilterNode, environment)
      case 'MemberExpression':
        return this.#member(node as unknown as MemberNode, environment)
      case 'TestExpression':
        return this.#test(node as TestNode, environment)
      case 'FilterStatement': {
        const operand = this.#block((node as unknown as BlockNode).body, environment)
        const filter = { ...node, type: 'FilterExpression', operand: hold(operand) } as Node
        return this.#print(this.evaluate(filter, environment))
      }
      case 'For':
        return this.#loop(node as unknown as LoopNode, environment)
      case 'Set':
        return this.#set(node as unknown as BlockNode, environment)
      case 'Macro': {
        const nothing = super.evaluate(node, environment)
        this.#macros.add(
          environment.lookupVariable((node as unknown as BlockNode).name?.value ?? ''),
        )
        return nothing
      }
      default:
        return super.evaluate(node, environment)
    }
  }

  #test(node: TestNode, environment: Scope): Value {
    const operand = this.evaluate(node.operand, environment)
    this.#charge(testSteps(node.test.value ?? '', operand))
    return super.evaluate({ ...node, operand: hold(operand) } as Node, environment)
  }

  #text(value: string): StringValue {
    return super.evaluate({ type: 'StringLiteral', value } as never, EMPTY_SCOPE) as StringValue
  }

  #own(value: Value): Value {
    if (value.type === 'StringValue') this.#origins.set(value, 'template')
    return value
  }

  #print(value: Value): Value {
    if (value.type === 'NullValue' || value.type === 'UndefinedValue') return value
    if (value.type !== 'StringValue') {
      this.#charge(countValues(value))
      return this.#text(this.#origins.print(this.#text(represent(value))))
    }
    return this.#origins.isTemplate(value) ? value : this.#text(this.#origins.print(value))
  }

  /** The text of a block whose output is a value. */
  #block(body: readonly Node[], environment: Scope): Value {
    return this.#resolve(super.evaluate({ type: 'Program', body } as Node, environment))
  }

  #resolve(printed: Value): Value {
    if (printed.type !== 'StringValue') return printed
    const { text, runs } = this.#origins.resolve(printed.value)
    const value = this.#text(text)
    this.#origins.record(value, runs)
    return value
  }

  #loop(node: LoopNode, environment: Scope): Value {
    // The condition of a loop is evaluated for each entry, and charged there.
    if (node.iterable.type === 'SelectExpression') return super.evaluate(node, environment)
    const iterable = this.evaluate(node.iterable, environment)
    if (iterable.type === 'ArrayValue') this.#charge(iterable.value.length * STEPS_PER_ROUND)
    if (iterable.type === 'ObjectValue') this.#charge(iterable.value.size * STEPS_PER_ROUND)
    return super.evaluate({ ...node, iterable: hold(iterable) } as Node, environment)
  }

  #set(node: BlockNode, environment: Scope): Value {
    if (node.value) return super.evaluate(node, environment)
    const value = hold(this.#block(node.body, environment))
    return super.evaluate({ ...node, value } as Node, environment)
  }

  #binary(node: BinaryNode, environment: Scope): Value {
    const { value: operator } = node.operator
    if (['and', 'or'].includes(operator)) return super.evaluate(node, environment)
    const given = [this.evaluate(node.left, environment), this.evaluate(node.right, environment)]
    for (const part of given) this.#charge(operatorSteps(operator, part))
    const [format, values] = given
    if (operator === '%' && format?.type === 'StringValue' && values !== undefined) {
      const list = values.type === 'ArrayValue' ? values.value : [values]
      return this.#format(format, percentPieces(format.value), (key) => list[Number(key)])
    }
    const parts = given.map((part) =>
      operator === '~' && part.type !== 'StringValue' ? this.#text(textOf(part)) : part,
    )
    const [left, right] = parts.map(hold)
    const joined = super.evaluate({ ...node, left, right } as Node, environment)
    const text = parts.find((part) => part.type === 'StringValue')
    if (operator === '*' && text?.type === 'StringValue') return this.#derive(joined, text, [])
    if (joined.type === 'StringValue') {
      const texts = parts.map((part) =>
        part.type === 'StringValue' ? part : { length: String(part.value).length },
      )
      this.#origins.join(joined, texts)
    }
    return joined
  }

  #call(node: CallNode, environment: Scope): Value {
    const { callee, args } = node
    if (callee.type === 'Identifier') {
      const macro = this.evaluate(callee, environment)
      const isMacro =
        this.#macros.has(macro) || (callee as { readonly value?: string }).value === 'caller'
      const value = super.evaluate({ ...node, callee: hold(macro) } as Node, environment)
      return isMacro ? this.#resolve(value) : value
    }
    if (callee.object === undefined) return super.evaluate(node, environment)
    const object = this.evaluate(callee.object, environment)
    const held = { ...node, callee: { ...callee, object: hold(object) } }
    const name = callee.computed === true ? '' : (callee.property?.value ?? '')
    if (object.type !== 'StringValue') {
      const value = super.evaluate(held, environment)
      return isMarked(value, this.#origins) ? this.#resolve(value) : value
    }
    const [first] = args
    const separator = () => first && this.evaluate(first, environment).value
    this.#charge(methodSteps(name, object.value, separator))
    if (name === 'join') return this.#filter(joining(args[0], object), environment)
    if (name === 'format') {
      const values = new Map(
        args.map((argument, index) => {
          const named = argument as unknown as NamedArgument
          const isNamed = argument.type === 'KeywordArgumentExpression'
          const value = this.evaluate(isNamed ? named.value : argument, environment)
          return [isNamed ? named.key.value : index, value] as const
        }),
      )
      return this.#format(object, bracePieces(object.value), (key) => values.get(key))
    }
    const strip = Object.hasOwn(STRIPS, name) ? STRIPS[name] : undefined
    if (strip !== undefined) return this.#strip(strip, object, args[0], environment)
    return this.#derive(super.evaluate(held, environment), object, args)
  }

  /** A text whose pieces keep their origins. */
  #format(
    format: StringValue,
    pieces: readonly FormatPiece[],
    find: (key: string | number) => Value | undefined,
  ): Value {
    const texts = pieces.map((piece) => {
      if ('text' in piece) {
        const text = this.#text(piece.text)
        this.#origins.slice(text, format, piece.start)
        return text
      }
      const value = find(piece.key)
      if (value === undefined) throw new Error('a format has more places than values')
      if (value.type === 'StringValue') return value
      return this.#text(
        piece.digits === undefined ? textOf(value) : Number(value.value).toFixed(piece.digits),
      )
    })
    const made = this.#text(texts.map(({ value }) => value).join(''))
    this.#origins.join(made, texts)
    return made
  }

  /** `text.strip(characters)` and similar methods; the library's own take no argument. */
  #strip(strip: Strip, text: StringValue, argument: Node | undefined, environment: Scope): Value {
    const set = argument === undefined ? undefined : this.evaluate(argument, environment)
    const characters = set?.type === 'StringValue' ? set.value : undefined
    const { start, end } = strippedRange(text.value, strip, characters)
    const part = this.#text(text.value.slice(start, end))
    this.#origins.slice(part, text, start)
    return part
  }

  /** The result of an operation on a text has the origin of its least trusted part. */
  #derive(made: Value, text: StringValue, args: readonly Node[]): Value {
    if (made.type === 'ArrayValue') for (const held of made.value) this.#derive(held, text, args)
    if (made.type !== 'StringValue' || this.#origins.has(made)) return made
    const isConstant = args.every(({ type }) => type.endsWith('Literal'))
    this.#origins.set(
      made,
      leastTrusted([this.#origins.leastOf(text), isConstant ? 'template' : 'content']),
    )
    return made
  }

  #member(node: MemberNode, environment: Scope): Value {
    const { computed, property } = node
    const isSlice = property.type === 'SliceExpression'
    const isMethod = computed !== true && MAPPING_METHODS.has(property.value)
    if (!isSlice && !isMethod) return super.evaluate(node, environment)
    const object = this.evaluate(node.object, environment)
    // The library reads an entry first: for example the parameter `items` of a function.
    if (isMethod && object.type === 'ObjectValue') {
      const method = object.builtins.get(String(property.value))
      if (method !== undefined) return method
    }
    if (isSlice) this.#charge(sliceSteps(object))
    const part = super.evaluate({ ...node, object: hold(object) } as Node, environment)
    return isSlice && object.type === 'StringValue' ? this.#derive(part, object, []) : part
  }

  #filter(node: FilterNode, environment: Scope): Value {
    const name = node.filter.value ?? node.filter.callee?.value ?? ''
    const isSelecting = ['selectattr', 'rejectattr', 'select', 'reject', 'map'].includes(name)
    const given = this.evaluate(node.operand, environment)
    this.#charge(filterSteps(name, given))
    // Selecting from `none` yields nothing instead of an error.
    const isNone = isSelecting && given.type === 'NullValue'
    const operand = isNone ? ({ type: 'ArrayLiteral', value: [] } as Node) : hold(given)
    const made = super.evaluate({ ...node, operand } as Node, environment)
    if (made.type !== 'StringValue' || this.#origins.has(made)) return made
    if (given.type === 'ArrayValue' && name === 'join') {
      return this.#recordJoin(node, made, given, environment)
    }
    if (given.type !== 'StringValue') return made
    if (name !== 'trim') return this.#derive(made, given, node.filter.args ?? [])
    this.#origins.slice(made, given, given.value.length - given.value.trimStart().length)
    return made
  }

  #recordJoin(
    { filter }: FilterNode,
    joined: StringValue,
    list: ArrayValue,
    environment: Scope,
  ): Value {
    const [separator] = filter.args ?? []
    const gap =
      separator === undefined ? this.#own(this.#text('')) : this.evaluate(separator, environment)
    if (gap.type !== 'StringValue') return joined
    const texts = list.value.map((item) =>
      item.type === 'StringValue' ? item : { length: String(item.value).length },
    )
    this.#origins.join(
      joined,
      texts.flatMap((item, index) => (index === 0 ? [item] : [gap, item])),
    )
    return joined
  }
}

interface NamedArgument {
  readonly key: { readonly value: string }
  readonly value: Node
}

/** The filter that does what `separator.join(list)` does. */
function joining(list: Node | undefined, separator: Value): FilterNode {
  const callee = { type: 'Identifier', value: 'join' }
  const filter = { type: 'CallExpression', callee, args: [hold(separator)] }
  return { type: 'FilterExpression', operand: list, filter } as unknown as FilterNode
}

function isMarked(value: Value, origins: TemplateOrigins): boolean {
  return value.type === 'StringValue' && origins.hasMark(value.value)
}
