const NGRAM_LONGEST = 4
const NGRAM_SHORTEST = 2
const DRAFT_TOKENS_MAX = 8

/**
 * Guesses the next tokens of a text that repeats itself or its prompt: finds the latest earlier
 * place where the last few tokens stood and proposes what followed them there. A wrong guess costs
 * one wider step; it never changes the outcome.
 */
export function proposeByPromptLookup(tokenIds: readonly number[]): readonly number[] {
  for (let length = NGRAM_LONGEST; length >= NGRAM_SHORTEST; length -= 1) {
    const follows = findLatestRepeat(tokenIds, length)
    if (follows >= 0) return tokenIds.slice(follows, follows + DRAFT_TOKENS_MAX)
  }
  return []
}

/** Where the text goes on after the latest earlier occurrence of its own last `length` tokens. */
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
