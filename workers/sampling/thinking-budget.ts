import type { SequenceRule } from './sampler.ts'

const PROMPT_TAIL = 8 // tokens; templates open the reasoning at the very end of the prompt

/**
 * Ends the reasoning of an answer after some tokens: then only the closing tag is allowed. A
 * grammar that forbids the tag is stronger.
 */
export function limitThinking(options: {
  /** `after` is the token that precedes the opening one, where that is a word by itself. */
  readonly tags: { readonly open: number; readonly close: number; readonly after?: number }
  readonly tokensMax: number
  readonly promptTokenIds: readonly number[]
}): SequenceRule {
  const { open, close, after } = options.tags
  const tail = options.promptTokenIds.slice(-PROMPT_TAIL)
  let isThinking = after === undefined && tail.lastIndexOf(open) > tail.lastIndexOf(close)
  let tokens = 0
  let previous = tail.at(-1)
  return {
    accept(tokenId) {
      const isOpening = tokenId === open && (after === undefined || previous === after)
      previous = tokenId
      if (isOpening) isThinking = true
      else if (tokenId === close) isThinking = false
      else if (isThinking) tokens += 1
    },
    process(scores) {
      const score = scores[close] ?? Number.NEGATIVE_INFINITY
      if (!isThinking || tokens < options.tokensMax || score === Number.NEGATIVE_INFINITY) return
      scores.fill(Number.NEGATIVE_INFINITY)
      scores[close] = score
    },
  }
}
