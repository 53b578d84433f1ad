import type { TokenPieces } from './token-pieces.ts'

/**
 * Turns tokens into text one at a time. What it returns, joined, is the text of all tokens decoded
 * at once: the bytes of an unfinished character are withheld until the character is whole.
 */
export class IncrementalDetokenizer {
  readonly #pieces: TokenPieces
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  #hasBegun: boolean
  #previous: number | undefined

  /** `continuesText` is true where something precedes the first token, so that its space stays. */
  constructor(pieces: TokenPieces, { continuesText }: { readonly continuesText: boolean }) {
    this.#pieces = pieces
    this.#hasBegun = continuesText
  }

  /** The characters that this token completes. */
  push(tokenId: number): string {
    const isRepeat = this.#pieces.dropsRepeats === true && tokenId === this.#previous
    this.#previous = tokenId
    if (isRepeat || this.#pieces.isSpecial(tokenId)) return ''
    const bytes = this.#hasBegun
      ? this.#pieces.bytesOf(tokenId)
      : this.#pieces.firstBytesOf(tokenId)
    this.#hasBegun = true
    return this.#decoder.decode(bytes, { stream: true })
  }

  /** The end of the text: an unfinished character becomes U+FFFD. */
  flush(): string {
    return this.#decoder.decode()
  }
}

/** The text of a whole list of tokens, special ones left out. */
export function decodeTokens(
  pieces: TokenPieces,
  tokenIds: readonly number[],
  options: { readonly continuesText: boolean } = { continuesText: false },
): string {
  const detokenizer = new IncrementalDetokenizer(pieces, options)
  return tokenIds.map((tokenId) => detokenizer.push(tokenId)).join('') + detokenizer.flush()
}

/** What may be shown of an answer after some text has arrived. */
interface StopVerdict {
  readonly text: string
  /** True once a stop string has been met; nothing after it is ever shown. */
  readonly isStopped: boolean
}

/**
 * Watches a growing text for stop strings. It withholds exactly the longest end of the text that
 * could be the beginning of a stop string, so that no part of one is ever shown.
 */
export class StopStrings {
  readonly #stops: readonly string[]
  readonly #keepsStop: boolean
  #withheld = ''

  /** `keepsStop` shows the stop string itself before the text ends. */
  constructor(stops: readonly string[], { keepsStop = false } = {}) {
    this.#stops = stops.filter((stop) => stop !== '')
    this.#keepsStop = keepsStop
  }

  push(text: string): StopVerdict {
    if (this.#stops.length === 0) return { text, isStopped: false }
    const seen = this.#withheld + text
    const first = this.#firstStop(seen)
    if (first !== undefined) {
      this.#withheld = ''
      const text = seen.slice(0, this.#keepsStop ? first.end : first.start)
      return { text, isStopped: true }
    }
    const shown = seen.length - this.#suspiciousLength(seen)
    this.#withheld = seen.slice(shown)
    return { text: seen.slice(0, shown), isStopped: false }
  }

  /** The end of the text: the withheld text was no stop string after all. */
  flush(): string {
    const rest = this.#withheld
    this.#withheld = ''
    return rest
  }

  /** Where the stop string lies that is complete first: the same however the text was cut. */
  #firstStop(seen: string): { start: number; end: number } | undefined {
    let first: { start: number; end: number } | undefined
    for (const stop of this.#stops) {
      const start = seen.indexOf(stop)
      if (start < 0) continue
      const end = start + stop.length
      const isEarlier =
        first === undefined || end < first.end || (end === first.end && start < first.start)
      if (isEarlier) first = { start, end }
    }
    return first
  }

  #suspiciousLength(seen: string): number {
    const longest = Math.max(...this.#stops.map((stop) => stop.length - 1))
    for (let length = Math.min(longest, seen.length); length > 0; length -= 1) {
      const end = seen.slice(seen.length - length)
      if (this.#stops.some((stop) => stop.length > length && stop.startsWith(end))) return length
    }
    return 0
  }
}
