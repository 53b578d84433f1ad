import type { SequenceEnd, SequenceRequest } from './types.ts'

/** The state of a sequence; `done` is final. */
type SequenceState = 'waiting' | 'running' | 'done'

/**
 * A text in progress. Everything follows from one inequality: `numComputed` (positions in the
 * cache) catches up with `tokenIds.length`; when exactly one token is missing, computing it gives
 * the logits of the next.
 */
export class Sequence {
  readonly request: SequenceRequest
  /** Prompt and everything generated so far. */
  readonly tokenIds: number[]
  state: SequenceState = 'waiting'
  /** The slot whose cache holds this sequence, while it runs. */
  slot = -1
  numComputed = 0
  cachedTokens = 0
  /** It has more tokens than the first set of rotary factors is for; all of it uses the second. */
  isLong = false
  /**
   * How tokens that were generated elsewhere are computed again: one by one as they were (the same
   * numbers to the last bit), or in chunks (sooner done, but rounded otherwise).
   */
  replay: 'undecided' | 'stepwise' | 'chunked' = 'undecided'
  /** Steps to wait before the next speculation, and the length of the present pause. */
  speculationPause = 0
  speculationBackoff = 1
  readonly #resolve: (end: SequenceEnd) => void
  readonly #reject: (error: unknown) => void

  constructor(
    request: SequenceRequest,
    resolve: (end: SequenceEnd) => void,
    reject: (error: unknown) => void,
  ) {
    this.request = request
    this.tokenIds = [...request.promptTokenIds, ...request.generatedTokenIds]
    this.#resolve = resolve
    this.#reject = reject
  }

  get numPrompt(): number {
    return this.request.promptTokenIds.length
  }

  get numGenerated(): number {
    return this.tokenIds.length - this.numPrompt
  }

  get numMissing(): number {
    return this.tokenIds.length - this.numComputed
  }

  /** Whether one more token is all that the next logits need, as in every step after the prompt. */
  get isDecoding(): boolean {
    return this.numMissing === 1 && this.numComputed > 0 && this.numComputed >= this.numPrompt
  }

  /** Whether tokens generated elsewhere are being computed again, one with each decode step. */
  get isReplaying(): boolean {
    const isPastPrompt = this.numComputed > 0 && this.numComputed >= this.numPrompt
    return isPastPrompt && this.numMissing > 1 && this.replay !== 'chunked'
  }

  /** Sequences of one scope may share cached positions. */
  get scope(): string {
    return this.isLong ? `${this.request.cacheScope}\0long` : this.request.cacheScope
  }

  /** Whether logits of prompt positions are wanted. */
  get wantsPromptLogits(): boolean {
    return this.request.onPromptLogits !== undefined
  }

  /** Positions that may come from the cache: all before the first whose logits are needed. */
  get numCacheable(): number {
    const last = this.tokenIds.length - 1
    return this.wantsPromptLogits ? Math.min(this.request.promptLogitsFrom ?? 0, last) : last
  }

  finish(reason: SequenceEnd['reason']): void {
    this.state = 'done'
    this.#resolve({ reason, cachedTokens: this.cachedTokens })
  }

  fail(error: unknown): void {
    this.state = 'done'
    this.#reject(error)
  }
}
