import { randomUUID } from 'node:crypto'

import { Environment, Interpreter } from '@huggingface/jinja'

import type { WorkBudget } from '#workers/preparation/work-budget.ts'

// The library's declarations refer to files that TypeScript does not find.
export interface Node {
  readonly type: string
}
export interface Program extends Node {
  readonly body: readonly Node[]
}
export type Value =
  | { readonly type: 'StringValue'; readonly value: string }
  | { readonly type: 'BooleanValue'; readonly value: boolean }
  | { readonly type: 'ArrayValue'; readonly value: Value[] }
  | {
      readonly type: 'ObjectValue'
      readonly value: Map<string, Value>
      /** Its methods, and other members that the library finds by name. */
      readonly builtins: ReadonlyMap<string, Value>
    }
  | { readonly type: 'NullValue' | 'UndefinedValue' | 'OtherValue'; readonly value?: unknown }
export interface Scope {
  readonly variables: Map<string, Value>
  set(name: string, value: unknown): void
  lookupVariable(name: string): Value
}
interface BaseInterpreter {
  evaluate(node: Node | undefined, scope: Scope): Value
  run(program: Program): Value
}
export type StringValue = Extract<Value, { readonly type: 'StringValue' }>
export type ArrayValue = Extract<Value, { readonly type: 'ArrayValue' }>
export interface CallNode extends Node {
  readonly callee: Node & {
    readonly object?: Node
    readonly property?: { readonly value?: string }
    readonly computed?: boolean
  }
  readonly args: readonly Node[]
}
export interface FilterNode extends Node {
  readonly operand: Node
  readonly filter: {
    readonly value?: string
    readonly callee?: { readonly value?: string }
    readonly args?: readonly Node[]
  }
}
export interface BinaryNode extends Node {
  readonly operator: { readonly value: string }
  readonly left: Node
  readonly right: Node
}
export interface LoopNode extends Node {
  readonly iterable: Node
}
export interface MemberNode extends Node {
  readonly object: Node
  readonly property: Node & { readonly value?: unknown }
  /** In brackets. */
  readonly computed?: boolean
}
export interface ObjectNode extends Node {
  readonly value: ReadonlyMap<Node & { readonly value?: unknown }, Node>
}
export interface TestNode extends Node {
  readonly operand: Node
  readonly negate: boolean
  readonly test: { readonly value?: string }
}
/** A statement with a body; `value` and `name` where it has them. */
export interface BlockNode extends Node {
  readonly body: readonly Node[]
  readonly value?: Node | null
  readonly name?: { readonly value: string }
}
export const NewScope = Environment as unknown as new () => Scope
/** For expressions without variables: a new scope takes longer than most expressions. */
export const EMPTY_SCOPE: Scope = new NewScope()
export const Base = Interpreter as unknown as new (scope: Scope) => BaseInterpreter

// A key that clients cannot guess.
const FLOAT_KEY = randomUUID()

/**
 * A number of the client's JSON that Python shows with its fraction, such as `1.0`, for a template.
 */
export function wholeFloat(value: number): object {
  return { [FLOAT_KEY]: Math.abs(value) < 1e16 ? value.toFixed(1) : value.toExponential() }
}

/** A value as Python's `str` writes it. */
export function represent(value: Value): string {
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

// Supported by V8 but not yet declared by TypeScript.
type RawJson = typeof JSON & { rawJSON(source: string): unknown }

/** A number with its spelling. */
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

/** Restores floats of the client's JSON, because the library ignores the decimal point. */
export function restoreFloats(value: Value): void {
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
  return new Base(EMPTY_SCOPE).evaluate(literal as never, EMPTY_SCOPE)
}

/** A character, which may be a surrogate pair. */
const LAST_LETTER = /[\s\S]$/u

/** The ends of a text that a method strips. */
export interface Strip {
  readonly left: boolean
  readonly right: boolean
}

export const STRIPS: Readonly<Record<string, Strip>> = {
  strip: { left: true, right: true },
  lstrip: { left: true, right: false },
  rstrip: { left: false, right: true },
}

/**
 * The range of a text that `strip` and similar methods keep; `characters` are stripped instead of
 * white space.
 */
export function strippedRange(
  text: string,
  { left, right }: Strip,
  characters: string | undefined,
): { readonly start: number; readonly end: number } {
  if (characters === undefined) {
    const start = left ? text.length - text.trimStart().length : 0
    return { start, end: Math.max(right ? text.trimEnd().length : text.length, start) }
  }
  const set = new Set(characters)
  let [start, end] = [0, text.length]
  for (const letter of left ? text : '') {
    if (!set.has(letter)) break
    start += letter.length
  }
  while (right && end > start) {
    const letter = LAST_LETTER.exec(text.slice(Math.max(start, end - 2), end))?.[0] ?? ''
    if (!set.has(letter)) break
    end -= letter.length
  }
  return { start, end }
}

/** Copying or parsing a value takes about 0.8 µs. */
const STEPS_PER_VALUE = 4
/** Deeper than the API accepts. */
const DEPTH_MAX = 256

interface Open {
  readonly value: unknown
  readonly depth: number
}

/**
 * Charges for each value within a JSON value. An explicit stack bounds the depth before any code
 * recurses.
 */
export function chargeValues(root: unknown, budget: WorkBudget): void {
  const open: Open[] = [{ value: root, depth: 0 }]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, depth } = next
    budget.charge(STEPS_PER_VALUE)
    if (typeof value === 'string') budget.chargeText(value.length)
    if (typeof value !== 'object' || value === null) continue
    assertDepth(depth)
    const held = Array.isArray(value) ? value : Object.values(value)
    for (const inner of held) open.push({ value: inner, depth: depth + 1 })
  }
}

/** The number of values within a template value, which is the cost of writing it. */
export function countValues(root: Value): number {
  const open: { readonly value: Value; readonly depth: number }[] = [{ value: root, depth: 0 }]
  let count = 0
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, depth } = next
    count += 1
    if (value.type !== 'ArrayValue' && value.type !== 'ObjectValue') continue
    assertDepth(depth)
    for (const inner of value.value.values()) open.push({ value: inner, depth: depth + 1 })
  }
  return count
}

function assertDepth(depth: number): void {
  if (depth >= DEPTH_MAX) throw new Error('the values are nested too deeply')
}
