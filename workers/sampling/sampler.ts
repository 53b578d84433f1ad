import type { SamplingParams } from '#shared/contracts/completion.ts'
import type { SampledToken, TokenSampler } from '#workers/engine/types.ts'

import type { TokenConstraint } from './constraint/token-constraint.ts'
import { uniformAt } from './counter-random.ts'
import { drawToken } from './draw.ts'
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

/** The state of a candidate that logits processors read besides the scores. */
interface SamplingHistory {
  /** How often each token has been generated. */
  readonly counts: ReadonlyMap<number, number>
  /** The number of tokens generated before this one. */
  readonly position: number
}

/** Tokens that are forbidden until an answer has this many tokens. */
export interface EarlyBan {
  readonly tokens: number
  readonly tokenIds: ReadonlySet<number>
}

/** Changes the scores of one position in place; -∞ forbids a token. */
export type LogitsProcessor = (scores: Float32Array, history: SamplingHistory) => void

/** A processor that follows the tokens of one answer. */
export interface SequenceRule {
  readonly process: LogitsProcessor
  accept(tokenId: number): void
}

/** Restricts the next token; the constrained decoder implements it. */
type TokenMask = (scores: Float32Array) => void

/** The rules of the answer, besides how its tokens are drawn. */
interface AnswerRules {
  readonly mask?: TokenMask
  readonly earlyBan?: EarlyBan
  readonly rules?: readonly SequenceRule[]
}

/**
 * The processors of a request, in the order in which they run; a parameter at its neutral value
 * adds none. The sampler then draws from their result.
 */
export function buildLogitsProcessors(
  params: SamplingParams,
  promptTokenIds: readonly number[],
  { mask, earlyBan, rules = [] }: AnswerRules = {},
): readonly LogitsProcessor[] {
  const list: (LogitsProcessor | false)[] = [
    Object.keys(params.logitBias).length > 0 && biasLogits(params.logitBias),
    params.repetitionPenalty !== 1 && penalizeRepetition(params.repetitionPenalty, promptTokenIds),
    (params.frequencyPenalty !== 0 || params.presencePenalty !== 0) &&
      penalizeCounts(params.frequencyPenalty, params.presencePenalty),
    mask !== undefined && mask,
    earlyBan !== undefined && banEarly(earlyBan),
    ...rules.map(({ process }) => process),
  ]
  return list.filter((processor) => processor !== false)
}

function biasLogits(logitBias: Readonly<Record<string, number>>): LogitsProcessor {
  const biases = Object.entries(logitBias).map(([id, bias]) => [Number(id), bias] as const)
  return (scores) => {
    for (const [tokenId, bias] of biases) {
      if (tokenId < scores.length) scores[tokenId] = (scores[tokenId] as number) + bias
    }
  }
}

// Keeps scores finite when the temperature is close to zero, so that the largest remains
// distinguishable: the quotient stays below 3.4e38.
const SCORE_MAX = 1e8

/**
 * Keskar et al. 2019 (CTRL): a seen token's score is divided by the penalty, or multiplied if
 * negative.
 */
function penalizeRepetition(penalty: number, promptTokenIds: readonly number[]): LogitsProcessor {
  const promptSet = new Set(promptTokenIds)
  const penalize = (scores: Float32Array, tokenId: number) => {
    const score = scores[tokenId] as number
    const penalized = score < 0 ? score * penalty : score / penalty
    scores[tokenId] = Math.min(penalized, SCORE_MAX)
  }
  return (scores, { counts }) => {
    for (const tokenId of promptSet) penalize(scores, tokenId)
    for (const tokenId of counts.keys()) if (!promptSet.has(tokenId)) penalize(scores, tokenId)
  }
}

/** Counts generated tokens only, never the prompt, as the API reference defines. */
function penalizeCounts(frequencyPenalty: number, presencePenalty: number): LogitsProcessor {
  return (scores, { counts }) => {
    for (const [tokenId, count] of counts) {
      scores[tokenId] = (scores[tokenId] as number) - count * frequencyPenalty - presencePenalty
    }
  }
}

/** If a grammar leaves only forbidden tokens, one of them is allowed. */
function banEarly({ tokens, tokenIds }: EarlyBan): LogitsProcessor {
  return (scores, { position }) => {
    if (position >= tokens) return
    const banned = [...tokenIds]
      .filter((tokenId) => tokenId < scores.length)
      .map((tokenId) => [tokenId, scores[tokenId] as number] as const)
    for (const [tokenId] of banned) scores[tokenId] = Number.NEGATIVE_INFINITY
    if (argmax(scores) >= 0) return
    for (const [tokenId, score] of banned) scores[tokenId] = score
  }
}
