/**
 * The events of one job between its owner and a consumer that may be slower. Bounded: beyond the
 * limit `push` says so, and the owner stops the run until `onCaughtUp`.
 */
export class EventBuffer<Event> {
  readonly #charsMax: number
  readonly #onCaughtUp: () => void
  #events: { readonly event: Event; readonly chars: number }[] = []
  #chars = 0
  #ending: { readonly error: unknown } | 'done' | undefined
  #wake: (() => void) | undefined

  constructor(charsMax: number, onCaughtUp: () => void) {
    this.#charsMax = charsMax
    this.#onCaughtUp = onCaughtUp
  }

  /** False when the consumer is too far behind; the event itself is kept. */
  push(event: Event, chars: number): boolean {
    this.#events.push({ event, chars })
    this.#chars += chars
    this.#wake?.()
    return this.#chars <= this.#charsMax
  }

  /** Ends the sequence after what is buffered. */
  finish(): void {
    this.#ending ??= 'done'
    this.#wake?.()
  }

  /** Ends the sequence with an error after what is buffered. */
  fail(error: unknown): void {
    this.#ending ??= { error }
    this.#wake?.()
  }

  async *drain(): AsyncGenerator<Event> {
    while (true) {
      const next = this.#events.shift()
      if (next !== undefined) {
        this.#chars -= next.chars
        yield next.event
        if (this.#events.length === 0) this.#onCaughtUp()
        continue
      }
      if (this.#ending === 'done') return
      if (this.#ending !== undefined) throw this.#ending.error
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
      this.#wake = undefined
    }
  }
}
