import type { TokenPieces } from '#workers/text/detokenizer.ts'

import type { AutomatonState } from './automaton.ts'
import { Automaton, GrammarTooAmbiguousError } from './automaton.ts'
import type { GrammarSurvey } from './dead-ends.ts'
import type { Grammar } from './grammar.ts'
import type { TokenTrie } from './token-trie.ts'

/** Follows one answer through a grammar and determines the allowed next tokens. */
export interface TokenConstraint {
  /** Sets the score of every token that the grammar forbids to -∞. */
  mask(scores: Float32Array): void
  accept(tokenId: number): void
  /** True when the answer is complete and cannot continue. */
  readonly isFinished: boolean
}

/** A factory of constraints, one for each answer. */
export interface ConstraintSource {
  /** A constraint at the beginning of an answer; the budget is that of its request. */
  create(budget?: FollowingBudget): TokenConstraint
}

const MASKS_MAX = 64
/** Some 50 ms of the event loop; an enum of ten thousand values takes two thirds of it. */
const FRAMES_PER_MASK_MAX = 60_000
/** Beyond what each token adds; the first masks of a large schema cost the most. */
const FRAMES_AT_FIRST = 400_000
/** Some 5 ms, which is little beside a step of the model. */
const FRAMES_PER_TOKEN = 5000

/**
 * The budget of frames for following the grammar in all answers of one request. All answers of a
 * batch wait while the mask of one is computed.
 */
export class FollowingBudget {
  #left = FRAMES_AT_FIRST

  /** Throws `GrammarTooAmbiguousError` when the frames exceed what is left. */
  charge(frames: number): void {
    this.#left -= frames
    if (this.#left < 0) throw new GrammarTooAmbiguousError()
  }

  /** Counts a chosen token. */
  addToken(): void {
    this.#left += FRAMES_PER_TOKEN
  }
}

/** A grammar over the tokens of one model; all answers share its masks. */
export class ConstraintFactory implements ConstraintSource {
  readonly #automaton: Automaton
  readonly #masks = new Map<AutomatonState, Uint8Array>()
  readonly #trie: TokenTrie
  readonly #pieces: TokenPieces
  readonly #endTokenIds: ReadonlySet<number>

  constructor(options: {
    readonly grammar: Grammar
    readonly survey?: GrammarSurvey | undefined
    readonly trie: TokenTrie
    readonly pieces: TokenPieces
    readonly endTokenIds: ReadonlySet<number>
  }) {
    this.#automaton = new Automaton(
      options.grammar,
      options.survey === undefined ? {} : { survey: options.survey },
    )
    this.#trie = options.trie
    this.#pieces = options.pieces
    this.#endTokenIds = options.endTokenIds
    // Computed in advance, so that a grammar that cannot be followed is refused before the model
    // runs.
    this.#maskOf(this.#automaton.start)
  }

  /** The approximate memory of the grammar and its computed states. */
  get bytes(): number {
    const [mask] = this.#masks.values()
    return this.#automaton.bytes + this.#masks.size * (mask?.byteLength ?? 0)
  }

  /** A constraint at the beginning of an answer. */
  create(budget = new FollowingBudget()): TokenConstraint {
    return this.#follow(this.#automaton.start, budget)
  }

  /** A constraint after some bytes; undefined if the grammar does not allow them. */
  createAfter(bytes: Uint8Array, budget = new FollowingBudget()): TokenConstraint | undefined {
    const state = this.#charged(budget, () => this.#readBytes(this.#automaton.start, bytes))
    return state === null ? undefined : this.#follow(state, budget)
  }

  #follow(start: AutomatonState, budget: FollowingBudget): TokenConstraint {
    let state = start
    return {
      mask: (scores) => this.#charged(budget, () => this.#apply(state, scores)),
      accept: (tokenId) => {
        budget.addToken()
        state = this.#charged(budget, () => this.#read(state, tokenId)) ?? state
      },
      get isFinished() {
        return state.isFinal && state.isAccepting
      },
    }
  }

  #charged<T>(budget: FollowingBudget, work: () => T): T {
    const before = this.#automaton.framesExpanded
    const result = work()
    budget.charge(this.#automaton.framesExpanded - before)
    return result
  }

  #read(from: AutomatonState, tokenId: number): AutomatonState | null {
    return this.#pieces.isSpecial(tokenId)
      ? from
      : this.#readBytes(from, this.#pieces.bytesOf(tokenId))
  }

  #readBytes(from: AutomatonState, bytes: Uint8Array): AutomatonState | null {
    let state: AutomatonState | null = from
    for (const byte of bytes) {
      if (state === null) return null
      state = this.#automaton.step(state, byte)
    }
    return state
  }

  #apply(state: AutomatonState, scores: Float32Array): void {
    const allowed = this.#maskOf(state)
    for (let tokenId = 0; tokenId < scores.length; tokenId += 1) {
      if (allowed[tokenId] !== 1) scores[tokenId] = Number.NEGATIVE_INFINITY
    }
  }

  #maskOf(state: AutomatonState): Uint8Array {
    const known = this.#masks.get(state)
    if (known !== undefined) {
      this.#masks.delete(state)
      this.#masks.set(state, known)
      return known
    }
    const allowed = new Uint8Array(Math.max(this.#pieces.size, ...this.#endTokenIds) + 1)
    this.#walk(state, allowed)
    for (const tokenId of this.#endTokenIds) {
      allowed[tokenId] = state.isAccepting ? 1 : 0
    }
    // The map is ordered by last use, so its first entry is dropped.
    if (this.#masks.size >= MASKS_MAX) {
      this.#masks.delete(this.#masks.keys().next().value as AutomatonState)
    }
    this.#masks.set(state, allowed)
    return allowed
  }

  /**
   * Reads all tokens at once: tokens with a common prefix share the work, and a dead end excludes
   * all of them. Throws if the grammar allows so many readings that all other answers would wait.
   */
  #walk(start: AutomatonState, allowed: Uint8Array): void {
    const framesMax = this.#automaton.framesExpanded + FRAMES_PER_MASK_MAX
    const { nodes, byte, depth, end, firstToken, tokenCount, tokenIds, depthMax } = this.#trie
    const states = new Array<AutomatonState>(depthMax + 1).fill(start)
    let node = 0
    while (node < nodes) {
      const level = depth[node] as number
      const state = states[level] as AutomatonState
      const next = this.#automaton.step(state, byte[node] as number)
      if (this.#automaton.framesExpanded > framesMax) throw new GrammarTooAmbiguousError()
      if (next === null) {
        node = end[node] as number
        continue
      }
      states[level + 1] = next
      const first = firstToken[node] as number
      for (let order = first; order < first + (tokenCount[node] as number); order += 1) {
        allowed[tokenIds[order] as number] = 1
      }
      node += 1
    }
  }
}
