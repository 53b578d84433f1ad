/**
 * Bounds the native calls in flight. They run on libuv's pool (four threads unless
 * UV_THREADPOOL_SIZE is set), which file access, DNS and password hashing share: with fewer calls
 * than threads, none of those waits for a model.
 */
export class RunQueue {
  readonly #concurrencyMax: number
  readonly #waiting: (() => void)[] = []
  #running = 0

  constructor(concurrencyMax: number) {
    this.#concurrencyMax = concurrencyMax
  }

  /**
   * Takes a place at once if one is free; otherwise returns a promise of one, in first-in order.
   */
  enter(): Promise<void> | undefined {
    if (this.#running < this.#concurrencyMax) {
      this.#running += 1
      return undefined
    }
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  /** Passes the place to the next waiting call. */
  leave(): void {
    const next = this.#waiting.shift()
    if (next === undefined) this.#running -= 1
    else next()
  }
}
