import type { SamplingParams } from '#shared/contracts/completion.ts'

import { argmax } from './select.ts'

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

/** What the answer must be, besides how its tokens are drawn. */
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

/** Keskar et al. 2019 (CTRL): a seen token's score is divided by the penalty, or multiplied if negative. */
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

/** When a grammar leaves only forbidden tokens, one of them is allowed. */
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
