import type { TokenPieces } from '#workers/text/detokenizer.ts'

import { GrammarTooAmbiguousError } from './automaton.ts'
import {
  type ConstraintFactory,
  type ConstraintSource,
  FollowingBudget,
  type TokenConstraint,
} from './token-constraint.ts'

/** Where a grammar starts to apply, and which one. */
interface TriggeredOptions {
  /** The text that must precede the grammar. */
  readonly opening: string
  /**
   * Applies from the end of the opening to its own end; then the text is free again. Requested at
   * the first opening, because most texts have none and a grammar takes a while to prepare.
   */
  readonly inner: () => ConstraintFactory
  readonly pieces: TokenPieces
  /** The opening counts only at the beginning of the text. */
  readonly isAtStart?: boolean
  /** The text continues without the grammar if that proves too ambiguous to follow. */
  readonly isLenient: boolean
}

/** Free text in which every part that begins with an opening follows a grammar. */
export class TriggeredConstraint implements ConstraintSource {
  readonly #options: TriggeredOptions
  readonly #opening: Uint8Array

  constructor(options: TriggeredOptions) {
    this.#options = options
    this.#opening = Buffer.from(options.opening)
  }

  /** A follower at the beginning of an answer. */
  create(budget = new FollowingBudget()): TokenConstraint {
    const { pieces, inner, isLenient, isAtStart = false } = this.#options
    const opening = this.#opening
    // How much of the opening the text ends with. The opening does not repeat its own prefix, so a
    // byte that does not continue it can only restart it.
    let matched = 0
    let isOver = false
    let inside: TokenConstraint | undefined
    return {
      mask: (scores) => follow(() => inside?.mask(scores)),
      accept: (tokenId) => {
        if (inside === undefined) readFree(tokenId)
        else follow(() => inside?.accept(tokenId))
        if (inside?.isFinished === true) inside = undefined
      },
      // Free text may always continue.
      isFinished: false,
    }

    function readFree(tokenId: number): void {
      if (isOver || pieces.isSpecial(tokenId)) return
      const bytes = pieces.bytesOf(tokenId)
      for (const [index, byte] of bytes.entries()) {
        const isSpace = matched === 0 && (byte === 0x20 || byte === 0x0a)
        isOver = isAtStart && byte !== opening[matched] && !isSpace
        if (isOver) return
        matched = byte === opening[matched] ? matched + 1 : byte === opening[0] ? 1 : 0
        if (matched < opening.length) continue
        matched = 0
        isOver = isAtStart
        // A token that continues differently from the grammar leaves this part free.
        follow(() => {
          inside = inner().createAfter(bytes.subarray(index + 1), budget)
        })
        if (inside !== undefined) return
      }
    }

    function follow(step: () => void): void {
      try {
        step()
      } catch (error) {
        if (!isLenient || !(error instanceof GrammarTooAmbiguousError)) throw error
        inside = undefined
      }
    }
  }
}
