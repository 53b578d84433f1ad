import type { CallBody, CallEvent } from './call-body.ts'
import { readLiteral } from './literals.ts'

/** The type of a parameter of a tool, as its schema states it. */
export type ParameterType = (tool: string, parameter: string) => unknown

const PARAMETER_CLOSES = '</parameter>'
const LITERALS = { quotes: '"\'', delimiters: [], hasPlainKeys: false }

/** Reads `<function=name><parameter=key>value</parameter>…</function>`; a value is plain text. */
export class XmlCall implements CallBody {
  readonly #opening: string
  readonly #typeOf: ParameterType
  #text = ''
  #whole = ''
  #name: string | undefined
  #parameter: string | undefined
  #count = 0
  #isClosed = false

  constructor(opening: string, typeOf: ParameterType) {
    this.#opening = opening
    this.#typeOf = typeOf
  }

  push(text: string): CallEvent[] {
    const events: CallEvent[] = []
    this.#text += text
    if (this.#name === undefined) this.#whole += text
    while (this.#step(events)) {
      // Each step consumes a tag or a value; the rest waits for more text.
    }
    return events
  }

  finish(): { readonly events: readonly CallEvent[]; readonly rejected: string } {
    if (this.#name === undefined) return { events: [], rejected: this.#opening + this.#whole }
    const isCut = this.#parameter !== undefined
    const events = this.#isClosed || isCut ? [] : [{ arguments: '}' }]
    return { events, rejected: '' }
  }

  #step(events: CallEvent[]): boolean {
    if (this.#isClosed) return false
    if (this.#name === undefined) return this.#readName(events)
    if (this.#parameter !== undefined) return this.#readValue(this.#parameter, events)
    const tag = /^\s*(?:<parameter=([^>]*)>|(<\/function>))/.exec(this.#text)
    if (tag === null) return false
    this.#text = this.#text.slice(tag[0].length)
    if (tag[1] !== undefined) this.#parameter = tag[1].trim()
    else {
      this.#isClosed = true
      events.push({ arguments: '}' })
    }
    return true
  }

  #readName(events: CallEvent[]): boolean {
    const header = /^\s*<function=([^>\s]+)>/.exec(this.#text)
    if (header === null) return false
    this.#text = this.#text.slice(header[0].length)
    this.#name = header[1] as string
    events.push({ name: this.#name }, { arguments: '{' })
    return true
  }

  #readValue(parameter: string, events: CallEvent[]): boolean {
    const at = this.#text.indexOf(PARAMETER_CLOSES)
    if (at < 0) return false
    const written = this.#text.slice(0, at).replace(/^\n/, '').replace(/\n$/, '')
    this.#text = this.#text.slice(at + PARAMETER_CLOSES.length)
    this.#parameter = undefined
    const type = this.#typeOf(this.#name as string, parameter)
    const comma = this.#count > 0 ? ', ' : ''
    const json = JSON.stringify(typed(written, type))
    events.push({ arguments: `${comma}${JSON.stringify(parameter)}: ${json}` })
    this.#count += 1
    return true
  }
}

/** A value whose type may be a string is a string; any other is read as a literal. */
function typed(text: string, type: unknown): unknown {
  if (type === undefined || [type].flat().includes('string')) return text
  return (readLiteral(text, LITERALS) ?? { value: text }).value
}
