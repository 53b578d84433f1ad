import type {
  CandidateDelta,
  EndingRules,
  FinishReason,
  TokenLogprob,
} from '#shared/contracts/completion.ts'
import type { TokenConstraint } from '#workers/sampling/constraint/token-constraint.ts'
import type { TokenPieces } from '#workers/text/detokenizer.ts'
import { IncrementalDetokenizer, StopStrings } from '#workers/text/detokenizer.ts'

import { cutLogprob, presentLogprob, type TokenScore } from './token-logprobs.ts'

interface Span {
  readonly tokenId: number
  /** Characters of the whole text before this token and after it, stop strings included. */
  readonly start: number
  readonly end: number
}

/**
 * The text of one candidate as its tokens arrive. It is a function of the tokens alone: replaying
 * those that another worker delivered leads to the same text, withheld parts included.
 */
export class CandidateText {
  readonly index: number
  readonly tokenIds: number[] = []
  text = ''
  readonly #pieces: TokenPieces
  readonly #detokenizer: IncrementalDetokenizer
  readonly #stops: StopStrings
  /** Stop strings are ignored until the answer has this many tokens. */
  readonly #minTokens: number
  readonly #constraint: TokenConstraint | undefined
  readonly #spans: Span[] = []
  readonly #scores: (TokenScore | undefined)[] = []
  readonly #keepsScores: () => boolean
  #characters = 0
  #shownSpans = 0
  #hasStopped = false
  /** The text that the current call has made visible. */
  #shownText = ''

  constructor(options: {
    readonly index: number
    readonly pieces: TokenPieces
    readonly continuesText: boolean
    readonly stop: readonly string[]
    readonly ending: EndingRules | undefined
    readonly constraint: TokenConstraint | undefined
    /** Whether scores are still needed once their tokens were shown. */
    readonly keepsScores: () => boolean
  }) {
    this.index = options.index
    this.#pieces = options.pieces
    this.#detokenizer = new IncrementalDetokenizer(options.pieces, options)
    const { minTokens, keepsStopString: keepsStop = false } = options.ending ?? {}
    this.#stops = new StopStrings(options.stop, { keepsStop })
    this.#minTokens = minTokens ?? 0
    this.#constraint = options.constraint
    this.#keepsScores = options.keepsScores
  }

  /** True once a stop string was found or the required format is complete. */
  get isComplete(): boolean {
    return this.#hasStopped || this.#constraint?.isFinished === true
  }

  /** True while tokens are withheld, because their text may be the beginning of a stop string. */
  get isHeldBack(): boolean {
    return !this.#hasStopped && this.#shownSpans < this.#spans.length
  }

  /** Adds a token; the delta holds the text that became visible. */
  push(tokenId: number, score?: TokenScore): CandidateDelta {
    const order = this.tokenIds.length
    this.tokenIds.push(tokenId)
    if (score !== undefined) this.#scores[order] = score
    const start = this.#characters
    const before = this.#shownSpans
    this.#show(this.#detokenizer.push(tokenId), { tokenId, start })
    return this.#delta([tokenId], before)
  }

  /** The last delta: the withheld text, and why the candidate ended. */
  finish(finishReason: FinishReason): CandidateDelta {
    const before = this.#shownSpans
    this.#shownText = ''
    if (!this.#hasStopped) {
      this.#show(this.#detokenizer.flush())
      if (!this.#hasStopped) this.#reveal(this.#stops.flush())
    }
    return { ...this.#delta([], before), finishReason }
  }

  /** Adds the score of a token that was replayed without one. */
  setScore(order: number, score: TokenScore): void {
    this.#scores[order] = score
  }

  /** Every visible token with its score, or undefined when a score is missing. */
  logprobs(): TokenLogprob[] | undefined {
    return this.#entries(0)
  }

  /** The mean log-probability of the tokens and of their end, by which candidates are ranked. */
  meanLogprob(end?: number): number {
    if (this.tokenIds.length === 0) return Number.NEGATIVE_INFINITY
    const sum = this.#scores.reduce((total, score) => total + (score?.logprob ?? 0), end ?? 0)
    return sum / (this.tokenIds.length + (end === undefined ? 0 : 1))
  }

  #show(raw: string, token?: { readonly tokenId: number; readonly start: number }): void {
    this.#shownText = ''
    this.#characters += raw.length
    if (token !== undefined) this.#spans.push({ ...token, end: this.#characters })
    const isEarly = this.tokenIds.length < this.#minTokens
    const verdict = isEarly ? { text: raw, isStopped: false } : this.#stops.push(raw)
    this.#hasStopped = verdict.isStopped
    this.#reveal(verdict.text)
  }

  #reveal(text: string): void {
    this.text += text
    this.#shownText += text
    while (this.#isVisible(this.#spans[this.#shownSpans])) this.#shownSpans += 1
  }

  /** A token is visible when all of its text is, or at the end when a part of it is. */
  #isVisible(span: Span | undefined): boolean {
    if (span === undefined) return false
    return span.end <= this.text.length || (this.#hasStopped && span.start < this.text.length)
  }

  #delta(tokenIds: readonly number[], shownBefore: number): CandidateDelta {
    const logprobs = this.#shownSpans > shownBefore ? this.#entries(shownBefore) : undefined
    if (!this.#keepsScores()) this.#scores.fill(undefined, shownBefore, this.#shownSpans)
    return {
      index: this.index,
      text: this.#shownText,
      tokenIds,
      ...(logprobs !== undefined && { logprobs }),
    }
  }

  #entries(from: number): TokenLogprob[] | undefined {
    const entries: TokenLogprob[] = []
    for (let order = from; order < this.#shownSpans; order += 1) {
      const score = this.#scores[order]
      const span = this.#spans[order] as Span
      if (score === undefined) return undefined
      const entry = presentLogprob(this.#pieces, span.tokenId, score)
      const isCut = span.end > this.text.length
      entries.push(isCut ? cutLogprob(entry, this.text.length - span.start) : entry)
    }
    return entries
  }
}
