/** What a text may be, as a tree over bytes; references make it recursive. */
export type Grammar =
  | { readonly kind: 'bytes'; readonly id: number; readonly bytes: Uint8Array }
  | { readonly kind: 'oneOf'; readonly id: number; readonly members: Uint8Array }
  | { readonly kind: 'sequence'; readonly id: number; readonly parts: readonly Grammar[] }
  | { readonly kind: 'choice'; readonly id: number; readonly options: readonly Grammar[] }
  | {
      readonly kind: 'repeat'
      readonly id: number
      readonly body: Grammar
      readonly min: number
      readonly max: number
    }
  | { readonly kind: 'reference'; readonly id: number; readonly resolve: () => Grammar }

/** Makes the nodes of one grammar; each has its own number, by which states are told apart. */
export class GrammarBuilder {
  #nodes = 0
  readonly #encoder = new TextEncoder()

  /** How many nodes exist: a compiler uses it to refuse what grows too large. */
  get size(): number {
    return this.#nodes
  }

  literal(text: string): Grammar {
    return { kind: 'bytes', id: this.#number(), bytes: this.#encoder.encode(text) }
  }

  /** One byte out of inclusive ranges. */
  byte(...ranges: readonly (readonly [number, number])[]): Grammar {
    const members = new Uint8Array(256)
    for (const [low, high] of ranges) members.fill(1, low, high + 1)
    return { kind: 'oneOf', id: this.#number(), members }
  }

  sequence(...parts: readonly Grammar[]): Grammar {
    return { kind: 'sequence', id: this.#number(), parts }
  }

  choice(...options: readonly Grammar[]): Grammar {
    return options.length === 1
      ? (options[0] as Grammar)
      : { kind: 'choice', id: this.#number(), options }
  }

  repeat(body: Grammar, min: number, max = Number.POSITIVE_INFINITY): Grammar {
    return { kind: 'repeat', id: this.#number(), body, min, max }
  }

  optional(body: Grammar): Grammar {
    return this.repeat(body, 0, 1)
  }

  reference(resolve: () => Grammar): Grammar {
    return { kind: 'reference', id: this.#number(), resolve }
  }

  #number(): number {
    this.#nodes += 1
    return this.#nodes
  }
}
