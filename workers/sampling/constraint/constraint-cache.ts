import type { TokenPieces } from '../../text/token-pieces.ts'
import type { Grammar } from './grammar.ts'
import { ConstraintFactory } from './token-constraint.ts'
import { buildTokenTrie } from './token-trie.ts'
import type { TokenTrie } from './token-trie.ts'

const GRAMMARS_MAX = 8

/** The grammars that a model's requests used last, with the masks worked out for them. */
export class ConstraintCache {
  readonly #pieces: TokenPieces
  readonly #endTokenIds: ReadonlySet<number>
  readonly #factories = new Map<string, ConstraintFactory>()
  #trie: TokenTrie | undefined

  constructor(pieces: TokenPieces, endTokenIds: ReadonlySet<number>) {
    this.#pieces = pieces
    this.#endTokenIds = endTokenIds
  }

  /** The factory for a key, compiling its grammar on first use. */
  get(key: string, compile: () => Grammar): ConstraintFactory {
    const known = this.#factories.get(key)
    const factory = known ?? this.#build(compile())
    this.#factories.delete(key)
    this.#factories.set(key, factory)
    // Ordered by last use, so the first is the one to drop.
    if (this.#factories.size > GRAMMARS_MAX) {
      this.#factories.delete(this.#factories.keys().next().value as string)
    }
    return factory
  }

  #build(grammar: Grammar): ConstraintFactory {
    this.#trie ??= buildTokenTrie(this.#pieces)
    return new ConstraintFactory({
      grammar,
      trie: this.#trie,
      pieces: this.#pieces,
      endTokenIds: this.#endTokenIds,
    })
  }
}
