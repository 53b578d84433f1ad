import type { ReasoningFormat } from '#shared/contracts/answer-formats.ts'

import { BEGINNING_LENGTH_MAX, partialTagLength, TrailingSpace } from './partial-tag.ts'

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
  /** White space that belongs to the closing tag if that follows. */
  readonly #space = new TrailingSpace()
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
    if (this.#state === 'answering') this.#release(false, parts)
    return parts
  }

  /** Ends the answer and releases the held text. */
  finish(): ReasoningPart[] {
    const parts: ReasoningPart[] = []
    this.#held = this.#space.take() + this.#held
    this.#release(this.#state === 'reasoning', parts)
    return parts
  }

  #begin(): void {
    const start = this.#held.trimStart()
    const { opens } = this.#format
    const couldGoOn =
      this.#held.length < BEGINNING_LENGTH_MAX &&
      opens.some((tag) => tag.length > start.length && tag.startsWith(start))
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
    const partial = Math.max(...closes.map((tag) => partialTagLength(this.#held, tag)))
    const tagAt = found?.at ?? this.#held.length - partial
    const text = this.#space.push(this.#held.slice(0, tagAt))
    if (text !== '') parts.push({ isReasoning: true, text })
    this.#held = this.#held.slice(tagAt + (found?.tag.length ?? 0))
    if (found === undefined) return
    this.#space.take()
    this.#state = 'behind'
  }

  /** White space after the reasoning belongs to its tag, even if it arrives in pieces. */
  #skipSpace(): void {
    this.#held = this.#held.trimStart()
    if (this.#held !== '') this.#state = 'answering'
  }

  #release(isReasoning: boolean, parts: ReasoningPart[]): void {
    if (this.#held !== '') parts.push({ isReasoning, text: this.#held })
    this.#held = ''
  }
}
