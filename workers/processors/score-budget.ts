import type { GenerateInput } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'

/** The most log-probabilities in one answer, alternatives included: about 7 MB of JSON. */
const SCORES_MAX = 100_000

/** Counts the log-probabilities of an answer. */
export class ScoreBudget {
  readonly #scoresMax: number
  #count = 0

  constructor(scoresMax = SCORES_MAX) {
    this.#scoresMax = scoresMax
  }

  /** Whether the answer has more than its result may repeat. */
  get isSpent(): boolean {
    return this.#count > this.#scoresMax
  }

  add(scores: number): void {
    this.#count += scores
  }

  /** Adds scores of an answer that is sent as a whole. Throws 400 when it would have too many. */
  charge(scores: number): void {
    this.add(scores)
    if (!this.isSpent) return
    throw failure.invalidRequest(
      `The answer would have more than ${this.#scoresMax} log-probabilities. Please ask for fewer alternatives, or for fewer or shorter prompts and completions, or stream the answer.`,
      { param: 'logprobs', code: 'too_many_logprobs' },
    )
  }
}

/** The scores of a prompt's tokens that the answer returns. */
export function promptScoresOf(input: GenerateInput, promptTokens: number): number {
  const { echo, logprobs, n, promptLogprobs } = input
  const ofEcho = echo && logprobs !== null ? n * (1 + logprobs) : 0
  const ofPrompt = promptLogprobs === undefined ? 0 : 1 + promptLogprobs
  return promptTokens * (ofEcho + ofPrompt)
}
