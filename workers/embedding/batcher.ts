import { CancelledError } from '#shared/errors.ts'

/** Something that waits for a place in a batch. */
interface Waiting<Item, Result> {
  readonly item: Item
  readonly length: number
  readonly resolve: (result: Result) => void
  readonly reject: (reason: unknown) => void
  readonly signal: AbortSignal
}

export interface BatcherOptions<Item, Result> {
  /** A batch grows while `longest × count` stays within this. */
  readonly maxBatchTokens: number
  readonly maxBatchSize: number
  /** How many tokens an item has. */
  lengthOf(item: Item): number
  /** Told the size of every batch. */
  readonly onBatch?: ((size: number) => void) | undefined
  /** Runs one batch; results in the order of its items. */
  run(items: readonly Item[]): Promise<readonly Result[]>
}

/**
 * The one owner of everything that waits to be embedded. While one batch runs, the next one gathers;
 * it starts with whatever has waited longest and is filled with the items nearest to it in length,
 * because a batch costs its longest item times its size.
 */
export class Batcher<Item, Result> {
  #waiting: Waiting<Item, Result>[] = []
  #isRunning = false
  readonly #options: BatcherOptions<Item, Result>

  constructor(options: BatcherOptions<Item, Result>) {
    this.#options = options
  }

  get waitingCount(): number {
    return this.#waiting.length
  }

  /** The result of one item. Rejects with `CancelledError` when the signal aborts before it runs. */
  submit(item: Item, signal: AbortSignal): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, length: this.#options.lengthOf(item), resolve, reject, signal })
      // Items of the same turn of the event loop travel together.
      if (!this.#isRunning) {
        this.#isRunning = true
        setImmediate(() => void this.#runAll())
      }
    })
  }

  async #runAll(): Promise<void> {
    for (let batch = this.#nextBatch(); batch.length > 0; batch = this.#nextBatch()) {
      this.#options.onBatch?.(batch.length)
      try {
        const results = await this.#options.run(batch.map((entry) => entry.item))
        for (const [index, entry] of batch.entries()) entry.resolve(results[index] as Result)
      } catch (error) {
        for (const entry of batch) entry.reject(error)
      }
    }
    this.#isRunning = false
  }

  #nextBatch(): Waiting<Item, Result>[] {
    const alive = this.#waiting.filter((entry) => !dropIfAborted(entry))
    const [oldest, ...others] = alive
    if (oldest === undefined) {
      this.#waiting = []
      return []
    }
    others.sort((a, b) => Math.abs(a.length - oldest.length) - Math.abs(b.length - oldest.length))
    const batch = [oldest]
    let longest = oldest.length
    for (const entry of others) {
      const width = Math.max(longest, entry.length)
      const isFull = batch.length === this.#options.maxBatchSize
      if (isFull || width * (batch.length + 1) > this.#options.maxBatchTokens) break
      longest = width
      batch.push(entry)
    }
    const taken = new Set(batch)
    this.#waiting = alive.filter((entry) => !taken.has(entry))
    return batch
  }
}

function dropIfAborted(entry: { signal: AbortSignal; reject(reason: unknown): void }): boolean {
  if (entry.signal.aborted) entry.reject(new CancelledError())
  return entry.signal.aborted
}
