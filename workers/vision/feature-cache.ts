/** Embeddings of an image. */
type Embeddings = Float32Array

/**
 * Embeddings of images by key, within a bound of bytes: the least recently used ones are dropped.
 * Concurrent requests for one key share its computation.
 */
export class FeatureCache {
  readonly #bytesMax: number
  readonly #entries = new Map<string, Promise<Embeddings>>()
  readonly #sizes = new Map<string, number>()
  #bytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /** The embeddings of a key; computed if missing. A failure is not cached. */
  get(key: string, compute: () => Promise<Embeddings>): Promise<Embeddings> {
    const known = this.#entries.get(key)
    if (known !== undefined) {
      this.#entries.delete(key)
      this.#entries.set(key, known)
      return known
    }
    const computing = compute()
    this.#entries.set(key, computing)
    computing.then(
      (embeddings) => this.#keep(key, embeddings.byteLength),
      () => this.#entries.delete(key),
    )
    return computing
  }

  #keep(key: string, bytes: number): void {
    this.#sizes.set(key, bytes)
    this.#bytes += bytes
    for (const oldest of this.#entries.keys()) {
      if (this.#bytes <= this.#bytesMax) return
      const size = this.#sizes.get(oldest)
      // An entry that is being computed has no size yet.
      if (size === undefined) continue
      this.#bytes -= size
      this.#sizes.delete(oldest)
      this.#entries.delete(oldest)
    }
  }
}
