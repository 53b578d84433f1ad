import type { CodePointRanges } from './code-points.ts'
import { invertRanges, normalizeRanges, oneCharacter, subtractRanges } from './code-points.ts'
import type { Grammar, GrammarBuilder } from './grammar.ts'

const INTEGER_DIGITS_MAX = 15 // the precision of a double, and a bound of endless digits
const FRACTION_DIGITS_MAX = 15
const CONTROLS: CodePointRanges = [[0, 0x1f]]
const QUOTE_AND_BACKSLASH: CodePointRanges = [
  [0x22, 0x22],
  [0x5c, 0x5c],
]
const SHORT_ESCAPES: ReadonlyMap<number, string> = new Map([
  [0x22, '\\"'],
  [0x5c, '\\\\'],
  [0x08, '\\b'],
  [0x09, '\\t'],
  [0x0a, '\\n'],
  [0x0c, '\\f'],
  [0x0d, '\\r'],
])

/**
 * JSON on one line, with at most one space after a colon or comma. A model cannot get lost in white
 * space or endless digits, and every text is valid JSON.
 */
export class JsonGrammar {
  readonly builder: GrammarBuilder
  /** One character of a string, escaped if necessary. */
  readonly character: Grammar
  readonly string: Grammar
  readonly integer: Grammar
  readonly number: Grammar
  readonly boolean: Grammar
  readonly null: Grammar
  readonly array: Grammar
  readonly object: Grammar
  /** Any JSON value. */
  readonly value: Grammar
  readonly colon: Grammar
  readonly comma: Grammar

  constructor(builder: GrammarBuilder) {
    this.builder = builder
    const quote = builder.literal('"')
    const space = builder.optional(builder.literal(' '))
    this.colon = builder.sequence(builder.literal(':'), space)
    this.comma = builder.sequence(builder.literal(','), space)
    this.character = builder.choice(this.plainCharacter([]), this.#escape())
    this.string = builder.sequence(quote, builder.repeat(this.character, 0), quote)
    this.integer = this.#integer()
    this.number = this.#number()
    this.boolean = builder.choice(builder.literal('true'), builder.literal('false'))
    this.null = builder.literal('null')
    this.value = builder.reference(() => anyValue)
    this.array = this.arrayOf(this.value, 0, Number.POSITIVE_INFINITY)
    this.object = this.mapOf(this.string, this.value, 0, Number.POSITIVE_INFINITY)
    const anyValue = builder.choice(
      this.object,
      this.array,
      this.string,
      this.number,
      this.boolean,
      this.null,
    )
  }

  literal(value: unknown): Grammar {
    return this.builder.literal(JSON.stringify(value))
  }

  /** A character that needs no escape in a string, except the excluded ones. */
  plainCharacter(excluded: CodePointRanges): Grammar {
    return oneCharacter(
      this.builder,
      invertRanges([...CONTROLS, ...QUOTE_AND_BACKSLASH, ...excluded]),
    )
  }

  /** A character of the ranges in its spelling inside a string. */
  characterOf(ranges: CodePointRanges): Grammar {
    this.builder.budget.charge(ranges.length)
    const wanted = normalizeRanges(ranges)
    const plain = subtractRanges(wanted, [...CONTROLS, ...QUOTE_AND_BACKSLASH])
    const isWanted = (point: number) => wanted.some(([low, high]) => point >= low && point <= high)
    const escaped = [...Array(0x20).keys(), 0x22, 0x5c].filter(isWanted).map((point) => {
      const short = SHORT_ESCAPES.get(point)
      return this.builder.literal(short ?? `\\u${point.toString(16).padStart(4, '0')}`)
    })
    const characters = plain.length > 0 ? [oneCharacter(this.builder, plain)] : []
    return this.builder.choiceOf([...characters, ...escaped])
  }

  arrayOf(item: Grammar, min: number, max: number): Grammar {
    return this.#bracketed('[', this.#listed(item, min, max), ']')
  }

  mapOf(key: Grammar, value: Grammar, min: number, max: number): Grammar {
    const pair = this.builder.sequence(key, this.colon, value)
    return this.#bracketed('{', this.#listed(pair, min, max), '}')
  }

  #bracketed(opening: string, content: Grammar, closing: string): Grammar {
    const { builder } = this
    return builder.sequence(builder.literal(opening), content, builder.literal(closing))
  }

  #listed(item: Grammar, min: number, max: number): Grammar {
    const { builder } = this
    if (max === 0) return builder.literal('')
    const more = builder.repeat(builder.sequence(this.comma, item), Math.max(min - 1, 0), max - 1)
    const list = builder.sequence(item, more)
    return min === 0 ? builder.optional(list) : list
  }

  #escape(): Grammar {
    const { builder } = this
    const hex = builder.byte([0x30, 0x39], [0x41, 0x46], [0x61, 0x66])
    const hexButD = builder.byte(
      [0x30, 0x39],
      [0x41, 0x43],
      [0x45, 0x46],
      [0x61, 0x63],
      [0x65, 0x66],
    )
    // Half a surrogate pair is not a character, so \ud800 to \udfff are excluded.
    const unit = builder.choice(
      builder.sequence(hexButD, hex, hex, hex),
      builder.sequence(
        builder.byte([0x44, 0x44], [0x64, 0x64]),
        builder.byte([0x30, 0x37]),
        hex,
        hex,
      ),
    )
    const letters = [...'"\\/bfnrt'].map((letter) => letter.charCodeAt(0))
    return builder.sequence(
      builder.literal('\\'),
      builder.choice(
        builder.byte(...letters.map((letter) => [letter, letter] as const)),
        builder.sequence(builder.literal('u'), unit),
      ),
    )
  }

  #integer(): Grammar {
    const { builder } = this
    return builder.sequence(builder.optional(builder.literal('-')), this.#digits())
  }

  #digits(): Grammar {
    const { builder } = this
    const digit = builder.byte([0x30, 0x39])
    return builder.choice(
      builder.literal('0'),
      builder.sequence(
        builder.byte([0x31, 0x39]),
        builder.repeat(digit, 0, INTEGER_DIGITS_MAX - 1),
      ),
    )
  }

  #number(): Grammar {
    const { builder } = this
    const digit = builder.byte([0x30, 0x39])
    const fraction = builder.sequence(
      builder.literal('.'),
      builder.repeat(digit, 1, FRACTION_DIGITS_MAX),
    )
    const exponent = builder.sequence(
      builder.byte([0x45, 0x45], [0x65, 0x65]),
      builder.optional(builder.byte([0x2b, 0x2b], [0x2d, 0x2d])),
      builder.repeat(digit, 1, 2),
    )
    return builder.sequence(this.integer, builder.optional(fraction), builder.optional(exponent))
  }
}
