/** What may be shown of an answer after some text has arrived. */
export interface StopVerdict {
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
  #withheld = ''

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '')
  }

  push(text: string): StopVerdict {
    if (this.#stops.length === 0) return { text, isStopped: false }
    const seen = this.#withheld + text
    const found = this.#stops.map((stop) => seen.indexOf(stop)).filter((index) => index >= 0)
    if (found.length > 0) {
      this.#withheld = ''
      return { text: seen.slice(0, Math.min(...found)), isStopped: true }
    }
    const shown = seen.length - this.#suspiciousLength(seen)
    this.#withheld = seen.slice(shown)
    return { text: seen.slice(0, shown), isStopped: false }
  }

  /** The end of the text: what was withheld was no stop string after all. */
  flush(): string {
    const rest = this.#withheld
    this.#withheld = ''
    return rest
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
