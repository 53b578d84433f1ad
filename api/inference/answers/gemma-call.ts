import type { CallBody, CallEvent } from './call-body.ts'
import { readLiteral } from './literals.ts'
import { BEGINNING_LENGTH_MAX } from './partial-tag.ts'

const GEMMA = { quotes: '"', delimiters: ['<escape>', '<|"|>'], hasPlainKeys: true }

/** Reads `call:name{key:value, …}`, whose strings are enclosed in special tokens. */
export class GemmaCall implements CallBody {
  readonly #opening: string
  #text = ''
  #argumentsStart: number | undefined

  constructor(opening: string) {
    this.#opening = opening
  }

  push(text: string): CallEvent[] {
    const isDecided = this.#text.length > BEGINNING_LENGTH_MAX
    this.#text += text
    if (isDecided || this.#argumentsStart !== undefined) return []
    const header = /^\s*call:([\w.-]+)(?=\{)/.exec(this.#text.slice(0, BEGINNING_LENGTH_MAX))
    if (header === null) return []
    this.#argumentsStart = header[0].length
    return [{ name: header[1] as string }]
  }

  finish(): { readonly events: readonly CallEvent[]; readonly rejected: string } {
    if (this.#argumentsStart === undefined) {
      return { events: [], rejected: this.#opening + this.#text }
    }
    const written = this.#text.slice(this.#argumentsStart)
    const found = readLiteral(written, GEMMA)
    // Arguments that were cut off are passed on unchanged, as in JSON.
    const text = found === undefined ? written : JSON.stringify(found.value)
    return { events: [{ arguments: text }], rejected: '' }
  }
}
