/** What may be shown of an answer after some text has arrived. */
interface StopVerdict {
  readonly text: string
  /** True once a stop string has been met; nothing after it is ever shown. */
  readonly isStopped: boolean
}

/**
 * Watches a growing text for stop strings. It withholds exactly the longest end of the text that
 * could be the beginning of a stop string, so that no part of one is ever shown.
 */
export class StopStrings {
  readonly #stops: readonly string[]
  readonly #keepsStop: boolean
  #withheld = ''

  /** `keepsStop` shows the stop string itself before the text ends. */
  constructor(stops: readonly string[], { keepsStop = false } = {}) {
    this.#stops = stops.filter((stop) => stop !== '')
    this.#keepsStop = keepsStop
  }

  push(text: string): StopVerdict {
    if (this.#stops.length === 0) return { text, isStopped: false }
    const seen = this.#withheld + text
    const first = this.#firstStop(seen)
    if (first !== undefined) {
      this.#withheld = ''
      const text = seen.slice(0, this.#keepsStop ? first.end : first.start)
      return { text, isStopped: true }
    }
    const shown = seen.length - this.#suspiciousLength(seen)
    this.#withheld = seen.slice(shown)
    return { text: seen.slice(0, shown), isStopped: false }
  }

  /** The end of the text: the withheld text was no stop string after all. */
  flush(): string {
    const rest = this.#withheld
    this.#withheld = ''
    return rest
  }

  /** Where the stop string lies that is complete first: the same however the text was cut. */
  #firstStop(seen: string): { start: number; end: number } | undefined {
    let first: { start: number; end: number } | undefined
    for (const stop of this.#stops) {
      const start = seen.indexOf(stop)
      if (start < 0) continue
      const end = start + stop.length
      const isEarlier =
        first === undefined || end < first.end || (end === first.end && start < first.start)
      if (isEarlier) first = { start, end }
    }
    return first
  }

  #suspiciousLength(seen: string): number {
    const longest = Math.max(...this.#stops.map((stop) => stop.length - 1))
    for (let length = Math.min(longest, seen.length); length > 0; length -= 1) {
      const end = seen.slice(seen.length - length)
      if (this.#stops.some((stop) => stop.length > length && stop.startsWith(end))) return length
    }
    return 0
  }
}
