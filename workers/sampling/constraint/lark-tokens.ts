/** A grammar outside the supported part of Lark. The message states the place and the reason. */
export class LarkError extends Error {}

/** A token of a grammar in Lark. */
export interface LarkToken {
  /** `head` is the name before a colon; `import` are the names in a line of `%import common`. */
  readonly kind: 'head' | 'import' | 'name' | 'text' | 'pattern' | 'number' | 'sign'
  readonly text: string
  readonly line: number
  /** For a text: upper and lower case are equal. */
  readonly ignoresCase?: boolean
}

const SPACE = /(?:\s|\/\/[^\n]*|#[^\n]*)+/y
const HEAD = /[?!]{0,2}(_?[A-Za-z]\w*)(?:\.-?\d+)?[ \t]*:/y
const DIRECTIVE = /%[^\n]*/y
const TOKENS: readonly (readonly [kind: LarkToken['kind'], form: RegExp])[] = [
  ['text', /"((?:[^"\\\n]|\\.)*)"(i?)/y],
  ['pattern', /\/((?:[^/\\\n]|\\.)+)\/([a-z]*)/y],
  ['name', /(_?[A-Za-z]\w*)/y],
  ['number', /(\d{1,6})/y],
  ['sign', /(->|\.\.|[|()[\]?*+~])/y],
]
const IMPORT = /^%import\s+common\.(\w+)(?:\s*->\s*(\w+))?\s*(?:(?:\/\/|#).*)?$/
const IMPORTS = /^%import\s+common\s*\(([\w\s,]+)\)\s*(?:(?:\/\/|#).*)?$/

/** The tokens of a grammar in Lark. Throws `LarkError`. */
export function readLark(text: string): readonly LarkToken[] {
  const tokens: LarkToken[] = []
  let at = 0
  let line = 1
  const take = (form: RegExp): RegExpExecArray | null => {
    form.lastIndex = at
    const match = form.exec(text)
    if (match !== null) at = form.lastIndex
    return match
  }
  while (at < text.length) {
    const space = take(SPACE)?.[0] ?? ''
    line += space.split('\n').length - 1
    if (at === text.length) break
    const isLineStart = at === space.length || space.includes('\n')
    const head = isLineStart ? take(HEAD) : null
    const directive = isLineStart && head === null ? take(DIRECTIVE) : null
    if (head !== null) tokens.push({ kind: 'head', text: head[1] as string, line })
    else if (directive !== null) tokens.push(...imports(directive[0], line))
    else tokens.push(token(take, line))
  }
  return tokens
}

function token(take: (form: RegExp) => RegExpExecArray | null, line: number): LarkToken {
  for (const [kind, form] of TOKENS) {
    const [, found, flags = ''] = take(form) ?? []
    if (found === undefined) continue
    if (kind === 'text')
      return { kind, text: unescaped(found, line), line, ignoresCase: flags === 'i' }
    if (flags !== '') throw new LarkError(`in line ${line}, the flags '${flags}' are not supported`)
    return { kind, text: found, line }
  }
  throw new LarkError(
    `in line ${line}, a character is in no place of Lark, or of its supported part`,
  )
}

function imports(directive: string, line: number): readonly LarkToken[] {
  const single = IMPORT.exec(directive)
  const names =
    single === null
      ? (IMPORTS.exec(directive)?.[1] ?? '').split(',').map((name) => name.trim())
      : [single[2] === undefined ? single[1] : `${single[1]}->${single[2]}`]
  if (names[0] === '') {
    const [name] = directive.split(/\s/)
    throw new LarkError(`in line ${line}, only '%import common.NAME' is supported, not '${name}'`)
  }
  return names.map((text = '') => ({ kind: 'import', text, line }))
}

const LETTERS: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', f: '\f' }
const ESCAPE = /\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))/g

function unescaped(text: string, line: number): string {
  return text.replace(ESCAPE, (written, two?: string, four?: string, letter = '') => {
    const hex = two ?? four
    if (hex !== undefined) return String.fromCharCode(Number.parseInt(hex, 16))
    if (LETTERS[letter] !== undefined) return LETTERS[letter]
    if (!/[A-Za-z0-9]/.test(letter)) return letter
    throw new LarkError(`in line ${line}, the escape '${written}' is not supported`)
  })
}
