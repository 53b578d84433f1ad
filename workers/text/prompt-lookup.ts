const NGRAM_LONGEST = 4
const NGRAM_SHORTEST = 2
const DRAFT_TOKENS_MAX = 8

/**
 * Drafts the next tokens of a text that repeats itself or its prompt: finds the latest earlier
 * occurrence of the last few tokens and proposes the tokens after it. A rejected draft costs one
 * wider step; it never changes the outcome.
 */
export function proposeByPromptLookup(tokenIds: readonly number[]): readonly number[] {
  for (let length = NGRAM_LONGEST; length >= NGRAM_SHORTEST; length -= 1) {
    const follows = findLatestRepeat(tokenIds, length)
    if (follows >= 0) return tokenIds.slice(follows, follows + DRAFT_TOKENS_MAX)
  }
  return []
}

/** The position after the latest earlier occurrence of its own last `length` tokens. */
function findLatestRepeat(tokenIds: readonly number[], length: number): number {
  const end = tokenIds.length
  for (let start = end - length - 1; start >= 0; start -= 1) {
    let matched = 0
    while (matched < length && tokenIds[start + matched] === tokenIds[end - length + matched]) {
      matched += 1
    }
    if (matched === length) return start + length
  }
  return -1
}

const RESYNC_TOKENS = 8
const REPLACED_TOKENS_MAX = 2

/**
 * Drafts the next tokens of an edited text: it follows the original, skipping words that were
 * replaced or removed. Falls back to the latest repeat when it has lost its position.
 */
export class EditFollower {
  readonly #original: readonly number[]
  readonly #isWordStart: (tokenId: number) => boolean
  #cursor = 0
  #numRead: number
  #numReplaced = 0

  /** The original starts at `originalStart` in the prompt. */
  constructor(options: {
    readonly promptTokenIds: readonly number[]
    readonly originalStart: number
    readonly isWordStart: (tokenId: number) => boolean
  }) {
    this.#original = options.promptTokenIds.slice(options.originalStart)
    this.#isWordStart = options.isWordStart
    this.#numRead = options.promptTokenIds.length
  }

  /** Drafts the tokens that follow the prompt and the answer so far. */
  propose(tokenIds: readonly number[]): readonly number[] {
    for (const tokenId of tokenIds.slice(this.#numRead)) this.#follow(tokenId)
    this.#numRead = tokenIds.length
    if (this.#numReplaced > REPLACED_TOKENS_MAX) return proposeByPromptLookup(tokenIds)
    const from = this.#numReplaced === 0 ? this.#cursor : this.#nextWord()
    return this.#original.slice(from, from + DRAFT_TOKENS_MAX)
  }

  #follow(tokenId: number): void {
    const near = this.#original.slice(this.#cursor, this.#cursor + RESYNC_TOKENS)
    const at = near.indexOf(tokenId)
    if (at >= 0) this.#cursor += at + 1
    this.#numReplaced = at >= 0 ? 0 : this.#numReplaced + 1
  }

  /** The position after the word that is being replaced. */
  #nextWord(): number {
    const after = this.#cursor + 1
    const at = this.#original.slice(after).findIndex(this.#isWordStart)
    return at < 0 ? this.#original.length : after + at
  }
}
