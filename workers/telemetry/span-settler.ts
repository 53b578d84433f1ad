/** A pending export. */
interface Pending {
  readonly timer: NodeJS.Timeout
  onSettled(isOwnerAlive: boolean): void
}

/** How long spans are held back, and the check of their owner. */
interface SpanSettlerOptions {
  /** Longer than the lifetime of an owner's heartbeat and the export of its own spans. */
  readonly delayMs: number
  /** Whether the owner of a job is alive. */
  isOwnerAlive(replyTo: string): Promise<boolean>
}

const PENDING_MAX = 20_000

/**
 * Holds back the spans of ended runs until their owner is known to have survived and exports its
 * own: below the spans of a killed process they would have no parent.
 */
export class SpanSettler {
  readonly #options: SpanSettlerOptions
  readonly #pending = new Set<Pending>()

  constructor(options: SpanSettlerOptions) {
    this.#options = options
  }

  /** Calls `onSettled` once, when the owner is known to live or when the worker ends. */
  settle(replyTo: string, onSettled: Pending['onSettled']): void {
    if (this.#pending.size >= PENDING_MAX) {
      onSettled(true)
      return
    }
    const timer = setTimeout(() => {
      this.#options
        .isOwnerAlive(replyTo)
        // Without an answer the spans are exported: an orphan is better than a missing span.
        .catch(() => true)
        .then((isAlive) => this.#finish(pending, isAlive))
        .catch(() => undefined)
    }, this.#options.delayMs)
    timer.unref()
    const pending: Pending = { timer, onSettled }
    this.#pending.add(pending)
  }

  /** Exports everything that is pending. */
  flush(): void {
    for (const pending of [...this.#pending]) this.#finish(pending, true)
  }

  #finish(pending: Pending, isOwnerAlive: boolean): void {
    if (!this.#pending.delete(pending)) return
    clearTimeout(pending.timer)
    pending.onSettled(isOwnerAlive)
  }
}
