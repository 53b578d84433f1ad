import { CancelledError } from '#shared/errors.ts'

/** An item that waits for a batch. */
interface Waiting<Item, Result> {
  readonly item: Item
  readonly length: number
  readonly resolve: (result: Result) => void
  readonly reject: (reason: unknown) => void
  readonly signal: AbortSignal
}

/** The limits of a batch and the function that runs it. */
interface BatcherOptions<Item, Result> {
  /** A batch grows while `longest × count` stays within this. */
  readonly maxBatchTokens: number
  readonly maxBatchSize: number
  /** Batches that may run at the same time; one if absent. */
  readonly poolSize?: number
  /** The size limit of a batch while others run in parallel. */
  readonly sharedBatchTokens?: number | undefined
  /** How many tokens an item has. */
  lengthOf(item: Item): number
  /** Whether an item can join the batch of another one; all can if absent. */
  readonly canJoin?: (oldest: Item, item: Item) => boolean
  /**
   * Whether callers submit their next item as soon as they have a result. The next batch then waits
   * for them; otherwise the batches of two callers would alternate instead of merging.
   */
  readonly areItemsContinued?: boolean
  /** Receives the size of every batch. */
  readonly onBatch?: ((size: number) => void) | undefined
  /**
   * Runs one batch and returns results in the order of its items. `isAlone` means that no other
   * batch runs or waits.
   */
  run(items: readonly Item[], isAlone: boolean): Promise<readonly Result[]>
}

// Smaller runs cost about the same, so padding is free.
const PADDING_IS_FREE_TOKENS = 256
// A batch with a larger share of padding costs more than two batches.
const PADDING_SHARE_MAX = 0.2

/**
 * The only owner of waiting items. While batches run, the next one is assembled: it starts with the
 * oldest item of one job and is filled with the items closest to it in length, because a batch
 * costs its longest item times its size. Jobs start batches in turn, so that a job of thousands of
 * items does not delay the others until it ends.
 */
export class Batcher<Item, Result> {
  #waiting: Waiting<Item, Result>[] = []
  /** The signals of jobs, in the order in which they start batches. */
  readonly #turns = new Set<AbortSignal>()
  #numRunning = 0
  #isScheduled = false
  readonly #options: BatcherOptions<Item, Result>
  readonly #poolSize: number

  constructor(options: BatcherOptions<Item, Result>) {
    this.#options = options
    this.#poolSize = options.poolSize ?? 1
  }

  get waitingCount(): number {
    return this.#waiting.length
  }

  /**
   * The result of one item of the job that has this signal. Rejects with `CancelledError` when the
   * signal aborts before the item runs.
   */
  submit(item: Item, signal: AbortSignal): Promise<Result> {
    this.#turns.add(signal)
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, length: this.#options.lengthOf(item), resolve, reject, signal })
      if (this.#numRunning < this.#poolSize) this.#schedule()
    })
  }

  /** Items submitted in the same turn of the event loop share a batch. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.#start()
    })
  }

  #start(): void {
    while (this.#numRunning < this.#poolSize) {
      const batch = this.#nextBatch()
      if (batch.length === 0) return
      const isAlone = this.#numRunning === 0 && this.#waiting.length === 0
      this.#numRunning += 1
      void this.#run(batch, isAlone).finally(() => {
        this.#numRunning -= 1
        if (this.#options.areItemsContinued === true) this.#schedule()
        else this.#start()
      })
    }
  }

  async #run(batch: readonly Waiting<Item, Result>[], isAlone: boolean): Promise<void> {
    this.#options.onBatch?.(batch.length)
    try {
      const items = batch.map((entry) => entry.item)
      const results = await this.#options.run(items, isAlone)
      for (const [index, entry] of batch.entries()) entry.resolve(results[index] as Result)
    } catch (error) {
      for (const entry of batch) entry.reject(error)
    }
  }

  #nextBatch(): Waiting<Item, Result>[] {
    const { maxBatchTokens, maxBatchSize, sharedBatchTokens = maxBatchTokens } = this.#options
    const { canJoin = () => true } = this.#options
    const alive = this.#waiting.filter((entry) => !dropIfAborted(entry))
    const oldest = this.#nextInTurn(alive)
    if (oldest === undefined) {
      this.#waiting = []
      return []
    }
    const others = alive.filter((one) => one !== oldest && canJoin(oldest.item, one.item))
    others.sort((a, b) => Math.abs(a.length - oldest.length) - Math.abs(b.length - oldest.length))
    const batch = [oldest]
    const tokensMax = Math.min(maxBatchTokens, sharedBatchTokens)
    let longest = oldest.length
    let tokens = oldest.length
    for (const entry of others) {
      const width = Math.max(longest, entry.length)
      const padded = width * (batch.length + 1)
      if (batch.length === maxBatchSize || padded > tokensMax) break
      tokens += entry.length
      const padding = 1 - tokens / padded
      if (padded > PADDING_IS_FREE_TOKENS && padding > PADDING_SHARE_MAX) break
      longest = width
      batch.push(entry)
    }
    const taken = new Set(batch)
    this.#waiting = alive.filter((entry) => !taken.has(entry))
    return batch
  }

  /** The oldest item of the next job, which has its next turn after all others. */
  #nextInTurn(alive: readonly Waiting<Item, Result>[]): Waiting<Item, Result> | undefined {
    for (const job of this.#turns) {
      this.#turns.delete(job)
      const first = alive.find(({ signal }) => signal === job)
      if (first === undefined) continue
      this.#turns.add(job)
      return first
    }
    return undefined
  }
}

function dropIfAborted(entry: { signal: AbortSignal; reject(reason: unknown): void }): boolean {
  if (entry.signal.aborted) entry.reject(new CancelledError())
  return entry.signal.aborted
}
