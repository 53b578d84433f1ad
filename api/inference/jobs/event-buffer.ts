/**
 * The events of one job between its owner and a consumer that may be slower. Bounded: beyond the
 * limit `push` says so, and the owner stops the run until `onCaughtUp`.
 */
export class EventBuffer<Event extends object> {
  readonly #charsMax: number
  readonly #onCaughtUp: () => void
  readonly #join: (earlier: Event, later: Event) => Event | undefined
  #events: { event: Event; chars: number }[] = []
  #chars = 0
  #ending: { readonly error: unknown } | 'done' | undefined
  #wake: (() => void) | undefined

  /** `join` makes one of two events that are read together, where they can be one. */
  constructor(
    charsMax: number,
    onCaughtUp: () => void,
    join: (earlier: Event, later: Event) => Event | undefined = () => undefined,
  ) {
    this.#charsMax = charsMax
    this.#onCaughtUp = onCaughtUp
    this.#join = join
  }

  /** False when the consumer is too far behind; the event itself is kept. */
  push(event: Event, chars: number): boolean {
    const last = this.#events.at(-1)
    const joined = last && this.#join(last.event, event)
    if (last !== undefined && joined !== undefined) {
      last.event = joined
      last.chars += chars
    } else {
      this.#events.push({ event, chars })
    }
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
