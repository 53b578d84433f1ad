import { field } from '../providers/json.ts'

/** A template that says something this renderer does not know. */
export class TemplateError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'TemplateError'
  }
}

// {{ .Name }}, {{ .Data.a.b }}, {{ if .Name }}, {{ else }}, {{ end }}, comments; `-` trims space.
const ACTION = /\{\{(-?)([^{}]*)\}\}/g
const PATH = /^\.[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*$/
const DEPTH_MAX = 20

/**
 * Fills a template in the notation of Go: values, `if`/`else`/`end` on values, comments. Throws
 * `TemplateError` for anything else, so that no half-rendered mail leaves.
 */
export function renderTemplate(
  template: string,
  values: Readonly<Record<string, unknown>>,
  escapeText: (text: string) => string = escapeHtml,
): string {
  const out: string[] = []
  // One entry per open `if`: whether its present branch is shown, and whether `else` was seen.
  const open: { isShown: boolean; hasElse: boolean }[] = []
  const put = (text: string) => {
    if (open.every((block) => block.isShown)) out.push(text)
  }
  let position = 0
  let trimsNext = false
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
    const condition = /^if\s+(\S+)$/.exec(action)?.[1]
    if (condition !== undefined) {
      if (open.length >= DEPTH_MAX) throw new TemplateError('the template nests too deeply')
      open.push({ isShown: isTruthy(valueAt(values, condition)), hasElse: false })
    } else if (action === 'else') turn(open.at(-1))
    else if (action === 'end') close(open)
    else if (!/^\/\*.*\*\/$/s.test(action)) put(escapeText(display(valueAt(values, action))))
  }
  const rest = template.slice(position)
  if (open.length > 0) throw new TemplateError('an if has no end')
  if (rest.includes('{{')) throw new TemplateError('an action is not closed')
  putText(rest, false)
  return out.join('')
}

/** Makes a text safe inside HTML, attributes included. */
export function escapeHtml(text: string): string {
  return text.replace(/[&<>"'`]/g, (character) => `&#${character.charCodeAt(0)};`)
}

function turn(block: { isShown: boolean; hasElse: boolean } | undefined): void {
  if (block === undefined || block.hasElse) throw new TemplateError('an else has no if')
  block.isShown = !block.isShown
  block.hasElse = true
}

function close(open: unknown[]): void {
  if (open.pop() === undefined) throw new TemplateError('an end has no if')
}

function valueAt(values: Readonly<Record<string, unknown>>, path: string): unknown {
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
