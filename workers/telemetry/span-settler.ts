/** What waits to be told. */
interface Pending {
  readonly timer: NodeJS.Timeout
  tell(isOwnerAlive: boolean): void
}

/** How long spans wait, and for whom. */
export interface SpanSettlerOptions {
  /** Longer than an owner's last sign of life counts, and than its own spans take to leave. */
  readonly delayMs: number
  /** Whether the process that waits for a job is alive. */
  isOwnerAlive(replyTo: string): Promise<boolean>
}

const PENDING_MAX = 20_000

/**
 * Holds the spans of ended runs back until it is known that their owner lived on to tell of its own:
 * below the spans of a killed process they would be orphans.
 */
export class SpanSettler {
  readonly #options: SpanSettlerOptions
  readonly #pending = new Set<Pending>()

  constructor(options: SpanSettlerOptions) {
    this.#options = options
  }

  /** Calls `tell` once, when it is known or when the worker ends. */
  settle(replyTo: string, tell: Pending['tell']): void {
    if (this.#pending.size >= PENDING_MAX) {
      tell(true)
      return
    }
    const timer = setTimeout(() => {
      this.#options
        .isOwnerAlive(replyTo)
        // Without an answer an orphan is the lesser evil.
        .catch(() => true)
        .then((isAlive) => this.#tell(pending, isAlive))
        .catch(() => undefined)
    }, this.#options.delayMs)
    timer.unref()
    const pending: Pending = { timer, tell }
    this.#pending.add(pending)
  }

  /** Tells all that is left. */
  flush(): void {
    for (const pending of [...this.#pending]) this.#tell(pending, true)
  }

  #tell(pending: Pending, isOwnerAlive: boolean): void {
    if (!this.#pending.delete(pending)) return
    clearTimeout(pending.timer)
    pending.tell(isOwnerAlive)
  }
}
