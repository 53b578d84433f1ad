import type { SequenceRule } from './sampler.ts'

const PROMPT_TAIL = 8 // tokens; templates open the reasoning at the very end of the prompt

interface Thinking {
  /** `after` is the token that precedes the opening one, if that is an ordinary word. */
  readonly tags: { readonly open: number; readonly close: number; readonly after?: number }
  readonly promptTokenIds: readonly number[]
}

/** Follows an answer into and out of its reasoning, which the prompt may have started. */
class ThinkingState {
  isThinking: boolean
  readonly #tags: Thinking['tags']
  #previous: number | undefined

  constructor({ tags, promptTokenIds }: Thinking) {
    const tail = promptTokenIds.slice(-PROMPT_TAIL)
    this.#tags = tags
    this.#previous = tail.at(-1)
    this.isThinking =
      tags.after === undefined && tail.lastIndexOf(tags.open) > tail.lastIndexOf(tags.close)
  }

  /** Whether the token is part of the reasoning, or one of the tags around it. */
  accept(tokenId: number): 'tag' | 'reasoning' | 'answer' {
    const { open, close, after } = this.#tags
    const isOpening = tokenId === open && (after === undefined || this.#previous === after)
    const isTag = isOpening || (tokenId === close && this.isThinking)
    this.#previous = tokenId
    if (isOpening) this.isThinking = true
    else if (tokenId === close) this.isThinking = false
    if (isTag) return 'tag'
    return this.isThinking ? 'reasoning' : 'answer'
  }
}

/** The number of reasoning tokens of an answer, including the tags. */
export function countThinking(thinking: Thinking, tokenIds: readonly number[]): number {
  const state = new ThinkingState(thinking)
  return tokenIds.filter((tokenId) => state.accept(tokenId) !== 'answer').length
}

/**
 * Ends the reasoning of an answer after some tokens: then only the closing tag is allowed. A
 * grammar that forbids the tag takes precedence.
 */
export function limitThinking(options: Thinking & { readonly tokensMax: number }): SequenceRule {
  const { close } = options.tags
  const state = new ThinkingState(options)
  let tokens = 0
  return {
    accept(tokenId) {
      if (state.accept(tokenId) === 'reasoning') tokens += 1
    },
    process(scores) {
      const score = scores[close] ?? Number.NEGATIVE_INFINITY
      if (!state.isThinking || tokens < options.tokensMax || score === Number.NEGATIVE_INFINITY)
        return
      scores.fill(Number.NEGATIVE_INFINITY)
      scores[close] = score
    },
  }
}
