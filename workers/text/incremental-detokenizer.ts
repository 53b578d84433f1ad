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
