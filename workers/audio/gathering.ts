/**
 * Brings together what was prepared at the same time: a decoder's run takes hardly longer for four
 * windows than for one, so that windows wait for those that are being prepared already.
 */
export class Gathering {
  readonly #pending = new Set<Promise<unknown>>()

  /** The outcome of the work, once all other work has ended that had begun before this one ended. */
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
