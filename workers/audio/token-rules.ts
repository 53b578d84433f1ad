import type { WhisperTokens } from './whisper-tokens.ts'

/** Forbids tokens: sets logits to −∞, given the tokens of the answer so far. */
export type TokenRule = (logits: Float32Array, answer: readonly number[]) => void

/** Forbids these tokens always. */
export function suppress(tokenIds: readonly number[]): TokenRule {
  return (logits) => {
    for (const id of tokenIds) if (id < logits.length) logits[id] = -Infinity
  }
}

/** Forbids these tokens at the start. */
export function suppressAtBegin(tokenIds: readonly number[]): TokenRule {
  const rule = suppress(tokenIds)
  return (logits, answer) => {
    if (answer.length === 0) rule(logits, answer)
  }
}

/** Allows only these tokens. */
export function allowOnly(tokenIds: readonly number[]): TokenRule {
  return (logits) => {
    const kept = tokenIds.map((id) => [id, logits[id] as number] as const)
    logits.fill(-Infinity)
    for (const [id, value] of kept) logits[id] = value
  }
}

/**
 * Timestamp rules of Whisper's training (Radford et al. 2022, section 2.3), in this order: an
 * answer starts with one; the end of a segment is followed by another timestamp or the end of the
 * text; they never decrease; and one is chosen if all timestamps together are likelier than any
 * word.
 */
export function timestampRules(
  tokens: Pick<WhisperTokens, 'firstTimestamp' | 'endOfText' | 'noTimestamps'>,
  maxInitialTimestampIndex: number,
): readonly TokenRule[] {
  const { firstTimestamp, endOfText, noTimestamps } = tokens
  const isTimestamp = (id: number | undefined) => id !== undefined && id >= firstTimestamp
  return [
    suppress([noTimestamps]),
    function beginWithTimestamp(logits, answer) {
      if (answer.length > 0) return
      logits.fill(-Infinity, 0, firstTimestamp)
      logits.fill(-Infinity, firstTimestamp + maxInitialTimestampIndex + 1)
    },
    function comeInPairs(logits, answer) {
      if (!isTimestamp(answer.at(-1))) return
      const isPair = answer.length < 2 || isTimestamp(answer.at(-2))
      if (isPair) logits.fill(-Infinity, firstTimestamp)
      else logits.fill(-Infinity, 0, endOfText)
    },
    function neverGoBack(logits, answer) {
      const last = answer.findLast(isTimestamp)
      if (last === undefined) return
      // A segment may start where the previous one ends, but must not be empty.
      const isOpen = isTimestamp(answer.at(-1)) && !isTimestamp(answer.at(-2))
      logits.fill(-Infinity, firstTimestamp, isOpen && answer.length > 1 ? last : last + 1)
    },
    function preferLikelyTimestamps(logits) {
      const words = logits.subarray(0, firstTimestamp)
      const loudest = words.reduce((max, value) => Math.max(max, value), -Infinity)
      let mass = 0
      for (let id = firstTimestamp; id < logits.length; id++) {
        mass += Math.exp((logits[id] as number) - loudest)
      }
      // The summed probability of timestamps against the largest of a word, both unnormalized.
      if (mass > 1) words.fill(-Infinity)
    },
  ]
}
