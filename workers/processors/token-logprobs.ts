import type { PromptLogprobs, TokenLogprob } from '#shared/contracts/completion.ts'
import type { ScoredToken } from '#workers/sampling/logprobs.ts'
import type { TokenPieces } from '#workers/text/detokenizer.ts'

/** The score of a token; the log-probability is null for the first token of a text. */
export interface TokenScore {
  readonly logprob: number | null
  readonly top: readonly ScoredToken[]
}

/** A token of a prompt with its score, and its rank by likelihood. */
export interface PromptScore extends TokenScore {
  readonly logprob: number
  readonly rank: number
}

/** A token with its score in the wire format. */
export function presentLogprob(
  pieces: TokenPieces,
  tokenId: number,
  score: TokenScore,
): TokenLogprob {
  return withBytes(pieces.bytesOf(tokenId), tokenId, pieces, score)
}

/**
 * The scores of an echoed prompt. A marker that the tokenizer prepended has an empty text, so that
 * the joined tokens equal the prompt.
 */
export function presentPromptLogprobs(
  pieces: TokenPieces,
  prompt: { readonly text: string; readonly tokenIds: readonly number[] },
  scored: { readonly scores: readonly (TokenScore | undefined)[]; readonly alternatives: number },
): TokenLogprob[] {
  let hasBegun = false
  return prompt.tokenIds.map((tokenId, index) => {
    const own = hasBegun ? pieces.bytesOf(tokenId) : pieces.firstBytesOf(tokenId)
    const isAdded = index === 0 && pieces.isSpecial(tokenId) && !prompt.text.startsWith(textOf(own))
    hasBegun ||= !isAdded
    const { logprob = null, top = [] } = scored.scores[index] ?? {}
    const score = { logprob, top: top.slice(0, scored.alternatives) }
    return withBytes(isAdded ? new Uint8Array(0) : own, tokenId, pieces, score)
  })
}

/** The scores of all tokens of a prompt, including markers, with this many alternatives each. */
export function rankPrompt(
  pieces: TokenPieces,
  tokenIds: readonly number[],
  scored: { readonly scores: readonly (PromptScore | undefined)[]; readonly alternatives: number },
): PromptLogprobs {
  return tokenIds.map((tokenId, index) => {
    const score = scored.scores[index]
    if (score === undefined) return null
    const { logprob, rank, top } = score
    const others = top
      .slice(0, scored.alternatives)
      .map((other, at) => ({ ...other, rank: at + 1 }))
    const own = { tokenId, logprob, rank }
    return [own, ...others.filter((other) => other.tokenId !== tokenId)].map((one) => ({
      ...one,
      token: textOf(pieces.bytesOf(one.tokenId)),
    }))
  })
}

/** The same entry with token ids in place of texts. */
export function namedById(entry: TokenLogprob): TokenLogprob {
  const name = <Token extends { readonly tokenId: number }>(token: Token) => ({
    ...token,
    token: `token_id:${token.tokenId}`,
  })
  return { ...name(entry), top: entry.top.map(name) }
}

/** The same entry, cut to the visible characters of its token. */
export function cutLogprob(entry: TokenLogprob, characters: number): TokenLogprob {
  const token = entry.token.slice(0, characters)
  return { ...entry, token, bytes: [...Buffer.from(token)] }
}

function withBytes(
  bytes: Uint8Array,
  tokenId: number,
  pieces: TokenPieces,
  score: TokenScore,
): TokenLogprob {
  return {
    tokenId,
    token: textOf(bytes),
    bytes: [...bytes],
    logprob: score.logprob,
    top: score.top.map((other) => {
      const otherBytes = pieces.bytesOf(other.tokenId)
      return { ...other, token: textOf(otherBytes), bytes: [...otherBytes] }
    }),
  }
}

function textOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('utf8')
}
