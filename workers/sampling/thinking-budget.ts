import type { SequenceRule } from './logits-processors.ts'

const PROMPT_TAIL = 8 // tokens; templates open the reasoning at the very end of the prompt

/**
 * Ends the reasoning of an answer after some tokens: then only the closing tag is allowed. A grammar
 * that forbids the tag is stronger.
 */
export function limitThinking(options: {
  readonly tags: { readonly open: number; readonly close: number }
  readonly tokensMax: number
  readonly promptTokenIds: readonly number[]
}): SequenceRule {
  const { open, close } = options.tags
  const tail = options.promptTokenIds.slice(-PROMPT_TAIL)
  let isThinking = tail.lastIndexOf(open) > tail.lastIndexOf(close)
  let tokens = 0
  return {
    accept(tokenId) {
      if (tokenId === open) isThinking = true
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
