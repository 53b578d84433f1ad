/** Values that methods of texts take and return. */
type Plain = string | number | boolean | null | undefined | readonly string[]
type Method = (text: string, ...args: readonly Plain[]) => Plain

const LINES = /\r\n|[\n\r\v\f\u0085\u2028\u2029]/

/** Methods of Python's `str` that the template library lacks. */
export const TEXT_METHODS: Readonly<Record<string, Method>> = {
  capitalize,
  casefold: (text) => text.toLowerCase(),
  center: (text, width) => {
    const room = Math.max(0, bounded(width) - text.length)
    const left = Math.floor(room / 2) + (room & bounded(width) & 1)
    return ' '.repeat(left) + text + ' '.repeat(room - left)
  },
  count: (text, part) => pieceCount(text, String(part)) - 1,
  find: (text, part) => text.indexOf(String(part)),
  index: (text, part) => found(text.indexOf(String(part))),
  isalnum: (text) => /^[\p{L}\p{N}]+$/u.test(text),
  isalpha: (text) => /^\p{L}+$/u.test(text),
  isdigit: (text) => /^\p{Nd}+$/u.test(text),
  islower: (text) => text !== text.toUpperCase() && text === text.toLowerCase(),
  isspace: (text) => /^\s+$/.test(text),
  isupper: (text) => text !== text.toLowerCase() && text === text.toUpperCase(),
  ljust: (text, width) => text.padEnd(bounded(width)),
  partition: (text, part) => cutAt(text, text.indexOf(String(part)), String(part), false),
  removeprefix: (text, prefix) =>
    text.startsWith(String(prefix)) ? text.slice(String(prefix).length) : text,
  removesuffix: (text, suffix) =>
    suffix !== '' && text.endsWith(String(suffix)) ? text.slice(0, -String(suffix).length) : text,
  rfind: (text, part) => text.lastIndexOf(String(part)),
  rjust: (text, width) => text.padStart(bounded(width)),
  rpartition: (text, part) => cutAt(text, text.lastIndexOf(String(part)), String(part), true),
  rsplit: splitFromRight,
  splitlines: (text) => {
    const lines = text.split(LINES)
    return lines.at(-1) === '' ? lines.slice(0, -1) : lines
  },
  swapcase: (text) =>
    text.replace(/\p{L}/gu, (letter) =>
      letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
    ),
  zfill: (text, width) => text.padStart(bounded(width), '0'),
}

const WIDTH_MAX = 1024

function bounded(width: Plain): number {
  return Math.min(Number(width), WIDTH_MAX)
}

function capitalize(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1).toLowerCase()
}

function found(at: number): number {
  if (at < 0) throw new Error('substring not found')
  return at
}

/**
 * The number of pieces into which a separator splits a text; white space separates them where it is
 * not a text.
 */
export function pieceCount(text: string, separator: unknown): number {
  if (separator === '') return text.length + 1
  let count = 1
  if (typeof separator === 'string') {
    for (let at = text.indexOf(separator); at >= 0; count += 1) {
      at = text.indexOf(separator, at + separator.length)
    }
    return count
  }
  for (const _ of text.matchAll(/\s+/g)) count += 1
  return count
}

function cutAt(text: string, at: number, part: string, isLast: boolean): readonly string[] {
  if (at < 0) return isLast ? ['', '', text] : [text, '', '']
  return [text.slice(0, at), part, text.slice(at + part.length)]
}

function splitFromRight(text: string, separator?: Plain, count: Plain = -1): readonly string[] {
  const isBlank = separator === undefined || separator === null
  const parts = isBlank ? text.split(/\s+/).filter(Boolean) : text.split(String(separator))
  const first = Number(count) < 0 ? 0 : parts.length - 1 - Number(count)
  if (first <= 0) return parts
  const between = isBlank ? ' ' : String(separator)
  return [parts.slice(0, first + 1).join(between), ...parts.slice(first + 1)]
}

/** A piece of a format: its own text, or the place of a value. */
export type FormatPiece =
  | { readonly start: number; readonly text: string }
  | { readonly key: string | number; readonly digits?: number }

/** The pieces of a format of `str.format`: texts, `{}`, `{0}` and `{name}`. */
export function bracePieces(format: string): readonly FormatPiece[] {
  let next = 0
  return pieces(format, /\{\{|\}\}|\{(\w*)(?:![rs])?(?::[^{}]*)?\}/g, ([whole, key]) => {
    if (key === undefined) return whole.slice(1)
    if (key !== '') return { key: /^\d+$/.test(key) ? Number(key) : key }
    next += 1
    return { key: next - 1 }
  })
}

/** The pieces of a format of the operator `%`: texts, `%s`, `%d` and `%.2f`. */
export function percentPieces(format: string): readonly FormatPiece[] {
  let next = 0
  return pieces(format, /%(?:%|(?:\.(\d+))?[sdif])/g, ([whole, digits]) => {
    if (whole === '%%') return '%'
    next += 1
    return { key: next - 1, ...(digits !== undefined && { digits: Number(digits) }) }
  })
}

function pieces(
  format: string,
  pattern: RegExp,
  read: (match: RegExpExecArray) => string | { key: string | number; digits?: number },
): readonly FormatPiece[] {
  const made: FormatPiece[] = []
  let end = 0
  const addText = (start: number, text: string): void => {
    if (text !== '') made.push({ start, text })
  }
  for (const match of format.matchAll(pattern)) {
    addText(end, format.slice(end, match.index))
    const piece = read(match)
    if (typeof piece === 'string') addText(match.index, piece)
    else made.push(piece)
    end = match.index + match[0].length
  }
  addText(end, format.slice(end))
  return made
}
