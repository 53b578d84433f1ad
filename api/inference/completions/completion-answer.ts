import type {
  Candidate,
  GenerateInput,
  Prompt,
  PromptLogprobs,
} from '#shared/contracts/completion.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { type CompletionLogprobs, countCodePoints, LogprobsWriter } from './completion-logprobs.ts'

/** The fields shared by all chunks and answers of one request. */
export interface AnswerHead {
  readonly id: string
  readonly created: number
  readonly model: string
  readonly systemFingerprint: string
}

/** Token counts as clients read them. */
export interface PresentedUsage {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
  readonly prompt_tokens_details: { readonly cached_tokens: number }
  readonly completion_tokens_details: { readonly reasoning_tokens: number }
}

/**
 * For each token of a prompt: its log-probability and those of the likeliest tokens, by token id.
 */
type PresentedPromptLogprobs = readonly (Readonly<
  Record<
    string,
    { readonly logprob: number; readonly rank: number; readonly decoded_token: string }
  >
> | null)[]

interface CompletionChoice {
  readonly text: string
  readonly index: number
  readonly logprobs: CompletionLogprobs | null
  readonly finish_reason: 'stop' | 'length'
  readonly token_ids?: readonly number[]
  readonly prompt_token_ids?: readonly number[]
  readonly prompt_logprobs?: PresentedPromptLogprobs
}

/** The answer to a completion request that is not a stream. */
export interface CompletionAnswer {
  readonly id: string
  readonly object: 'text_completion'
  readonly created: number
  readonly model: string
  readonly system_fingerprint: string
  readonly choices: readonly CompletionChoice[]
  readonly usage: PresentedUsage
}

/** Presents all candidates of a finished completion, in the order of their indexes. */
export function presentCompletion(
  head: AnswerHead,
  input: GenerateInput,
  outcome: {
    readonly candidates: readonly Candidate[]
    readonly usage: TokenUsage
    readonly promptTokenIds?: readonly (readonly number[])[]
    readonly promptLogprobs?: readonly PromptLogprobs[]
  },
): CompletionAnswer {
  return {
    id: head.id,
    object: 'text_completion',
    created: head.created,
    model: head.model,
    system_fingerprint: head.systemFingerprint,
    choices: outcome.candidates
      .toSorted((one, other) => one.index - other.index)
      .map((candidate) => ({
        text: candidate.text,
        index: candidate.index,
        logprobs:
          candidate.logprobs === undefined
            ? null
            : logprobsWriter(input, candidate.index).present(candidate.logprobs),
        finish_reason: candidate.finishReason === 'length' ? 'length' : 'stop',
        ...(outcome.promptTokenIds !== undefined && {
          token_ids: returnedIds(candidate),
          prompt_token_ids: outcome.promptTokenIds[Math.floor(candidate.index / input.n)],
        }),
        ...presentPromptLogprobs(outcome.promptLogprobs?.[Math.floor(candidate.index / input.n)]),
      })),
    usage: presentUsage(outcome.usage),
  }
}

/** The tokens of an answer, or of a piece of it, including the one that ended it. */
export function returnedIds({
  tokenIds,
  endTokenId,
}: Pick<Candidate, 'tokenIds' | 'endTokenId'>): readonly number[] {
  return endTokenId === undefined ? tokenIds : [...tokenIds, endTokenId]
}

/** Presents the log-probabilities of a prompt; empty where there are none. */
export function presentPromptLogprobs(prompt: PromptLogprobs | undefined): {
  readonly prompt_logprobs?: PresentedPromptLogprobs
} {
  if (prompt === undefined) return {}
  const present = (tokens: NonNullable<PromptLogprobs[number]>) =>
    Object.fromEntries(
      tokens.map(({ tokenId, token, ...score }) => [tokenId, { ...score, decoded_token: token }]),
    )
  return { prompt_logprobs: prompt.map((tokens) => tokens && present(tokens)) }
}

/** Presents token counts. */
export function presentUsage(usage: TokenUsage): PresentedUsage {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens ?? 0 },
  }
}

/**
 * The writer of one candidate's log-probabilities. Offsets start after a prompt that is not
 * returned.
 */
export function logprobsWriter(input: GenerateInput, index: number): LogprobsWriter {
  const prompt = input.prompts[Math.floor(index / input.n)]
  return new LogprobsWriter({
    startOffset: input.echo || prompt === undefined ? 0 : promptLength(prompt),
  })
}

// Only the worker knows the text of token ids, so offsets of their answers count from zero.
function promptLength(prompt: Prompt): number {
  return prompt.form === 'text' ? countCodePoints(prompt.text) : 0
}
