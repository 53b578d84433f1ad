import type { TokenPieces } from '#workers/text/detokenizer.ts'

import type { Grammar } from './grammar.ts'
import type { SurveyedGrammar } from './grammar-data.ts'
import { ConstraintFactory } from './token-constraint.ts'
import type { TokenTrie } from './token-trie.ts'
import { buildTokenTrie } from './token-trie.ts'

const GRAMMARS_MAX = 8
/** Two fully expanded grammars; ordinary ones take a few megabytes. */
const GRAMMARS_BYTES_MAX = 128 * 1024 ** 2
/** The key itself, and the schema that it was derived from, which references keep in memory. */
const BYTES_PER_KEY_CHARACTER = 3

/**
 * The most recently used grammars of a model, with their computed states. They grow while answers
 * follow them, so their size is checked with each request.
 */
export class ConstraintCache {
  readonly #pieces: TokenPieces
  readonly #endTokenIds: ReadonlySet<number>
  readonly #factories = new Map<string, ConstraintFactory>()
  readonly #bytesMax: number
  #trie: TokenTrie | undefined

  constructor(
    pieces: TokenPieces,
    endTokenIds: ReadonlySet<number>,
    { bytesMax = GRAMMARS_BYTES_MAX }: { readonly bytesMax?: number } = {},
  ) {
    this.#pieces = pieces
    this.#endTokenIds = endTokenIds
    this.#bytesMax = bytesMax
  }

  /** The factory for a key, compiling its grammar on first use. */
  get(key: string, compile: () => Grammar): ConstraintFactory {
    return this.#keep(key, this.#factories.get(key) ?? this.#build({ grammar: compile() }))
  }

  /** The same for a grammar that may be compiled in a thread. */
  async prepare(key: string, compile: () => Promise<SurveyedGrammar>): Promise<ConstraintFactory> {
    return this.#keep(key, this.#factories.get(key) ?? this.#build(await compile()))
  }

  /** The approximate memory in bytes. */
  get bytes(): number {
    return [...this.#factories].reduce(
      (sum, [key, factory]) => sum + key.length * BYTES_PER_KEY_CHARACTER + factory.bytes,
      0,
    )
  }

  get size(): number {
    return this.#factories.size
  }

  #keep(key: string, factory: ConstraintFactory): ConstraintFactory {
    this.#factories.delete(key)
    this.#factories.set(key, factory)
    this.#makeRoom()
    return factory
  }

  #makeRoom(): void {
    // Ordered by last use, so the first is the one to drop; the last is in use.
    for (const key of this.#factories.keys()) {
      const isTooMany = this.#factories.size > GRAMMARS_MAX || this.bytes > this.#bytesMax
      if (!isTooMany || this.#factories.size === 1) return
      this.#factories.delete(key)
    }
  }

  #build({ grammar, survey }: SurveyedGrammar): ConstraintFactory {
    this.#trie ??= buildTokenTrie(this.#pieces)
    return new ConstraintFactory({
      grammar,
      survey,
      trie: this.#trie,
      pieces: this.#pieces,
      endTokenIds: this.#endTokenIds,
    })
  }
}
