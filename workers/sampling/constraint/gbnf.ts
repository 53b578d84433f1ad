import type { CodePointRanges } from './code-points.ts'
import { invertRanges, normalizeRanges, oneCharacter } from './code-points.ts'
import type { Grammar, GrammarBuilder } from './grammar.ts'

const DEPTH_MAX = 64
const ROOT = 'root'
const NAME = /[A-Za-z0-9_-]/
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t' }
const HEX_DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 }
const CODE_POINT_MAX = 0x10ffff

/** A grammar that is not valid GBNF. The message states the place and the expected syntax. */
export class GbnfError extends Error {}

/**
 * Compiles a grammar in the notation of llama.cpp and xgrammar: rules `name ::= …` of which `root`
 * is the first, with quoted texts, character sets, `.`, groups, `|`, `*`, `+`, `?`, `{m,n}` and
 * comments after `#`. Throws `GbnfError`.
 */
export function parseGbnf(builder: GrammarBuilder, text: string): Grammar {
  return new GbnfParser(builder, text).parse()
}

class GbnfParser {
  readonly #builder: GrammarBuilder
  readonly #characters: readonly string[]
  readonly #rules = new Map<string, Grammar>()
  readonly #named = new Set<string>()
  #position = 0
  #depth = 0

  constructor(builder: GrammarBuilder, text: string) {
    this.#builder = builder
    this.#characters = [...text]
  }

  parse(): Grammar {
    this.#skipSpace()
    while (this.#peek() !== undefined) this.#rule()
    const missing = [ROOT, ...this.#named].find((name) => !this.#rules.has(name))
    if (missing !== undefined) {
      throw new GbnfError(`there is no rule '${missing}'; rules are written as 'name ::= …' (GBNF)`)
    }
    return this.#rules.get(ROOT) as Grammar
  }

  #rule(): void {
    const name = this.#name()
    if (!this.#takeDefinition()) this.#refuse("'::=' after the name of a rule")
    if (this.#rules.has(name)) throw new GbnfError(`the rule '${name}' is defined twice`)
    this.#rules.set(name, this.#alternatives())
    const next = this.#peek()
    if (next !== undefined && !NAME.test(next)) this.#refuse('the name of a rule')
  }

  #alternatives(): Grammar {
    this.#depth += 1
    if (this.#depth > DEPTH_MAX) throw new GbnfError('its groups are nested too deeply')
    const options = [this.#sequence()]
    while (this.#take('|')) options.push(this.#sequence())
    this.#depth -= 1
    return this.#builder.choiceOf(options)
  }

  #sequence(): Grammar {
    const parts: Grammar[] = []
    this.#skipSpace()
    for (let next = this.#peek(); next !== undefined; next = this.#peek()) {
      if (next === '|' || next === ')' || this.#isRuleAhead()) break
      parts.push(this.#repeated(this.#element()))
    }
    return this.#builder.sequenceOf(parts)
  }

  #element(): Grammar {
    const next = this.#peek() as string
    if (NAME.test(next)) return this.#reference()
    this.#position += 1
    switch (next) {
      case '"':
        return this.#literal()
      case '[':
        return this.#set()
      case '.':
        this.#skipSpace()
        return oneCharacter(this.#builder, [[0, CODE_POINT_MAX]])
      case '(': {
        const group = this.#alternatives()
        return this.#take(')') ? group : this.#refuse("')'")
      }
      default:
        this.#position -= 1
        return this.#refuse('a text in double quotes, a set, a group or the name of a rule')
    }
  }

  #reference(): Grammar {
    const name = this.#name()
    this.#named.add(name)
    return this.#builder.reference(() => this.#rules.get(name) as Grammar)
  }

  #literal(): Grammar {
    let text = ''
    while (!this.#is('"')) text += this.#character()
    this.#position += 1
    this.#skipSpace()
    return this.#builder.literal(text)
  }

  #set(): Grammar {
    const isNegated = this.#is('^')
    if (isNegated) this.#position += 1
    const ranges: (readonly [number, number])[] = []
    while (!this.#is(']')) {
      const low = pointOf(this.#character())
      const isRange = this.#is('-') && this.#characters[this.#position + 1] !== ']'
      if (isRange) this.#position += 1
      const high = isRange ? pointOf(this.#character()) : low
      if (high < low) throw new GbnfError('the ends of a range of characters are reversed')
      ranges.push([low, high])
    }
    this.#position += 1
    this.#skipSpace()
    this.#builder.budget.charge(ranges.length)
    const members: CodePointRanges = isNegated ? invertRanges(ranges) : normalizeRanges(ranges)
    if (members.length === 0) throw new GbnfError('a set of characters is empty')
    return oneCharacter(this.#builder, members)
  }

  #repeated(element: Grammar): Grammar {
    let repeated = element
    for (let bounds = this.#bounds(); bounds !== undefined; bounds = this.#bounds()) {
      repeated = this.#builder.repeat(repeated, bounds[0], bounds[1])
    }
    return repeated
  }

  #bounds(): readonly [number, number] | undefined {
    if (this.#take('*')) return [0, Number.POSITIVE_INFINITY]
    if (this.#take('+')) return [1, Number.POSITIVE_INFINITY]
    if (this.#take('?')) return [0, 1]
    if (!this.#take('{')) return undefined
    let text = ''
    while (this.#peek() !== undefined && !this.#is('}')) {
      text += this.#peek()
      this.#position += 1
    }
    const match = /^\s*(\d{1,6})\s*(,\s*(\d{0,6})\s*)?$/.exec(text)
    if (match === null || !this.#take('}')) return this.#refuse('a repetition such as {2,3}')
    const min = Number(match[1])
    const max = match[2] === undefined ? min : Number(match[3] || Number.POSITIVE_INFINITY)
    if (max < min) throw new GbnfError(`the repetition {${text}} ends before it begins`)
    return [min, max]
  }

  /** One character of a text or set, which may be escaped. */
  #character(): string {
    const next = this.#next()
    if (next !== '\\') return next
    const letter = this.#next()
    const digits = HEX_DIGITS[letter]
    if (digits === undefined) return ESCAPES[letter] ?? letter
    const hex = Array.from({ length: digits }, () => this.#next()).join('')
    const point = /^[0-9a-fA-F]+$/.test(hex) ? Number.parseInt(hex, 16) : Number.NaN
    if (point <= CODE_POINT_MAX) return String.fromCodePoint(point)
    throw new GbnfError(`'\\${letter}${hex}' is not a character`)
  }

  #name(): string {
    let name = ''
    while (NAME.test(this.#peek() ?? '')) name += this.#next()
    if (name === '') this.#refuse('the name of a rule')
    this.#skipSpace()
    return name
  }

  #isRuleAhead(): boolean {
    const start = this.#position
    while (NAME.test(this.#peek() ?? '')) this.#position += 1
    const hasName = this.#position > start
    this.#skipSpace()
    const isRule = hasName && this.#takeDefinition()
    this.#position = start
    return isRule
  }

  #takeDefinition(): boolean {
    const start = this.#position
    if (this.#take(':') && this.#take(':') && this.#take('=')) return true
    this.#position = start
    return false
  }

  #skipSpace(): void {
    for (let next = this.#peek(); next !== undefined; next = this.#peek()) {
      if (next === '#') {
        while (this.#peek() !== undefined && !this.#is('\n')) this.#position += 1
      } else if (/\s/.test(next)) this.#position += 1
      else return
    }
  }

  #peek(): string | undefined {
    return this.#characters[this.#position]
  }

  #is(expected: string): boolean {
    return this.#peek() === expected
  }

  #next(): string {
    const next = this.#peek()
    if (next === undefined) return this.#refuse('more, and not the end')
    this.#position += 1
    return next
  }

  #take(expected: string): boolean {
    if (!this.#is(expected)) return false
    this.#position += 1
    this.#skipSpace()
    return true
  }

  #refuse(expected: string): never {
    const line = this.#characters.slice(0, this.#position).filter((next) => next === '\n').length
    throw new GbnfError(`line ${line + 1}: expected ${expected} (GBNF)`)
  }
}

function pointOf(character: string): number {
  return character.codePointAt(0) as number
}
