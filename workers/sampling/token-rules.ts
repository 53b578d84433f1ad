import type { SequenceRule } from './sampler.ts'
import { argmax } from './select.ts'

/**
 * Forbids all other tokens, besides those that end an answer which has begun. Where a grammar
 * allows none of them, the grammar is stronger.
 */
export function allowOnly(
  tokenIds: ReadonlySet<number>,
  endTokenIds: ReadonlySet<number>,
): SequenceRule {
  let hasBegun = false
  return {
    accept() {
      hasBegun = true
    },
    process(scores) {
      const allowed = [...tokenIds, ...(hasBegun ? endTokenIds : [])]
        .filter((tokenId) => tokenId < scores.length)
        .map((tokenId) => [tokenId, scores[tokenId] as number] as const)
      if (allowed.every(([, score]) => score === Number.NEGATIVE_INFINITY)) return
      scores.fill(Number.NEGATIVE_INFINITY)
      for (const [tokenId, score] of allowed) scores[tokenId] = score
    },
  }
}

/**
 * Forbids the last token of each sequence where the tokens before it have just been generated.
 * Where nothing else is left, one of them is allowed.
 */
export function banSequences(sequences: readonly (readonly number[])[]): SequenceRule {
  const lengthMax = Math.max(...sequences.map(({ length }) => length))
  const recent: number[] = []
  const isNext = (sequence: readonly number[]): boolean => {
    const start = recent.length - sequence.length + 1
    return (
      start >= 0 && sequence.slice(0, -1).every((tokenId, at) => recent[start + at] === tokenId)
    )
  }
  return {
    accept(tokenId) {
      recent.push(tokenId)
      if (recent.length > lengthMax) recent.shift()
    },
    process(scores) {
      const banned = sequences
        .filter(isNext)
        .flatMap((sequence) => sequence.slice(-1))
        .map((tokenId) => [tokenId, scores[tokenId] as number] as const)
      for (const [tokenId] of banned) scores[tokenId] = Number.NEGATIVE_INFINITY
      if (argmax(scores) >= 0) return
      // Backwards: a token that several sequences end with has its own score in the first.
      for (const [tokenId, score] of banned.toReversed()) scores[tokenId] = score
    },
  }
}
