import type { CandidateDelta } from '#shared/contracts/completion.ts'

import type { StreamChoice } from './sampling-fields.ts'

/** How chunks end: with the token counts so far, with none yet, or without the field. */
export class StreamUsage {
  readonly #isContinuous: boolean
  readonly #suffix: string
  #promptTokens = 0
  #completionTokens = 0

  constructor({ includesUsage, isUsageContinuous }: StreamChoice) {
    this.#isContinuous = isUsageContinuous
    this.#suffix = includesUsage ? '],"usage":null' : ']'
  }

  /** Takes note of what the model reads. */
  started(promptTokens: number): void {
    this.#promptTokens = promptTokens
  }

  /** Counts tokens that are about to be sent. */
  add(delta: CandidateDelta): void {
    this.#completionTokens += delta.tokenIds.length
  }

  /** Closes the list of choices and adds the usage. */
  suffix(): string {
    if (!this.#isContinuous) return this.#suffix
    const prompt = this.#promptTokens
    const completion = this.#completionTokens
    return `],"usage":{"prompt_tokens":${prompt},"completion_tokens":${completion},"total_tokens":${prompt + completion}}`
  }
}
