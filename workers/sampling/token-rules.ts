import type { SequenceRule } from './sampler.ts'
import { argmax } from './select.ts'

/**
 * Forbids all other tokens, except those that end an answer after its first token. If a grammar
 * allows none of them, the grammar takes precedence.
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
 * Forbids the last token of each sequence when the tokens before it have just been generated. If no
 * other token is left, one of them is allowed.
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
      ban(
        scores,
        sequences.filter(isNext).flatMap((sequence) => sequence.slice(-1)),
      )
    },
  }
}

/**
 * Forbids tokens at the beginning of an answer. If no other token is left, one of them is allowed.
 */
export function banStarts(tokenIds: readonly number[]): SequenceRule {
  let hasBegun = false
  return {
    accept() {
      hasBegun = true
    },
    process(scores) {
      if (!hasBegun) ban(scores, tokenIds)
    },
  }
}

/**
 * Forbids the last token of a sequence of `length` tokens that has already occurred in the text, in
 * the prompt or the answer. If no other token is left, one of them is allowed.
 */
export function banRepetition(length: number, readTokenIds: readonly number[]): SequenceRule {
  const followers = new Map<string, Set<number>>()
  const recent: number[] = []
  const accept = (tokenId: number): void => {
    if (recent.length === length - 1) {
      const key = recent.join()
      followers.set(key, (followers.get(key) ?? new Set()).add(tokenId))
    }
    recent.push(tokenId)
    if (recent.length >= length) recent.shift()
  }
  for (const tokenId of readTokenIds) accept(tokenId)
  return {
    accept,
    process(scores) {
      if (recent.length === length - 1) ban(scores, [...(followers.get(recent.join()) ?? [])])
    },
  }
}

/** Forbids tokens, unless no other is left. */
function ban(scores: Float32Array, tokenIds: readonly number[]): void {
  const banned = tokenIds
    .filter((tokenId) => tokenId < scores.length)
    .map((tokenId) => [tokenId, scores[tokenId] as number] as const)
  if (banned.length === 0) return
  for (const [tokenId] of banned) scores[tokenId] = Number.NEGATIVE_INFINITY
  if (argmax(scores) >= 0) return
  // In reverse order, because the first of several sequences with the same last token holds its
  // original score.
  for (const [tokenId, score] of banned.toReversed()) scores[tokenId] = score
}
