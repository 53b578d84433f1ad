import type { Grammar } from './grammar.ts'
import { LarkError, type LarkToken, readLark } from './lark-tokens.ts'
import { type Alphabet, compileWholePattern } from './string-pattern.ts'

const DEPTH_MAX = 64
const REPEATS_MAX = 100_000
const PATTERN_CHARS_MAX = 2000
const START = 'start'
const OPERATORS: Readonly<Record<string, readonly [number, number]>> = {
  '?': [0, 1],
  '*': [0, Number.POSITIVE_INFINITY],
  '+': [1, Number.POSITIVE_INFINITY],
}

const INT = '[0-9]+'
const EXPONENT = `[eE][+-]?${INT}`
const DECIMAL = `${INT}\\.[0-9]*|\\.${INT}`
const FLOAT = `${INT}${EXPONENT}|(?:${DECIMAL})(?:${EXPONENT})?`
const NUMBER = `${FLOAT}|${INT}`

/** The terminals of Lark's library `common`, with ASCII letters. */
const COMMON_TERMINALS: Readonly<Record<string, string>> = {
  DIGIT: '[0-9]',
  HEXDIGIT: '[0-9A-Fa-f]',
  INT,
  DECIMAL,
  FLOAT,
  NUMBER,
  SIGNED_INT: `[+-]?${INT}`,
  SIGNED_FLOAT: `[+-]?(?:${FLOAT})`,
  SIGNED_NUMBER: `[+-]?(?:${NUMBER})`,
  ESCAPED_STRING: '"(?:[^"\\\\\\n]|\\\\.)*"',
  LCASE_LETTER: '[a-z]',
  UCASE_LETTER: '[A-Z]',
  LETTER: '[A-Za-z]',
  WORD: '[A-Za-z]+',
  CNAME: '[_A-Za-z][_A-Za-z0-9]*',
  WS_INLINE: '[ \\t]+',
  WS: '[ \\t\\f\\r\\n]+',
  CR: '\\r',
  LF: '\\n',
  NEWLINE: '(?:\\r?\\n)+',
}

/**
 * Compiles a grammar in Lark: rules and terminals, of which `start` is the first, with texts,
 * regular expressions, ranges, groups, `|`, `?`, `*`, `+`, `~`, aliases, and imports from `common`.
 * Terminals are ordinary rules: there is no lexer, and so neither priorities nor `%ignore`. Throws
 * `LarkError`, and `UnsupportedPatternError` for an expression.
 */
export function compileLark(alphabet: Alphabet, text: string): Grammar {
  alphabet.builder.budget.chargeText(text.length)
  return new LarkParser(alphabet, readLark(text)).parse()
}

/**
 * Whether a grammar is written in Lark: some rule begins with `name:`, and none with `name ::=`.
 */
export function isLark(text: string): boolean {
  return (
    /^[ \t]*[?!]{0,2}\w+(?:\.-?\d+)?[ \t]*:(?!:=)/m.test(text) && !/^[ \t]*[\w-]+\s*::=/m.test(text)
  )
}

class LarkParser {
  readonly #alphabet: Alphabet
  readonly #tokens: readonly LarkToken[]
  readonly #rules = new Map<string, Grammar>()
  readonly #named = new Set<string>([START])
  #position = 0
  #depth = 0

  constructor(alphabet: Alphabet, tokens: readonly LarkToken[]) {
    this.#alphabet = alphabet
    this.#tokens = tokens
  }

  parse(): Grammar {
    for (let token = this.#peek(); token !== undefined; token = this.#peek()) {
      this.#position += 1
      if (token.kind === 'head') this.#define(token.text, this.#alternatives())
      else if (token.kind === 'import') this.#import(token.text)
      else this.#refuse(token, 'a rule such as `name: …`')
    }
    const missing = [...this.#named].find((name) => !this.#rules.has(name))
    if (missing !== undefined) throw new LarkError(`there is no rule '${missing}'`)
    return this.#rules.get(START) as Grammar
  }

  #define(name: string, grammar: Grammar): void {
    if (this.#rules.has(name)) throw new LarkError(`the rule '${name}' is defined twice`)
    this.#rules.set(name, grammar)
  }

  /** `NAME` or `NAME -> OTHER`, for a terminal of Lark's library. */
  #import(text: string): void {
    const [name = '', alias = name] = text.split('->')
    const pattern = Object.hasOwn(COMMON_TERMINALS, name) ? COMMON_TERMINALS[name] : undefined
    if (pattern === undefined) throw new LarkError(`'common.${name}' is not supported`)
    this.#define(alias, compileWholePattern(this.#alphabet, pattern))
  }

  #alternatives(): Grammar {
    this.#depth += 1
    if (this.#depth > DEPTH_MAX) throw new LarkError('its groups are nested too deeply')
    // A rule may begin with a bar.
    this.#take('|')
    const options = [this.#sequence()]
    while (this.#take('|')) options.push(this.#sequence())
    this.#depth -= 1
    return this.#alphabet.builder.choiceOf(options)
  }

  #sequence(): Grammar {
    const parts: Grammar[] = []
    for (let token = this.#peek(); token !== undefined; token = this.#peek()) {
      const isEnd = token.kind === 'head' || token.kind === 'import'
      if (isEnd || (token.kind === 'sign' && '|)]'.includes(token.text))) break
      if (this.#take('->')) this.#next('name', 'the name of an alias')
      else parts.push(this.#repeated(this.#element()))
    }
    return this.#alphabet.builder.sequenceOf(parts)
  }

  #element(): Grammar {
    const { builder } = this.#alphabet
    const token = this.#peek() as LarkToken
    this.#position += 1
    switch (token.kind) {
      case 'name':
        this.#named.add(token.text)
        return builder.reference(() => this.#rules.get(token.text) as Grammar)
      case 'pattern':
        if (token.text.length > PATTERN_CHARS_MAX) {
          throw new LarkError(`a regular expression has more than ${PATTERN_CHARS_MAX} characters`)
        }
        return compileWholePattern(this.#alphabet, token.text)
      case 'text':
        return this.#take('..') ? this.#range(token) : this.#text(token)
      default:
        if (token.text === '(') return this.#group(')')
        if (token.text === '[') return builder.optional(this.#group(']'))
        return this.#refuse(token, 'a text, a regular expression, a group or a name')
    }
  }

  #group(closing: string): Grammar {
    const group = this.#alternatives()
    return this.#take(closing) ? group : this.#refuse(this.#peek(), `'${closing}'`)
  }

  #text({ text, ignoresCase }: LarkToken): Grammar {
    return this.#alphabet.builder.sequenceOf(
      [...text].map((character) => {
        const cases = [character.toLowerCase(), character.toUpperCase()]
        const written = ignoresCase ? cases.filter((one) => [...one].length === 1) : [character]
        const points = written.map(pointOf)
        return this.#alphabet.characterOf(points.map((point) => [point, point] as const))
      }),
    )
  }

  #range(low: LarkToken): Grammar {
    const high = this.#next('text', 'the end of a range')
    const [from, to] = [low, high].map(({ text }) => ([...text].length === 1 ? pointOf(text) : NaN))
    if (from !== undefined && to !== undefined && from <= to) {
      return this.#alphabet.characterOf([[from, to]])
    }
    return this.#refuse(low, 'a range from one character to a later one')
  }

  #repeated(element: Grammar): Grammar {
    const { builder } = this.#alphabet
    let repeated = element
    for (let token = this.#peek(); token?.kind === 'sign'; token = this.#peek()) {
      const bounds = token.text === '~' ? this.#bounds() : OPERATORS[token.text]
      if (bounds === undefined) break
      if (token.text !== '~') this.#position += 1
      repeated = builder.repeat(repeated, bounds[0], bounds[1])
    }
    return repeated
  }

  /** `~3` or `~2..5`. */
  #bounds(): readonly [number, number] {
    this.#position += 1
    const count = () => Number(this.#next('number', 'a number of repetitions').text)
    const min = count()
    const max = this.#take('..') ? count() : min
    if (max < min || max > REPEATS_MAX) throw new LarkError(`the repetition ~${min}..${max}`)
    return [min, max]
  }

  #peek(): LarkToken | undefined {
    return this.#tokens[this.#position]
  }

  #take(sign: string): boolean {
    const token = this.#peek()
    if (token?.kind !== 'sign' || token.text !== sign) return false
    this.#position += 1
    return true
  }

  #next(kind: LarkToken['kind'], expected: string): LarkToken {
    const token = this.#peek()
    if (token?.kind !== kind) return this.#refuse(token, expected)
    this.#position += 1
    return token
  }

  #refuse(token: LarkToken | undefined, expected: string): never {
    const where = token === undefined ? 'at its end' : `in line ${token.line}`
    throw new LarkError(`${where}, ${expected} is expected (Lark)`)
  }
}

function pointOf(character: string): number {
  return character.codePointAt(0) as number
}
