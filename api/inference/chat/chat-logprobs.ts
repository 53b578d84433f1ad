import type { TokenLogprob } from '#shared/contracts/completion.ts'

interface PresentedLogprob {
  readonly token: string
  readonly logprob: number
  readonly bytes: readonly number[]
}

/** Presents the log-probabilities of an answer or a piece of it. */
export function presentChatLogprobs(entries: readonly TokenLogprob[]): {
  readonly content: readonly (PresentedLogprob & {
    readonly top_logprobs: readonly PresentedLogprob[]
  })[]
  readonly refusal: null
} {
  return {
    content: entries.map((entry) => ({
      ...presentLogprob(entry),
      top_logprobs: entry.top.map(presentLogprob),
    })),
    refusal: null,
  }
}

// JSON has no infinity. Clients read this value as "practically never".
const LOGPROB_FLOOR = -9999

function presentLogprob(entry: {
  readonly token: string
  readonly bytes: readonly number[]
  readonly logprob: number | null
}): PresentedLogprob {
  const { token, bytes, logprob } = entry
  return { token, logprob: Math.max(LOGPROB_FLOOR, logprob ?? LOGPROB_FLOOR), bytes }
}
