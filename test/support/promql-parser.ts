/** The part of PromQL that the dashboard and the alerts are written in. */
export type Expression =
  | { readonly kind: 'number'; readonly value: number }
  | {
      readonly kind: 'selector'
      readonly name: string
      readonly matchers: readonly Matcher[]
      /** The range of a range selector. */
      readonly rangeMs?: number
    }
  | { readonly kind: 'call'; readonly name: string; readonly args: readonly Expression[] }
  | {
      readonly kind: 'aggregate'
      readonly operator: string
      readonly by: readonly string[]
      readonly of: Expression
    }
  | {
      readonly kind: 'binary'
      readonly operator: string
      readonly left: Expression
      readonly right: Expression
    }

/** One condition on a label. */
export interface Matcher {
  readonly label: string
  readonly operator: '=' | '!=' | '=~' | '!~'
  readonly value: string
}

const TOKEN =
  /\s*(?:(\d+(?:\.\d+)?(?![\w.]))|("(?:[^"\\]|\\.)*")|(\d+(?:ms|[smhd]))|([a-zA-Z_:][\w:]*)|(=~|!~|!=|==|>=|<=|[-+*/()[\]{},<>=]))/y
const AGGREGATES = ['sum', 'max', 'min', 'avg', 'count']
const FUNCTIONS = ['rate', 'increase', 'histogram_quantile', 'absent']
const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
}
/** Binary operators, loosest first. */
const LEVELS = [['and'], ['==', '!=', '>', '<', '>=', '<='], ['+', '-'], ['*', '/']]

/** Parses a query. Throws on anything outside the part that is known here. */
export function parsePromql(text: string): Expression {
  const parser = new Parser(tokensOf(text), text)
  const expression = parser.binary(0)
  parser.end()
  return expression
}

function tokensOf(text: string): string[] {
  const tokens: string[] = []
  let at = 0
  while (text.slice(at).trim() !== '') {
    TOKEN.lastIndex = at
    const match = TOKEN.exec(text)
    if (match === null) throw new Error(`not understood at ${at}: ${text}`)
    tokens.push(match[0].trim())
    at = TOKEN.lastIndex
  }
  return tokens
}

class Parser {
  readonly #tokens: readonly string[]
  readonly #text: string
  #at = 0

  constructor(tokens: readonly string[], text: string) {
    this.#tokens = tokens
    this.#text = text
  }

  end(): void {
    if (this.#at < this.#tokens.length) this.#fail()
  }

  binary(level: number): Expression {
    const operators = LEVELS[level]
    if (operators === undefined) return this.#primary()
    let left = this.binary(level + 1)
    while (operators.includes(this.#peek())) {
      const operator = this.#next()
      left = { kind: 'binary', operator, left, right: this.binary(level + 1) }
    }
    return left
  }

  #primary(): Expression {
    const token = this.#next()
    if (token === '(') {
      const inner = this.binary(0)
      this.#expect(')')
      return inner
    }
    if (/^\d/.test(token)) return { kind: 'number', value: Number(token) }
    if (AGGREGATES.includes(token)) return this.#aggregate(token)
    if (FUNCTIONS.includes(token)) {
      this.#expect('(')
      const args = this.#list(')', () => this.binary(0))
      return { kind: 'call', name: token, args }
    }
    if (!/^[a-zA-Z_:]/.test(token) || this.#peek() === '(') this.#fail()
    return this.#selector(token)
  }

  #aggregate(operator: string): Expression {
    let by: readonly string[] = []
    if (this.#peek() === 'by') {
      this.#next()
      this.#expect('(')
      by = this.#list(')', () => this.#next())
    }
    this.#expect('(')
    const of = this.binary(0)
    this.#expect(')')
    return { kind: 'aggregate', operator, by, of }
  }

  #selector(name: string): Expression {
    let matchers: readonly Matcher[] = []
    if (this.#peek() === '{') {
      this.#next()
      matchers = this.#list('}', () => this.#matcher())
    }
    if (this.#peek() !== '[') return { kind: 'selector', name, matchers }
    this.#next()
    const match = /^(\d+)(ms|[smhd])$/.exec(this.#next())
    if (match === null) this.#fail()
    this.#expect(']')
    const rangeMs = Number(match?.[1]) * (UNITS_MS[match?.[2] ?? ''] ?? Number.NaN)
    return { kind: 'selector', name, matchers, rangeMs }
  }

  #matcher(): Matcher {
    const label = this.#next()
    const operator = this.#next() as Matcher['operator']
    const value = JSON.parse(this.#next()) as string
    if (!['=', '!=', '=~', '!~'].includes(operator)) this.#fail()
    return { label, operator, value }
  }

  #list<T>(end: string, item: () => T): T[] {
    const items: T[] = []
    while (this.#peek() !== end) {
      items.push(item())
      if (this.#peek() !== end) this.#expect(',')
    }
    this.#next()
    return items
  }

  #peek(): string {
    return this.#tokens[this.#at] ?? ''
  }

  #next(): string {
    const token = this.#peek()
    this.#at += 1
    return token
  }

  #expect(token: string): void {
    if (this.#next() !== token) this.#fail()
  }

  #fail(): never {
    throw new Error(
      `not understood at "${this.#tokens.slice(this.#at - 1).join(' ')}" in ${this.#text}`,
    )
  }
}
