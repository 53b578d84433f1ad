/** Parts of a call as it streams: its name once, then its arguments in pieces. */
export type CallEvent = { name: string } | { arguments: string }

/** Reads the text between the opening and the closing text of calls. */
export interface CallBody {
  push(text: string): readonly CallEvent[]
  /** Text after the body once the body has ended; undefined while it may continue. */
  readonly rest?: string | undefined
  /** Ends the body. `rejected` is its text that is not a call. */
  finish(): { readonly events: readonly CallEvent[]; readonly rejected: string }
}

/** Finds the end of a JSON object or array that is being written. */
export class JsonScanner {
  #depth = 0
  #isInString = false
  #isEscaped = false

  /**
   * Continues at a position. `end` is after the value, or after the text if the value is
   * incomplete.
   */
  scan(text: string, from: number): { readonly end: number; readonly isWhole: boolean } {
    for (let at = from; at < text.length; at += 1) {
      const character = text[at] as string
      if (this.#isInString) this.#readString(character)
      else if (character === '"') this.#isInString = true
      else if (character === '{' || character === '[') this.#depth += 1
      else if (character === '}' || character === ']') {
        this.#depth -= 1
        if (this.#depth === 0) return { end: at + 1, isWhole: true }
      }
    }
    return { end: text.length, isWhole: false }
  }

  #readString(character: string): void {
    if (this.#isEscaped) this.#isEscaped = false
    else if (character === '\\') this.#isEscaped = true
    else if (character === '"') this.#isInString = false
  }
}
