import type { TagSyntax } from '#shared/contracts/call-syntax.ts'

import type { CallBody, CallEvent } from './call-body.ts'
import { readLiteral } from './literals.ts'
import { BEGINNING_LENGTH_MAX, findTag } from './partial-tag.ts'

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
  /** Text that was not read yet. */
  #text = ''
  #whole = ''
  #name: string | undefined
  #parameter: { readonly key: string; readonly attributes: string } | undefined
  /** The beginning of a value, and the text that ends it once that is known. */
  #value = ''
  #closing: string | undefined
  #count = 0
  /** Whether nothing more is read. */
  #isClosed = false

  constructor(options: TaggedOptions) {
    this.#options = options
  }

  push(text: string): CallEvent[] {
    const events: CallEvent[] = []
    if (this.#name === undefined) this.#whole += text
    if (!this.#isClosed) this.#text += text
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
    if (end === undefined || !this.#text.startsWith(end)) {
      if (this.#readKey()) return true
      if (!this.#isTooLong) return false
    }
    this.#isClosed = true
    events.push({ arguments: '}' })
    return false
  }

  /** Whether the text should have contained the name or key that it begins with. */
  get #isTooLong(): boolean {
    return this.#text.length > BEGINNING_LENGTH_MAX
  }

  #readName(events: CallEvent[]): boolean {
    const [before, after] = this.#options.tags.name
    this.#text = this.#text.trimStart()
    this.#isClosed = this.#isTooLong
    const text = this.#text.slice(0, BEGINNING_LENGTH_MAX)
    if (!text.startsWith(before)) return false
    const length = after === '' ? -1 : text.indexOf(after, before.length)
    const name =
      after === ''
        ? BARE_NAME.exec(text)?.[1]
        : /^[^\s<>"]+$/.exec(text.slice(before.length, Math.max(length, 0)))?.[0]
    if (name === undefined) return false
    this.#text = this.#text.slice(before.length + name.length + after.length)
    this.#name = name
    this.#isClosed = false
    events.push({ name }, { arguments: '{' })
    return true
  }

  #readKey(): boolean {
    const { key, value } = this.#options.tags
    const text = this.#text.slice(0, BEGINNING_LENGTH_MAX)
    if (!text.startsWith(key[0])) return false
    const keyEnd = text.indexOf(key[1], key[0].length)
    const between = keyEnd + key[1].length
    const start = keyEnd < 0 ? -1 : text.indexOf(value[0], between)
    if (start < 0) return false
    this.#parameter = {
      key: text.slice(key[0].length, keyEnd).trim(),
      attributes: text.slice(between, start),
    }
    this.#text = this.#text.slice(start + value[0].length)
    return true
  }

  /** The text that ends a value; undefined while the beginning of the value is not known. */
  #findClosing(): string | undefined {
    const { hasCdata = false, value } = this.#options.tags
    if (!hasCdata) return value[1]
    if (this.#text.startsWith(CDATA.opens)) {
      this.#text = this.#text.slice(CDATA.opens.length)
      return CDATA.closes + value[1]
    }
    return CDATA.opens.startsWith(this.#text) ? undefined : value[1]
  }

  #readValue(
    name: string,
    { key, attributes }: { readonly key: string; readonly attributes: string },
    events: CallEvent[],
  ): boolean {
    const { typeOf } = this.#options
    this.#closing ??= this.#findClosing()
    if (this.#closing === undefined) return false
    const { tag, at } = findTag(this.#text, [this.#closing])
    this.#value += this.#text.slice(0, at)
    this.#text = this.#text.slice(at + (tag?.length ?? 0))
    if (tag === undefined) return false
    const isQuoted = tag.startsWith(CDATA.closes)
    const written = isQuoted ? this.#value : this.#value.replace(/^\n/, '').replace(/\n$/, '')
    this.#value = ''
    this.#closing = undefined
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
