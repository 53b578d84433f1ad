/**
 * Bounds how many native calls are in flight. They run on libuv's pool (four threads unless
 * UV_THREADPOOL_SIZE says otherwise), which file access, name resolution and password hashing share:
 * as long as fewer calls than threads run, none of those ever waits for a model.
 */
export class RunQueue {
  readonly #concurrencyMax: number
  readonly #waiting: (() => void)[] = []
  #running = 0

  constructor(concurrencyMax: number) {
    this.#concurrencyMax = concurrencyMax
  }

  /** Takes a place at once if there is one; otherwise returns the promise of one, in order of asking. */
  enter(): Promise<void> | undefined {
    if (this.#running < this.#concurrencyMax) {
      this.#running += 1
      return undefined
    }
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  /** Gives the place to the next one who waits. */
  leave(): void {
    const next = this.#waiting.shift()
    if (next === undefined) this.#running -= 1
    else next()
  }
}
