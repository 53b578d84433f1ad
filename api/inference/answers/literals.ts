/** A value and the position after it; undefined if there is none. */
interface Read {
  readonly value: unknown
  readonly end: number
}

/** The differences between the literals of the syntaxes. */
interface LiteralSyntax {
  /** Strings in quotes with escapes. */
  readonly quotes: string
  /** A text around strings without escapes. */
  readonly delimiters: readonly string[]
  /** Keys of objects without quotes. */
  readonly hasPlainKeys: boolean
}

const WORDS: Readonly<Record<string, unknown>> = {
  True: true,
  False: false,
  None: null,
  true: true,
  false: false,
  null: null,
}
const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  t: '\t',
  r: '\r',
  b: '\b',
  f: '\f',
  a: '\x07',
  v: '\v',
  '0': '\0',
}
const NUMBER = /[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?/y
const DEPTH_MAX = 64

/** Reads a whole literal; undefined for other text. */
export function readLiteral(text: string, syntax: LiteralSyntax): { value: unknown } | undefined {
  const found = readValue(text, skipSpace(text, 0), syntax, 0)
  return found !== undefined && skipSpace(text, found.end) === text.length
    ? { value: found.value }
    : undefined
}

function readValue(
  text: string,
  at: number,
  syntax: LiteralSyntax,
  depth: number,
): Read | undefined {
  const first = text[at]
  if (first === undefined || depth > DEPTH_MAX) return undefined
  const delimiter = syntax.delimiters.find((known) => text.startsWith(known, at))
  if (delimiter !== undefined) return readDelimited(text, at, delimiter)
  if (syntax.quotes.includes(first)) return readQuoted(text, at)
  if (first === '[' || (first === '(' && syntax.quotes.includes("'"))) {
    return readList(text, at, syntax, depth)
  }
  if (first === '{') return readObject(text, at, syntax, depth)
  NUMBER.lastIndex = at
  const number = NUMBER.exec(text)?.[0]
  if (number !== undefined) {
    return { value: Number(number.replaceAll('_', '')), end: at + number.length }
  }
  const word = /[A-Za-z]+/y
  word.lastIndex = at
  const name = word.exec(text)?.[0] ?? ''
  return Object.hasOwn(WORDS, name) ? { value: WORDS[name], end: at + name.length } : undefined
}

function readDelimited(text: string, at: number, delimiter: string): Read | undefined {
  const start = at + delimiter.length
  const end = text.indexOf(delimiter, start)
  return end < 0 ? undefined : { value: text.slice(start, end), end: end + delimiter.length }
}

function readQuoted(text: string, at: number): Read | undefined {
  const quote = text[at] as string
  let value = ''
  for (let next = at + 1; next < text.length; next += 1) {
    const character = text[next] as string
    if (character === quote) return { value, end: next + 1 }
    if (character !== '\\') {
      value += character
      continue
    }
    next += 1
    const escaped = text[next] ?? ''
    const hex = /^(?:x([\da-f]{2})|u([\da-f]{4}))/i.exec(text.slice(next, next + 5))
    if (hex === null) value += ESCAPES[escaped] ?? (escaped === '\n' ? '' : escaped)
    else {
      value += String.fromCharCode(Number.parseInt((hex[1] ?? hex[2]) as string, 16))
      next += hex[0].length - 1
    }
  }
  return undefined
}

function readList(
  text: string,
  at: number,
  syntax: LiteralSyntax,
  depth: number,
): Read | undefined {
  const closing = text[at] === '[' ? ']' : ')'
  const value: unknown[] = []
  let next = skipSpace(text, at + 1)
  while (text[next] !== closing) {
    const found = readValue(text, next, syntax, depth + 1)
    if (found === undefined) return undefined
    value.push(found.value)
    next = skipSpace(text, found.end)
    if (text[next] === ',') next = skipSpace(text, next + 1)
    else if (text[next] !== closing) return undefined
  }
  return { value, end: next + 1 }
}

function readObject(
  text: string,
  at: number,
  syntax: LiteralSyntax,
  depth: number,
): Read | undefined {
  const entries: [string, unknown][] = []
  let next = skipSpace(text, at + 1)
  while (text[next] !== '}') {
    const key = readKey(text, next, syntax, depth)
    if (key === undefined) return undefined
    next = skipSpace(text, key.end)
    if (text[next] !== ':') return undefined
    const found = readValue(text, skipSpace(text, next + 1), syntax, depth + 1)
    if (found === undefined) return undefined
    entries.push([String(key.value), found.value])
    next = skipSpace(text, found.end)
    if (text[next] === ',') next = skipSpace(text, next + 1)
    else if (text[next] !== '}') return undefined
  }
  return { value: Object.fromEntries(entries), end: next + 1 }
}

function readKey(text: string, at: number, syntax: LiteralSyntax, depth: number): Read | undefined {
  const plain = /[\w.-]+/y
  plain.lastIndex = at
  const name = syntax.hasPlainKeys ? plain.exec(text)?.[0] : undefined
  if (name !== undefined) return { value: name, end: at + name.length }
  return readValue(text, at, syntax, depth + 1)
}

function skipSpace(text: string, from: number): number {
  let at = from
  while (/\s/.test(text[at] ?? '')) at += 1
  return at
}
