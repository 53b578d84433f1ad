import { randomUUID } from 'node:crypto'

import { Environment, Interpreter, Template } from '@huggingface/jinja'

// The library's own declarations name files that TypeScript does not find.
interface Node {
  readonly type: string
}
interface Program extends Node {
  readonly body: readonly Node[]
}
type Value =
  | { readonly type: 'StringValue'; readonly value: string }
  | { readonly type: 'BooleanValue'; readonly value: boolean }
  | { readonly type: 'ArrayValue'; readonly value: Value[] }
  | { readonly type: 'ObjectValue'; readonly value: Map<string, Value> }
  | { readonly type: 'NullValue' | 'UndefinedValue' | 'OtherValue'; readonly value?: unknown }
interface Scope {
  set(name: string, value: unknown): void
  lookupVariable(name: string): Value
}
interface BaseInterpreter {
  evaluate(node: Node | undefined, scope: Scope): Value
  run(program: Program): Value
}
const NewScope = Environment as unknown as new () => Scope
const Base = Interpreter as unknown as new (scope: Scope) => BaseInterpreter

/** Compiles a template. Throws a sentence when it is broken. */
export function compileTemplate(text: string): Program {
  const program = (new Template(text) as unknown as { readonly parsed: Program }).parsed
  markOutputs(program)
  return program
}

/** Renders a compiled template with the given variables, as Python's Jinja does. */
export function renderTemplate(
  program: Program,
  variables: Readonly<Record<string, unknown>>,
): string {
  const environment = new NewScope()
  for (const [name, value] of Object.entries(variables)) {
    environment.set(name, value)
    restoreFloats(environment.lookupVariable(name))
  }
  return String(new ChatInterpreter(environment).run(program).value)
}

// A name that no client can know.
const FLOAT_KEY = randomUUID()

/** A number of the client's JSON that Python shows with its fraction, such as `1.0`, for a template. */
export function wholeFloat(value: number): object {
  return { [FLOAT_KEY]: Math.abs(value) < 1e16 ? value.toFixed(1) : value.toExponential() }
}

/** A printed expression. */
const OUTPUT = 'Output'
const STATEMENTS: ReadonlySet<string> = new Set([
  ...['Set', 'If', 'For', 'Macro', 'CallStatement', 'FilterStatement', 'Break', 'Continue'],
  ...['Comment', 'StringLiteral'],
])

interface OutputNode {
  readonly type: string
  readonly printed: Node
}

/** Marks what is printed, where values are written in Python's way. */
function markOutputs(node: object): void {
  for (const [name, child] of Object.entries(node) as [string, unknown][]) {
    if (Array.isArray(child) && ['body', 'alternate', 'defaultBlock'].includes(name)) {
      for (const [index, statement] of (child as { type: string }[]).entries()) {
        if (STATEMENTS.has(statement.type)) markOutputs(statement)
        else child[index] = { type: OUTPUT, printed: statement } satisfies OutputNode
      }
    }
  }
}

/** The library's interpreter with what Python does and it does not. */
class ChatInterpreter extends Base {
  override evaluate(node: Node | undefined, environment: Scope): Value {
    switch (node?.type) {
      case OUTPUT:
        return this.#print(this.evaluate((node as unknown as OutputNode).printed, environment))
      case 'TupleLiteral':
        // Its tuples cannot be taken apart by a loop.
        return super.evaluate({ ...node, type: 'ArrayLiteral' }, environment)
      case 'CallExpression':
        return this.#strip(node, environment) ?? super.evaluate(node, environment)
      case 'FilterExpression':
        return this.#filter(node as unknown as FilterNode, environment)
      default:
        return super.evaluate(node, environment)
    }
  }

  #text(value: string): Value {
    return super.evaluate({ type: 'StringLiteral', value } as never, new NewScope())
  }

  #print(value: Value): Value {
    const isPlain = value.type === 'StringValue' || value.type === 'NullValue'
    return isPlain || value.type === 'UndefinedValue' ? value : this.#text(represent(value))
  }

  /** `text.strip(characters)` and its like; the library's own take no argument. */
  #strip(node: Node, environment: Scope): Value | undefined {
    const { callee, args } = node as unknown as CallNode
    const name = callee.property?.value ?? ''
    const isStrip = ['strip', 'lstrip', 'rstrip'].includes(name) && callee.computed !== true
    if (!isStrip || callee.object === undefined || args.length !== 1) return undefined
    const text = this.evaluate(callee.object, environment)
    const characters = this.evaluate(args[0] as Node, environment)
    if (text.type !== 'StringValue' || characters.type !== 'StringValue') return undefined
    const set = new Set(characters.value)
    const letters = Array.from(text.value)
    let [start, end] = [0, letters.length]
    while (name !== 'rstrip' && start < end && set.has(letters[start] as string)) start += 1
    while (name !== 'lstrip' && end > start && set.has(letters[end - 1] as string)) end -= 1
    return this.#text(letters.slice(start, end).join(''))
  }

  #filter(node: FilterNode, environment: Scope): Value {
    const name = node.filter.value ?? node.filter.callee?.value ?? ''
    const isSelecting = ['selectattr', 'rejectattr', 'select', 'reject', 'map'].includes(name)
    if (!isSelecting) return super.evaluate(node, environment)
    // Nothing is selected from `none`, rather than that it is a mistake.
    const isNone = this.evaluate(node.operand, environment).type === 'NullValue'
    const operand = isNone ? ({ type: 'ArrayLiteral', value: [] } as Node) : node.operand
    return super.evaluate({ ...node, operand } as Node, environment)
  }
}

interface CallNode {
  readonly callee: {
    readonly object?: Node
    readonly property?: { readonly value?: string }
    readonly computed?: boolean
  }
  readonly args: readonly Node[]
}

interface FilterNode {
  readonly type: string
  readonly operand: Node
  readonly filter: { readonly value?: string; readonly callee?: { readonly value?: string } }
}

/** A value as Python's `str` writes it. */
function represent(value: Value): string {
  switch (value.type) {
    case 'NullValue':
      return 'None'
    case 'BooleanValue':
      return value.value ? 'True' : 'False'
    case 'StringValue':
      return quote(value.value)
    case 'ArrayValue':
      return `[${value.value.map(represent).join(', ')}]`
    case 'ObjectValue':
      return `{${[...value.value].map(([key, held]) => `${quote(key)}: ${represent(held)}`).join(', ')}}`
    default:
      return String(value)
  }
}

const ESCAPES: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'"
  const inner = text
    .replaceAll('\\', '\\\\')
    .replaceAll(mark, `\\${mark}`)
    .replace(/[\n\r\t]/g, (character) => ESCAPES[character] as string)
    .replace(/[\p{Cc}]/gu, (character) => `\\x${hexOf(character)}`)
  return `${mark}${inner}${mark}`
}

function hexOf(character: string): string {
  return character.charCodeAt(0).toString(16).padStart(2, '0')
}

// Known to V8, not yet to TypeScript.
type RawJson = typeof JSON & { rawJSON(source: string): unknown }

/** Remembers how a number is written. */
class FloatNumber extends Number {
  readonly #source: string

  constructor(source: string) {
    super(source)
    this.#source = source
  }

  toJSON(): unknown {
    return (JSON as RawJson).rawJSON(this.#source)
  }
}

/** Puts floats where the client's JSON had them: the library goes by the value, not by the point. */
function restoreFloats(value: Value): void {
  if (value.type === 'ArrayValue') {
    for (const [index, held] of value.value.entries()) value.value[index] = restored(held)
  } else if (value.type === 'ObjectValue') {
    for (const [key, held] of value.value) value.value.set(key, restored(held))
  }
}

function restored(value: Value): Value {
  const source = value.type === 'ObjectValue' ? value.value.get(FLOAT_KEY) : undefined
  if (source?.type !== 'StringValue') {
    restoreFloats(value)
    return value
  }
  const literal = { type: 'FloatLiteral', value: new FloatNumber(source.value) }
  const environment = new NewScope()
  return new Base(environment).evaluate(literal as never, environment)
}
