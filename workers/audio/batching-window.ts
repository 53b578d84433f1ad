/**
 * A batching window for work that is prepared at the same time: a decoder run takes hardly longer
 * for four windows than for one, so a window waits for those whose preparation has already started.
 */
export class BatchingWindow {
  readonly #pending = new Set<Promise<unknown>>()

  /** Runs the work; resolves once all work that started before its end has ended too. */
  async join<Value>(work: Promise<Value>): Promise<Value> {
    this.#pending.add(work)
    try {
      await work
    } finally {
      this.#pending.delete(work)
    }
    await Promise.allSettled(this.#pending)
    return work
  }
}
