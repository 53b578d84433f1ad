import type { SpokenToken } from '#shared/contracts/audio.ts'

import type { CtcFrames } from './ctc-frames.ts'

/** The special tokens of a CTC model. */
export interface CtcTokens {
  /** The token of frames that add no text. */
  readonly blank: number
  /** The token between words; absent where every token is a word. */
  readonly delimiter: number | undefined
  /** Special tokens, whose frames are skipped. */
  readonly skipped: ReadonlySet<number>
  /** The text of each token. */
  readonly texts: ReadonlyMap<number, string>
}

/** A word with the frames from `start` to before `end`. */
export interface CtcWord {
  readonly text: string
  /** Whether a space precedes it. */
  readonly isSpaced: boolean
  readonly start: number
  readonly end: number
  readonly tokenIds: readonly number[]
  /** The word's tokens, preceded by the token of the space. */
  readonly logprobs: readonly SpokenToken[]
}

interface Run {
  readonly tokenId: number
  readonly start: number
  end: number
  logprob: number
}

// Keeps memory bounded if a model puts no delimiter between words.
const WORD_TOKENS_MAX = 256

/**
 * Joins frames to words. Equal consecutive tokens count once, unless a blank is between them
 * (Graves et al. 2006, section 3.1). Words continue across the boundaries of windows. The
 * log-probability of a token is that of its likeliest frame.
 */
export class CtcReader {
  readonly #tokens: CtcTokens
  #previous: number
  #space: Run | undefined
  #runs: Run[] = []

  constructor(tokens: CtcTokens) {
    this.#tokens = tokens
    this.#previous = tokens.blank
  }

  /** The words that these frames complete; `first` is the number of the first one in the clip. */
  push({ tokenIds, logprobs }: CtcFrames, first: number): CtcWord[] {
    const { blank, delimiter, skipped } = this.#tokens
    const words: CtcWord[] = []
    for (const [index, id] of tokenIds.entries()) {
      const tokenId = Number(id)
      const logprob = logprobs[index] as number
      if (skipped.has(tokenId)) continue
      const isRepeat = tokenId === this.#previous
      this.#previous = tokenId
      if (tokenId === blank) continue
      const frame = first + index
      if (tokenId === delimiter) {
        words.push(...this.flush())
        this.#space = likelier(this.#space, { tokenId, start: frame, end: frame + 1, logprob })
      } else if (isRepeat) {
        this.#extend(frame, logprob)
      } else {
        const isWhole = delimiter === undefined || this.#runs.length >= WORD_TOKENS_MAX
        if (isWhole) words.push(...this.flush())
        this.#runs.push({ tokenId, start: frame, end: frame + 1, logprob })
      }
    }
    return words
  }

  /** The word that is still open: none or one. */
  flush(): CtcWord[] {
    const runs = this.#runs
    const [first] = runs
    const last = runs.at(-1)
    if (first === undefined || last === undefined) return []
    const space = this.#space
    this.#runs = []
    this.#space = undefined
    const spelled = runs.map((run) => this.#spell(run))
    return [
      {
        text: spelled.map(({ token }) => token).join(''),
        isSpaced: space !== undefined,
        start: first.start,
        end: last.end,
        tokenIds: [...(space === undefined ? [] : [space]), ...runs].map(({ tokenId }) => tokenId),
        logprobs: [...(space === undefined ? [] : [present(' ', space)]), ...spelled],
      },
    ]
  }

  #extend(frame: number, logprob: number): void {
    const run = this.#runs.at(-1)
    if (run === undefined) return
    run.end = frame + 1
    run.logprob = Math.max(run.logprob, logprob)
  }

  #spell(run: Run): SpokenToken {
    return present(this.#tokens.texts.get(run.tokenId) ?? '', run)
  }
}

function likelier(known: Run | undefined, other: Run): Run {
  return known !== undefined && known.logprob >= other.logprob ? known : other
}

function present(token: string, { logprob }: Run): SpokenToken {
  return { token, bytes: [...Buffer.from(token)], logprob }
}
