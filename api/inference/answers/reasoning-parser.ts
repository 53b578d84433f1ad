import type { ReasoningFormat } from '#shared/contracts/answer-formats.ts'

import { partialTagLength } from './partial-tag.ts'

/** A part of an answer: reasoning or the answer itself. */
interface ReasoningPart {
  readonly isReasoning: boolean
  readonly text: string
}

/** Separates the reasoning at the beginning of an answer, between the tags of its family. */
export class ReasoningParser {
  readonly #format: ReasoningFormat
  #state: 'beginning' | 'reasoning' | 'behind' | 'answering'
  #held = ''
  #hasReasoned = false

  constructor(format: ReasoningFormat, { isOpen = false }: { readonly isOpen?: boolean } = {}) {
    this.#format = format
    this.#state = isOpen ? 'reasoning' : 'beginning'
  }

  /** Takes the next piece of text. Text that may be part of a tag is held back. */
  push(text: string): ReasoningPart[] {
    this.#held += text
    const parts: ReasoningPart[] = []
    if (this.#state === 'beginning') this.#begin()
    if (this.#state === 'reasoning') this.#reason(parts)
    if (this.#state === 'behind') this.#skipSpace()
    if (this.#state === 'answering') this.#release(false, this.#held.length, parts)
    return parts
  }

  /** Ends the answer and releases the held text. */
  finish(): ReasoningPart[] {
    const parts: ReasoningPart[] = []
    this.#release(this.#state === 'reasoning', this.#held.length, parts)
    return parts
  }

  #begin(): void {
    const start = this.#held.trimStart()
    const { opens } = this.#format
    const couldGoOn = opens.some((tag) => tag.length > start.length && tag.startsWith(start))
    const tag = opens.find((known) => start.startsWith(known))
    if (couldGoOn) return
    if (tag === undefined) {
      this.#state = 'answering'
      return
    }
    this.#held = start.slice(tag.length)
    this.#state = 'reasoning'
  }

  #reason(parts: ReasoningPart[]): void {
    if (!this.#hasReasoned) {
      // White space after the tag belongs to it.
      this.#held = this.#held.trimStart()
      if (this.#held === '') return
      this.#hasReasoned = true
    }
    const { closes } = this.#format
    const found = closes
      .map((tag) => ({ tag, at: this.#held.indexOf(tag) }))
      .filter(({ at }) => at >= 0)
      .toSorted((a, b) => a.at - b.at)[0]
    if (found === undefined) {
      // White space before the tag belongs to it.
      const partial = Math.max(...closes.map((tag) => partialTagLength(this.#held, tag)))
      const tagAt = this.#held.length - partial
      this.#release(true, this.#held.slice(0, tagAt).trimEnd().length, parts)
      return
    }
    this.#release(true, this.#held.slice(0, found.at).trimEnd().length, parts)
    this.#held = this.#held.trimStart().slice(found.tag.length)
    this.#state = 'behind'
  }

  /** White space after the reasoning belongs to its tag, even if it arrives in pieces. */
  #skipSpace(): void {
    this.#held = this.#held.trimStart()
    if (this.#held !== '') this.#state = 'answering'
  }

  #release(isReasoning: boolean, length: number, parts: ReasoningPart[]): void {
    const text = this.#held.slice(0, length)
    this.#held = this.#held.slice(length)
    if (text !== '') parts.push({ isReasoning, text })
  }
}
