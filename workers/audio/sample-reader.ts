/**
 * Reads ranges of a decoded clip in rising order while it is still being decoded. Samples before
 * the last start are dropped, so memory is bounded by one window for clips of any length.
 */
export class SampleReader {
  #held: Float32Array<ArrayBufferLike> = new Float32Array(0)
  #start = 0
  #isAtEnd = false
  readonly #pieces: AsyncIterator<Float32Array>

  constructor(pieces: AsyncIterable<Float32Array>) {
    this.#pieces = pieces[Symbol.asyncIterator]()
  }

  /** Samples decoded so far; the total length once a read has returned fewer than requested. */
  get decodedSamples(): number {
    return this.#start + this.#held.length
  }

  /** Up to `length` samples starting at `start`; fewer at the end of the clip. */
  async read(start: number, length: number): Promise<Float32Array> {
    if (start < this.#start) throw new Error(`sample ${start} is already dropped`)
    const pieces: Float32Array[] = [this.#held]
    let end = this.#start + this.#held.length
    while (end < start + length && !this.#isAtEnd) {
      const { value, done } = await this.#pieces.next()
      if (done === true) {
        this.#isAtEnd = true
      } else {
        pieces.push(value)
        end += value.length
      }
    }
    this.#held = joinFrom(pieces, start - this.#start)
    this.#start = Math.min(start, end)
    return this.#held.slice(0, length)
  }

  /** Stops the decoder. */
  async close(): Promise<void> {
    await this.#pieces.return?.()
  }
}

/** Joins the chunks into one array, without the first `skip` samples. */
function joinFrom(pieces: readonly Float32Array[], skip: number): Float32Array {
  const total = pieces.reduce((sum, piece) => sum + piece.length, 0)
  const joined = new Float32Array(Math.max(0, total - skip))
  let at = -skip
  for (const piece of pieces) {
    const from = Math.max(0, -at)
    if (from < piece.length) joined.set(piece.subarray(from), at + from)
    at += piece.length
  }
  return joined
}
