import type { TokenLogprob } from '#shared/contracts/completion.ts'

/** Log-probabilities in the parallel arrays of `/v1/completions`. */
export interface CompletionLogprobs {
  tokens: string[]
  token_logprobs: (number | null)[]
  top_logprobs: (Record<string, number> | null)[]
  text_offset: number[]
}

/**
 * Writes the log-probabilities of one candidate, piece by piece. An offset counts the characters
 * (code points) before a token in prompt and answer together; a token that is a part of a character
 * starts where its character does.
 */
export class LogprobsWriter {
  readonly #decoder = new TextDecoder()
  #offset: number

  constructor(options: { readonly startOffset: number }) {
    this.#offset = options.startOffset
  }

  present(entries: readonly TokenLogprob[]): CompletionLogprobs {
    const presented: CompletionLogprobs = {
      tokens: entries.map(printableToken),
      token_logprobs: entries.map(({ logprob }) => logprob),
      top_logprobs: entries.map(topLogprobs),
      text_offset: [],
    }
    for (const { bytes } of entries) {
      presented.text_offset.push(this.#offset)
      const decoded = this.#decoder.decode(Uint8Array.from(bytes), { stream: true })
      this.#offset += countCodePoints(decoded)
    }
    return presented
  }
}

/** Characters as clients in most languages count them, surrogate pairs once. */
export function countCodePoints(text: string): number {
  let count = 0
  for (const _codePoint of text) count += 1
  return count
}

function topLogprobs(entry: TokenLogprob): Record<string, number> | null {
  if (entry.logprob === null) return null
  const chosen = entry.top.some(({ tokenId }) => tokenId === entry.tokenId)
    ? []
    : [[printableToken(entry), entry.logprob] as const]
  return Object.fromEntries([
    ...entry.top.map((other) => [printableToken(other), other.logprob] as const),
    ...chosen,
  ])
}

// Bytes that are not valid text are spelled out, so that each stays distinguishable.
function printableToken(entry: {
  readonly token: string
  readonly bytes: readonly number[]
}): string {
  if (!entry.token.includes('\uFFFD')) return entry.token
  if (Buffer.from(entry.token).equals(Buffer.from(entry.bytes))) return entry.token
  return `bytes:${entry.bytes.map((byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')}`
}
