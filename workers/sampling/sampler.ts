import type { SamplingParams } from '#shared/contracts/completion.ts'

import type { SampledToken, TokenSampler } from '../engine/types.ts'
import type { TokenConstraint } from './constraint/token-constraint.ts'
import { uniformAt } from './counter-random.ts'
import { drawToken } from './draw.ts'
import type { EarlyBan, LogitsProcessor, SequenceRule } from './logits-processors.ts'
import { buildLogitsProcessors } from './logits-processors.ts'
import { scoreToken } from './logprobs.ts'
import { argmax } from './select.ts'

/** Options of the sampler of one candidate. */
interface SamplerOptions {
  readonly params: SamplingParams
  readonly promptTokenIds: readonly number[]
  /** Selects the random stream of the candidate. */
  readonly candidateIndex: number
  /** Alternatives per token; 0 for the chosen token only, null for no log-probabilities. */
  readonly logprobs: number | null
  readonly constraint?: TokenConstraint
  readonly earlyBan?: EarlyBan
  readonly rules?: readonly SequenceRule[]
  readonly workspace: SamplingWorkspace
}

/** A buffer for one row of scores, shared by all samplers of a model: sampling is synchronous. */
export class SamplingWorkspace {
  #scores = new Float32Array(0)

  /** A copy of the logits that may be modified until the next call. */
  copy(logits: Float32Array): Float32Array {
    if (this.#scores.length !== logits.length) this.#scores = new Float32Array(logits.length)
    this.#scores.set(logits)
    return this.#scores
  }
}

/** Chooses the tokens of one candidate and counts them. */
export class Sampler implements TokenSampler {
  readonly #options: SamplerOptions
  readonly #processors: readonly LogitsProcessor[]
  readonly #counts = new Map<number, number>()

  constructor(options: SamplerOptions) {
    this.#options = options
    const { constraint, earlyBan, rules } = options
    this.#processors = buildLogitsProcessors(options.params, options.promptTokenIds, {
      ...(constraint !== undefined && { mask: (scores) => constraint.mask(scores) }),
      ...(earlyBan !== undefined && { earlyBan }),
      ...(rules !== undefined && { rules }),
    })
  }

  /** Chooses the token at a position (the number of tokens generated before it). */
  next(logits: Float32Array, position: number): SampledToken {
    const tokenId = this.#choose(logits, position)
    this.replay(tokenId)
    const { logprobs } = this.#options
    return logprobs === null ? { tokenId } : scoreToken(logits, tokenId, logprobs)
  }

  /** Counts a token that was chosen earlier, on this worker or another. */
  replay(tokenId: number): void {
    this.#counts.set(tokenId, (this.#counts.get(tokenId) ?? 0) + 1)
    this.#options.constraint?.accept(tokenId)
    for (const rule of this.#options.rules ?? []) rule.accept(tokenId)
  }

  #choose(logits: Float32Array, position: number): number {
    const { params, candidateIndex, workspace } = this.#options
    let scores = logits
    // Without processors, the usual case, the engine's row is read without a copy.
    if (this.#processors.length > 0) {
      scores = workspace.copy(logits)
      const history = { counts: this.#counts, position }
      for (const process of this.#processors) process(scores, history)
    }
    const tokenId =
      params.temperature > 0
        ? drawToken(scores, params, uniformAt(params.seed, candidateIndex, position))
        : argmax(scores)
    if (tokenId < 0) throw new Error('the model produced no finite logits')
    return tokenId
  }
}
