import { WorkBudget } from '#workers/preparation/work-budget.ts'

/** The texts of a grammar, as a tree over bytes; references make it recursive. */
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
  | { readonly kind: 'later'; readonly id: number; readonly make: () => Grammar }

/**
 * Creates the nodes of one grammar; each has its own number, which distinguishes states. Equal
 * parts are one node, because the same few texts and digits occur thousands of times in a large
 * schema.
 */
export class GrammarBuilder {
  /** Charged for each requested node. */
  readonly budget: WorkBudget
  #nodes = 0
  #asked = 0
  readonly #literals = new Map<string, Grammar>()
  readonly #bytes = new Map<string, Grammar>()
  readonly #named = new Map<string, Grammar>()

  constructor(budget = new WorkBudget()) {
    this.budget = budget
  }

  /** The number of requested nodes, by which a compiler refuses grammars that grow too large. */
  get size(): number {
    return this.#asked
  }

  literal(text: string): Grammar {
    this.#ask()
    this.budget.chargeText(text.length)
    return once(this.#literals, text, () => {
      return { kind: 'bytes', id: this.#newId(), bytes: Buffer.from(text) }
    })
  }

  /** One byte of inclusive ranges. */
  byte(...ranges: readonly (readonly [number, number])[]): Grammar {
    this.#ask()
    return once(this.#bytes, ranges.join(' '), () => {
      const members = new Uint8Array(256)
      for (const [low, high] of ranges) members.fill(1, low, high + 1)
      return { kind: 'oneOf', id: this.#newId(), members }
    })
  }

  /** A grammar that is expensive to build, and is built when its name is first requested. */
  named(name: string, make: () => Grammar): Grammar {
    return once(this.#named, name, make)
  }

  sequence(...parts: readonly Grammar[]): Grammar {
    return this.sequenceOf(parts)
  }

  /** A sequence of any length: arguments of a call are limited to some 100,000. */
  sequenceOf(parts: readonly Grammar[]): Grammar {
    return { kind: 'sequence', id: this.#number(), parts }
  }

  choice(...options: readonly Grammar[]): Grammar {
    return this.choiceOf(options)
  }

  /** A choice of any number of options. */
  choiceOf(options: readonly Grammar[]): Grammar {
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

  /** A node that is built when a text first reaches it; some text must satisfy it. */
  later(make: () => Grammar): Grammar {
    return { kind: 'later', id: this.#number(), make }
  }

  #number(): number {
    this.#ask()
    return this.#newId()
  }

  #ask(): void {
    this.#asked += 1
    this.budget.charge(STEPS_PER_NODE)
  }

  #newId(): number {
    this.#nodes += 1
    return this.#nodes
  }
}

const STEPS_PER_NODE = 20 // some 4 µs

function once(known: Map<string, Grammar>, key: string, make: () => Grammar): Grammar {
  const found = known.get(key)
  if (found !== undefined) return found
  const made = make()
  known.set(key, made)
  return made
}
