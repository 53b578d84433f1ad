import { partialTagLength } from '#api/inference/chat/chat-tool-calls.ts'

const OPENS = '<think>'
const CLOSES = '</think>'

/** A part of an answer: reasoning or the answer itself. */
interface ThinkingPart {
  readonly isThinking: boolean
  readonly text: string
}

/** Separates the reasoning at the beginning of an answer, between `<think>` and `</think>`. */
export class ThinkingParser {
  #state: 'beginning' | 'thinking' | 'answering' = 'beginning'
  #held = ''

  /** Takes the next piece of text. Text that may be part of a tag is held back. */
  push(text: string): ThinkingPart[] {
    this.#held += text
    const parts: ThinkingPart[] = []
    if (this.#state === 'beginning') this.#begin()
    if (this.#state === 'thinking') this.#think(parts)
    if (this.#state === 'answering') this.#release(false, this.#held.length, parts)
    return parts
  }

  /** Ends the answer and releases the held text. */
  finish(): ThinkingPart[] {
    const parts: ThinkingPart[] = []
    this.#release(this.#state === 'thinking', this.#held.length, parts)
    return parts
  }

  #begin(): void {
    const start = this.#held.trimStart()
    if (start.startsWith(OPENS)) {
      this.#held = start.slice(OPENS.length).replace(/^\n/, '')
      this.#state = 'thinking'
    } else if (!OPENS.startsWith(start)) this.#state = 'answering'
  }

  #think(parts: ThinkingPart[]): void {
    const at = this.#held.indexOf(CLOSES)
    if (at < 0) {
      // White space before the tag belongs to it.
      const tagAt = this.#held.length - partialTagLength(this.#held, CLOSES)
      this.#release(true, this.#held.slice(0, tagAt).trimEnd().length, parts)
      return
    }
    this.#release(true, this.#held.slice(0, at).trimEnd().length, parts)
    this.#held = this.#held.slice(this.#held.indexOf(CLOSES) + CLOSES.length).trimStart()
    this.#state = 'answering'
  }

  #release(isThinking: boolean, length: number, parts: ThinkingPart[]): void {
    const text = this.#held.slice(0, length)
    this.#held = this.#held.slice(length)
    if (text !== '') parts.push({ isThinking, text })
  }
}
