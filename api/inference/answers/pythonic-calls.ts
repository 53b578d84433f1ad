import type { CallBody, CallEvent } from './call-body.ts'
import { readLiteral } from './literals.ts'

const PYTHON = { quotes: '"\'', delimiters: [], hasPlainKeys: false }

/**
 * Reads `[name(key=value, …), …]`, or such calls on lines of their own. Each argument is passed on
 * as JSON once it is complete.
 */
export class PythonicCalls implements CallBody {
  readonly #opening: string
  readonly #accepts: (name: string) => boolean
  #text = ''
  #place: 'list' | 'name' | 'arguments' | 'behind' = 'list'
  #name = ''
  #argument = ''
  #arguments = 0
  #calls = 0
  #depth = 0
  #quote = ''
  #isEscaped = false
  #isRejected = false
  #isBracketed = false
  rest: string | undefined

  constructor(opening: string, accepts: (name: string) => boolean) {
    this.#opening = opening
    this.#accepts = accepts
  }

  push(text: string): CallEvent[] {
    const events: CallEvent[] = []
    for (let at = 0; at < text.length && this.rest === undefined; at += 1) {
      const character = text[at] as string
      if (this.#calls === 0) this.#text += character
      const goesOn =
        this.#place === 'arguments'
          ? this.#readArgument(character, events)
          : this.#readOutside(character, events)
      if (goesOn) continue
      // The bracket that closes the list is a part of it; any other character follows it.
      const isPart = character === ']' || this.#isRejected
      this.rest = text.slice(isPart ? at + 1 : at)
    }
    return events
  }

  finish(): { readonly events: readonly CallEvent[]; readonly rejected: string } {
    const isNone = this.#isRejected || this.#calls === 0
    return { events: [], rejected: isNone ? this.#opening + this.#text : '' }
  }

  #readOutside(character: string, events: CallEvent[]): boolean {
    if (/\s/.test(character) && this.#name === '') return true
    if (this.#place === 'list' && character === '[') {
      this.#isBracketed = true
      this.#place = 'name'
      return true
    }
    if (this.#place === 'behind' && (this.#isBracketed || character === ',')) {
      if (character !== ',') return false
      this.#place = 'name'
      return true
    }
    if (/[\w.-]/.test(character)) {
      this.#place = 'name'
      this.#name += character
      return true
    }
    if (character === '(' && this.#name !== '' && this.#accepts(this.#name)) {
      events.push({ name: this.#name }, { arguments: '{' })
      this.#calls += 1
      this.#arguments = 0
      this.#name = ''
      this.#place = 'arguments'
      return true
    }
    this.#isRejected = this.#calls === 0
    return false
  }

  #readArgument(character: string, events: CallEvent[]): boolean {
    if (this.#quote !== '') {
      this.#argument += character
      if (this.#isEscaped) this.#isEscaped = false
      else if (character === '\\') this.#isEscaped = true
      else if (character === this.#quote) this.#quote = ''
      return true
    }
    const isOutermost = this.#depth === 0
    if (isOutermost && (character === ',' || character === ')')) {
      this.#emit(events)
      if (character === ')') {
        events.push({ arguments: '}' })
        this.#place = 'behind'
      }
      return true
    }
    if (character === '"' || character === "'") this.#quote = character
    if (/[([{]/.test(character)) this.#depth += 1
    if (/[)\]}]/.test(character)) this.#depth = Math.max(this.#depth - 1, 0)
    this.#argument += character
    return true
  }

  /**
   * An argument without a name, or with a value that is not a literal, is passed on as text or
   * dropped.
   */
  #emit(events: CallEvent[]): void {
    const [, key, text] = /^\s*([A-Za-z_]\w*)\s*=([\s\S]*)$/.exec(this.#argument) ?? []
    this.#argument = ''
    if (key === undefined || text === undefined) return
    const value = readLiteral(text, PYTHON)
    const json = JSON.stringify(value === undefined ? text.trim() : value.value)
    events.push({ arguments: `${this.#arguments > 0 ? ', ' : ''}${JSON.stringify(key)}: ${json}` })
    this.#arguments += 1
  }
}
