import { type CallBody, type CallEvent, JsonScanner } from './call-body.ts'
import { JsonCall } from './json-call.ts'

interface ListedItem {
  readonly call: JsonCall
  readonly scanner: JsonScanner
}

/**
 * Reads `[{…}, {…}]`, or consecutive calls separated by semicolons. The list marks its own end. If
 * the first entry is not a call, the whole list is rejected.
 */
export class JsonCallList implements CallBody {
  readonly #opening: string
  readonly #accepts: (name: string) => boolean
  readonly #isKeyed: boolean
  #consumed = ''
  #item: ListedItem | undefined
  #place: 'before' | 'between' = 'before'
  #isBracketed = false
  #calls = 0
  #rejected = ''
  /** Text since the last call. It follows the list unless another call comes. */
  #held = ''
  rest: string | undefined

  constructor(opening: string, accepts: (name: string) => boolean, isKeyed = false) {
    this.#opening = opening
    this.#accepts = accepts
    this.#isKeyed = isKeyed
  }

  push(text: string): CallEvent[] {
    const events: CallEvent[] = []
    let at = 0
    while (at < text.length && this.rest === undefined) {
      at = this.#item === undefined ? this.#readBetween(text, at) : this.#readItem(text, at, events)
    }
    return events
  }

  finish(): { readonly events: readonly CallEvent[]; readonly rejected: string } {
    if (this.#item !== undefined) {
      const { events, rejected } = this.#item.call.finish()
      const isFirst = this.#calls === 0 && rejected !== ''
      return { events, rejected: isFirst ? this.#opening + this.#consumed : rejected }
    }
    if (this.rest === undefined && this.#calls === 0 && this.#rejected === '') {
      return { events: [], rejected: this.#opening + this.#consumed }
    }
    return { events: [], rejected: this.#rejected }
  }

  #readItem(text: string, from: number, events: CallEvent[]): number {
    const item = this.#item as ListedItem
    const { end, isWhole } = item.scanner.scan(text, from)
    const piece = text.slice(from, end)
    this.#consumed += this.#calls === 0 ? piece : ''
    events.push(...item.call.push(piece))
    if (!isWhole) return end
    const last = item.call.finish()
    events.push(...last.events)
    this.#item = undefined
    this.#place = 'between'
    if (last.rejected === '') this.#calls += 1
    else this.#reject(this.#calls === 0 ? this.#consumed : last.rejected, text.slice(end))
    return end
  }

  #readBetween(text: string, at: number): number {
    const character = text[at] as string
    if (character === '{' && (this.#place === 'before' || /[,;]/.test(this.#held))) {
      this.#held = ''
      this.#item = {
        call: new JsonCall('', this.#accepts, this.#isKeyed),
        scanner: new JsonScanner(),
      }
      return at
    }
    this.#consumed += this.#calls === 0 ? character : ''
    const isOpening = character === '[' && this.#place === 'before' && !this.#isBracketed
    if (isOpening) this.#isBracketed = true
    else if (character === ']' && this.#isBracketed) this.rest = text.slice(at + 1)
    else if (/\s/.test(character)) this.#held += character
    else if (this.#place === 'between' && /[,;]/.test(character) && !/[,;]/.test(this.#held)) {
      this.#held += character
    } else if (this.#place === 'before') this.#reject(this.#consumed, text.slice(at + 1))
    else this.rest = this.#held + text.slice(at)
    return at + 1
  }

  #reject(text: string, rest: string): void {
    this.#rejected = (this.#calls === 0 ? this.#opening : '') + text
    this.rest = rest
  }
}
