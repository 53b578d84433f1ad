import { sumWeights } from './exponentials.ts'
import { argmax, selectLargest } from './select.ts'

/** A token with its log-probability under the model, before any sampling parameter. */
export interface ScoredToken {
  readonly tokenId: number
  readonly logprob: number
}

/** The log of the sum of the exponentials, which converts a logit to a log-probability. */
function logSumExp(logits: Float32Array): number {
  const max = logits[argmax(logits)] ?? Number.NEGATIVE_INFINITY
  return max + Math.log(sumWeights(logits, { max, scale: 1 }))
}

/** The log-probability of one token. */
export function logprobOf(logits: Float32Array, tokenId: number): number {
  return Math.max((logits[tokenId] as number) - logSumExp(logits), LOGPROB_LOWEST)
}

/** A token's log-probability with the `count` likeliest tokens, best first. */
export function scoreToken(
  logits: Float32Array,
  tokenId: number,
  count: number,
): ScoredToken & { readonly top: readonly ScoredToken[] } {
  const normalizer = logSumExp(logits)
  const score = (id: number): ScoredToken => ({
    tokenId: id,
    logprob: Math.max((logits[id] as number) - normalizer, LOGPROB_LOWEST),
  })
  return {
    ...score(tokenId),
    top: count > 0 ? selectLargest(logits, count).map(score) : [],
  }
}

/** The rank of a token by likelihood: 1 for the likeliest. */
export function rankOf(logits: Float32Array, tokenId: number): number {
  const own = logits[tokenId] as number
  let rank = 1
  for (const logit of logits) if (logit > own) rank += 1
  return rank
}

/** JSON has no -Infinity; the API uses this value for an impossible token. */
const LOGPROB_LOWEST = -9999
