import { field } from '#shared/json.ts'

/** A template with syntax that this renderer does not support. */
export class TemplateError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'TemplateError'
  }
}

type Values = Readonly<Record<string, unknown>>

/** An open `if`. */
interface Block {
  isShown: boolean
  /** Whether one of its branches has been rendered. */
  isDecided: boolean
  hasElse: boolean
}

// An action in double braces; `-` on the inside trims the space outside.
const ACTION = /\{\{(-?)([^{}]*)\}\}/g
const PATH = /^\.[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*$/
const WORDS = /"(?:[^"\\]|\\.)*"|\S+/g
const DEPTH_MAX = 20

/**
 * Fills a template in Go's notation: values, comments, and `if`, `else if`, `else`, `end` on
 * values, `not`, `eq` and `ne`. Throws `TemplateError` for anything else, so that no partly
 * rendered mail is sent.
 */
export function renderTemplate(
  template: string,
  values: Values,
  escapeText: (text: string) => string = escapeHtml,
): string {
  const out: string[] = []
  const open: Block[] = []
  let position = 0
  let trimsNext = false
  const put = (text: string) => {
    if (open.every((block) => block.isShown)) out.push(text)
  }
  const putText = (text: string, trimsEnd: boolean) => {
    const kept = trimsNext ? text.trimStart() : text
    put(trimsEnd ? kept.trimEnd() : kept)
  }
  for (const match of template.matchAll(ACTION)) {
    const [whole, trimLeft, inside = ''] = match
    putText(template.slice(position, match.index), trimLeft === '-')
    position = match.index + whole.length
    trimsNext = inside.endsWith('-')
    const action = (trimsNext ? inside.slice(0, -1) : inside).trim()
    if (!control(open, action, values)) put(escapeText(display(valueAt(values, action))))
  }
  const rest = template.slice(position)
  if (open.length > 0) throw new TemplateError('an if has no end')
  if (rest.includes('{{')) throw new TemplateError('an action is not closed')
  putText(rest, false)
  return out.join('')
}

/** Escapes a text for HTML, including attributes. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"'`]/g, (character) => `&#${character.charCodeAt(0)};`)
}

/** Whether the action controls the rendering and has no output itself. */
function control(open: Block[], action: string, values: Values): boolean {
  const [, word, condition = ''] = /^(if|else if|else|end)(?:\s+(.+))?$/s.exec(action) ?? []
  if (word === 'if') {
    if (open.length >= DEPTH_MAX) throw new TemplateError('the template nests too deeply')
    const isShown = holds(values, condition)
    open.push({ isShown, isDecided: isShown, hasElse: false })
  } else if (word === 'else if' || word === 'else') {
    const block = open.at(-1)
    if (block === undefined || block.hasElse) throw new TemplateError('an else has no if')
    const isMet = word === 'else' || holds(values, condition)
    block.hasElse = word === 'else'
    block.isShown = isMet && !block.isDecided
    block.isDecided ||= block.isShown
  } else if (word === 'end') {
    if (open.pop() === undefined) throw new TemplateError('an end has no if')
  } else return /^\/\*.*\*\/$/s.test(action)
  return true
}

function holds(values: Values, condition: string): boolean {
  const words = condition.match(WORDS) ?? []
  const [first = '', left = '', ...others] = words
  if (words.length === 1) return isTruthy(operand(values, first))
  if (first === 'not' && words.length === 2) return !isTruthy(operand(values, left))
  if (first === 'eq' && others.length > 0) {
    return others.some((other) => operand(values, other) === operand(values, left))
  }
  if (first === 'ne' && others.length === 1) {
    return operand(values, others[0] ?? '') !== operand(values, left)
  }
  throw new TemplateError(`unknown condition: ${condition.slice(0, 60)}`)
}

/** A literal text, number or boolean, or the value at a path. */
function operand(values: Values, word: string): unknown {
  if (!/^("|-?\d|true$|false$)/.test(word)) return valueAt(values, word)
  try {
    return JSON.parse(word)
  } catch {
    throw new TemplateError(`unknown constant: ${word.slice(0, 60)}`)
  }
}

function valueAt(values: Values, path: string): unknown {
  if (!PATH.test(path)) throw new TemplateError(`unknown action: ${path.slice(0, 60)}`)
  const [name = '', ...rest] = path.slice(1).split('.')
  if (!Object.hasOwn(values, name)) throw new TemplateError(`unknown variable: .${name}`)
  return rest.reduce<unknown>(field, values[name])
}

function isTruthy(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0
  if (typeof value === 'object' && value !== null) return Object.keys(value).length > 0
  return Boolean(value)
}

function display(value: unknown): string {
  if (value === undefined || value === null) return ''
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}
