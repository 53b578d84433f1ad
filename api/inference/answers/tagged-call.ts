import type { TagSyntax } from '#shared/contracts/call-syntax.ts'

import type { CallBody, CallEvent } from './call-body.ts'
import { readLiteral } from './literals.ts'

/** The type of a parameter of a tool, as its schema states it. */
export type ParameterType = (tool: string, parameter: string) => unknown

interface TaggedOptions {
  readonly opening: string
  readonly tags: TagSyntax
  readonly typeOf: ParameterType
  /** Whether a tool of this name is offered. */
  readonly isOffered: (name: string) => boolean
}

const LITERALS = { quotes: '"\'', delimiters: [], hasPlainKeys: false }
const CDATA = { opens: '<![CDATA[', closes: ']]>' }
const BARE_NAME = /^\s*([\w.:-]+)(?=[\s<])/
const WHOLE_NAME = /^\s*([\w.:-]+)\s*$/

/**
 * Reads a call whose name and parameters are between tags, such as
 * `<function=name><parameter=key>value</parameter>…</function>`; a value is plain text.
 */
export class TaggedCall implements CallBody {
  readonly #options: TaggedOptions
  #text = ''
  #whole = ''
  #name: string | undefined
  #parameter: { readonly key: string; readonly attributes: string } | undefined
  #count = 0
  #isClosed = false

  constructor(options: TaggedOptions) {
    this.#options = options
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
    const { opening, tags, isOffered } = this.#options
    if (this.#name === undefined) {
      // A call without parameters may end behind its name.
      const [, name] = (tags.name[1] === '' ? WHOLE_NAME.exec(this.#text) : null) ?? []
      if (name === undefined || !isOffered(name)) {
        return { events: [], rejected: opening + this.#whole }
      }
      return { events: [{ name }, { arguments: '{}' }], rejected: '' }
    }
    const isCut = this.#parameter !== undefined
    const events = this.#isClosed || isCut ? [] : [{ arguments: '}' }]
    return { events, rejected: '' }
  }

  #step(events: CallEvent[]): boolean {
    if (this.#isClosed) return false
    if (this.#name === undefined) return this.#readName(events)
    if (this.#parameter !== undefined) return this.#readValue(this.#name, this.#parameter, events)
    this.#text = this.#text.trimStart()
    const { end } = this.#options.tags
    if (end === undefined || !this.#text.startsWith(end)) return this.#readKey()
    this.#isClosed = true
    events.push({ arguments: '}' })
    return true
  }

  #readName(events: CallEvent[]): boolean {
    const [before, after] = this.#options.tags.name
    const text = this.#text.trimStart()
    if (!text.startsWith(before)) return false
    const length = after === '' ? -1 : text.indexOf(after, before.length)
    const name =
      after === ''
        ? BARE_NAME.exec(text)?.[1]
        : /^[^\s<>"]+$/.exec(text.slice(before.length, Math.max(length, 0)))?.[0]
    if (name === undefined) return false
    this.#text = text.slice(before.length + name.length + after.length)
    this.#name = name
    events.push({ name }, { arguments: '{' })
    return true
  }

  #readKey(): boolean {
    const { key, value } = this.#options.tags
    if (!this.#text.startsWith(key[0])) return false
    const keyEnd = this.#text.indexOf(key[1], key[0].length)
    const between = keyEnd + key[1].length
    const start = keyEnd < 0 ? -1 : this.#text.indexOf(value[0], between)
    if (start < 0) return false
    this.#parameter = {
      key: this.#text.slice(key[0].length, keyEnd).trim(),
      attributes: this.#text.slice(between, start),
    }
    this.#text = this.#text.slice(start + value[0].length)
    return true
  }

  #readValue(
    name: string,
    { key, attributes }: { readonly key: string; readonly attributes: string },
    events: CallEvent[],
  ): boolean {
    const { tags, typeOf } = this.#options
    const { opens, closes } = CDATA
    if (tags.hasCdata === true && opens.startsWith(this.#text.slice(0, opens.length))) {
      if (this.#text.length < opens.length) return false
    }
    const isQuoted = tags.hasCdata === true && this.#text.startsWith(opens)
    const closing = isQuoted ? closes + tags.value[1] : tags.value[1]
    const at = this.#text.indexOf(closing)
    if (at < 0) return false
    const raw = this.#text.slice(isQuoted ? opens.length : 0, at)
    const written = isQuoted ? raw : raw.replace(/^\n/, '').replace(/\n$/, '')
    this.#text = this.#text.slice(at + closing.length)
    this.#parameter = undefined
    const comma = this.#count > 0 ? ', ' : ''
    const json = JSON.stringify(typed(written, statedType(attributes) ?? typeOf(name, key)))
    events.push({ arguments: `${comma}${JSON.stringify(key)}: ${json}` })
    this.#count += 1
    return true
  }
}

/** The type that the attribute `string` of a parameter states. */
function statedType(attributes: string): string | undefined {
  const [, isText] = /\bstring="(true|false)"/.exec(attributes) ?? []
  if (isText === undefined) return undefined
  return isText === 'true' ? 'string' : 'any'
}

/** A value whose type may be a string is a string; any other is read as a literal. */
function typed(text: string, type: unknown): unknown {
  if (type === undefined || [type].flat().includes('string')) return text
  return (readLiteral(text, LITERALS) ?? { value: text }).value
}
