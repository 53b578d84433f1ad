import type { CodePointRanges } from './code-points.ts'
import { invertRanges, normalizeRanges, oneCharacter } from './code-points.ts'
import type { Grammar, GrammarBuilder } from './grammar.ts'
import type { JsonGrammar } from './json-grammar.ts'

// The nesting depth of groups, each of which takes some frames of the stack.
const DEPTH_MAX = 64

const DIGITS: CodePointRanges = [[0x30, 0x39]]
const WORD: CodePointRanges = [...DIGITS, [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]]
const SPACES: CodePointRanges = [
  ...([
    [0x09, 0x0d],
    [0x20, 0x20],
    [0xa0, 0xa0],
    [0x1680, 0x1680],
    [0x2000, 0x200a],
  ] as const),
  ...([
    [0x2028, 0x2029],
    [0x202f, 0x202f],
    [0x205f, 0x205f],
    [0x3000, 0x3000],
  ] as const),
  [0xfeff, 0xfeff],
]
const LINE_ENDS: CodePointRanges = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
]
const CLASSES: Readonly<Record<string, CodePointRanges>> = {
  d: DIGITS,
  w: WORD,
  s: SPACES,
  D: invertRanges(DIGITS),
  W: invertRanges(WORD),
  S: invertRanges(SPACES),
}
const CONTROL_LETTERS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, 0: 0 }

/** A regular expression with syntax that is not supported. */
export class UnsupportedPatternError extends Error {}

/**
 * The inside of a JSON string that matches an ECMAScript pattern: literals, classes, groups,
 * alternatives, quantifiers and anchors at the ends. A pattern without anchors may match anywhere.
 */
export function compilePattern(json: JsonGrammar, pattern: string): Grammar {
  return new PatternParser(json, pattern).parse({ around: json.character })
}

/** A text that matches an ECMAScript pattern from beginning to end. */
export function compileWholePattern(alphabet: Alphabet, pattern: string): Grammar {
  return new PatternParser(alphabet, pattern).parse()
}

/** The spelling of characters: inside a JSON string, or literal. */
export type Alphabet = Pick<JsonGrammar, 'builder' | 'characterOf'>

/** Literal characters. */
export function plainAlphabet(builder: GrammarBuilder): Alphabet {
  return { builder, characterOf: (ranges) => oneCharacter(builder, normalizeRanges(ranges)) }
}

class PatternParser {
  readonly #alphabet: Alphabet
  readonly #characters: readonly string[]
  #position = 0
  #depth = 0

  constructor(alphabet: Alphabet, pattern: string) {
    this.#alphabet = alphabet
    this.#characters = [...pattern]
  }

  /** `around` is the grammar of a character around a pattern without anchors; none if absent. */
  parse({ around: other }: { readonly around?: Grammar } = {}): Grammar {
    const { builder } = this.#alphabet
    const branches: Grammar[] = []
    do {
      const isStart = this.#take('^') || other === undefined
      const body = this.#sequence()
      const isEnd = this.#take('$') || other === undefined
      const around = () => builder.repeat(other as Grammar, 0)
      branches.push(
        builder.sequence(...(isStart ? [] : [around()]), body, ...(isEnd ? [] : [around()])),
      )
    } while (this.#take('|'))
    if (this.#peek() !== undefined) this.#refuse(`'${this.#peek()}' in this place`)
    return builder.choiceOf(branches)
  }

  #sequence(): Grammar {
    const parts: Grammar[] = []
    for (let next = this.#peek(); next !== undefined; next = this.#peek()) {
      if (next === '|' || next === ')' || next === '$') break
      parts.push(this.#quantified(this.#atom()))
    }
    return this.#alphabet.builder.sequenceOf(parts)
  }

  #atom(): Grammar {
    const next = this.#next()
    if (next === '(') return this.#group()
    if (next === '[') return this.#alphabet.characterOf(this.#set())
    if (next === '.') return this.#alphabet.characterOf(invertRanges(LINE_ENDS))
    if (next === '\\') return this.#alphabet.characterOf(this.#escape())
    if ('^*+?{'.includes(next)) this.#refuse(`'${next}' in this place`)
    return this.#alphabet.characterOf([single(next)])
  }

  #group(): Grammar {
    if (this.#take('?')) {
      const isNamed =
        this.#peek() === '<' && !'=!'.includes(this.#characters[this.#position + 1] ?? '=')
      if (isNamed) while (this.#next() !== '>');
      else if (!this.#take(':')) this.#refuse('look-around')
    }
    this.#depth += 1
    if (this.#depth > DEPTH_MAX) this.#refuse(`a group within ${DEPTH_MAX} others`)
    const options = [this.#sequence()]
    while (this.#take('|')) options.push(this.#sequence())
    this.#depth -= 1
    if (!this.#take(')')) this.#refuse('an anchor or an open parenthesis inside a group')
    return this.#alphabet.builder.choiceOf(options)
  }

  #quantified(atom: Grammar): Grammar {
    const { builder } = this.#alphabet
    const bounds = this.#quantifier()
    if (bounds === undefined) return atom
    this.#take('?') // lazy and greedy quantifiers match the same strings
    return builder.repeat(atom, bounds[0], bounds[1])
  }

  #quantifier(): readonly [number, number] | undefined {
    if (this.#take('*')) return [0, Number.POSITIVE_INFINITY]
    if (this.#take('+')) return [1, Number.POSITIVE_INFINITY]
    if (this.#take('?')) return [0, 1]
    if (!this.#take('{')) return undefined
    let text = ''
    while (this.#peek() !== undefined && this.#peek() !== '}') text += this.#next()
    const match = /^(\d+)(,(\d*))?$/.exec(text)
    if (match === null || !this.#take('}')) return this.#refuse(`the quantifier {${text}}`)
    const min = Number(match[1])
    const max = match[2] === undefined ? min : Number(match[3] || Number.POSITIVE_INFINITY)
    if (max < min) this.#refuse(`the quantifier {${text}}`)
    return [min, max]
  }

  #set(): CodePointRanges {
    const isNegated = this.#take('^')
    const ranges: (readonly [number, number])[] = []
    while (!this.#take(']')) {
      const from = this.#setMember()
      const isRange = this.#peek() === '-' && this.#characters[this.#position + 1] !== ']'
      if (!isRange) {
        ranges.push(...from)
        continue
      }
      this.#next()
      const to = this.#setMember()
      const [low, high] = [characterOf(from), characterOf(to)]
      // Beside a class such as \d the hyphen is literal (ECMA-262, B.1.2.8.1).
      if (low === undefined || high === undefined) ranges.push(...from, single('-'), ...to)
      else if (high < low) this.#refuse('a range whose ends are reversed')
      else ranges.push([low, high])
    }
    const found = isNegated ? invertRanges(ranges) : ranges
    return found.length > 0 ? found : this.#refuse('an empty set')
  }

  #setMember(): CodePointRanges {
    const next = this.#next()
    if (next !== '\\') return [single(next)]
    return this.#take('b') ? [[8, 8]] : this.#escape()
  }

  #escape(): CodePointRanges {
    const letter = this.#next()
    const known = CLASSES[letter]
    if (known !== undefined) return known
    const control = CONTROL_LETTERS[letter]
    if (control !== undefined) return [[control, control]]
    if (letter === 'x') return this.#hex(2)
    if (letter === 'u') return this.#take('{') ? this.#hexUntilBrace() : this.#hex(4)
    if (/[a-zA-Z0-9]/.test(letter)) this.#refuse(`\\${letter}`)
    return [single(letter)]
  }

  #hex(digits: number): CodePointRanges {
    const text = Array.from({ length: digits }, () => this.#next()).join('')
    const code = Number.parseInt(text, 16)
    return /^[0-9a-fA-F]+$/.test(text) ? [[code, code]] : this.#refuse(`\\${text}`)
  }

  #hexUntilBrace(): CodePointRanges {
    let text = ''
    while (!this.#take('}')) text += this.#next()
    const code = Number.parseInt(text, 16)
    return code <= 0x10ffff ? [[code, code]] : this.#refuse(`\\u{${text}}`)
  }

  #peek(): string | undefined {
    return this.#characters[this.#position]
  }

  #next(): string {
    const next = this.#peek()
    if (next === undefined) return this.#refuse('an unexpected end')
    this.#position += 1
    return next
  }

  #take(expected: string): boolean {
    if (this.#peek() !== expected) return false
    this.#position += 1
    return true
  }

  #refuse(what: string): never {
    throw new UnsupportedPatternError(`${what} is not supported`)
  }
}

/** The code point of a member that is one character. */
function characterOf([range, ...more]: CodePointRanges): number | undefined {
  if (range === undefined || more.length > 0) return undefined
  return range[0] === range[1] ? range[0] : undefined
}

function single(character: string): readonly [number, number] {
  const point = character.codePointAt(0) as number
  return [point, point]
}
