import { CALL_FORMATS } from '#shared/contracts/call-formats.ts'
import type { CallFormat, TagSyntax } from '#shared/contracts/call-syntax.ts'

import type { CallBody, CallEvent } from './call-body.ts'
import { GemmaCall } from './gemma-call.ts'
import { JsonCall } from './json-call.ts'
import { JsonCallList } from './json-call-list.ts'
import { NamedCall } from './named-call.ts'
import { PythonicCalls } from './pythonic-calls.ts'
import { type ParameterType, TaggedCall } from './tagged-call.ts'

/** Facts about a body other than its text. */
interface BodyOptions {
  readonly format: CallFormat
  /** The text before the body. */
  readonly opening: string
  /** Whether a call without an opening text names an offered tool. */
  readonly accepts: (name: string) => boolean
  /** Whether a tool of this name is offered. */
  readonly isOffered: (name: string) => boolean
  readonly typeOf: ParameterType
}

/** A model that writes JSON between tags may also write the tags of Qwen3-Coder there. */
const USUAL_TAGS: TagSyntax = CALL_FORMATS.qwen3_coder.tags

/** A body whose syntax follows from the format and from the first non-space character. */
export class ChosenBody implements CallBody {
  readonly #options: BodyOptions
  #body: CallBody | undefined
  #held = ''

  constructor(options: BodyOptions) {
    this.#options = options
  }

  /** If the format has a closing text, only that ends the body. */
  get rest(): string | undefined {
    return this.#options.format.closes === undefined ? this.#body?.rest : undefined
  }

  push(text: string): readonly CallEvent[] {
    if (this.#body !== undefined) return this.#body.push(text)
    this.#held += text
    // The text before is white space.
    const [first] = text.trimStart()
    if (first === undefined) return []
    this.#body = chooseBody(first, this.#options)
    return this.#body.push(this.#held)
  }

  finish(): { readonly events: readonly CallEvent[]; readonly rejected: string } {
    return this.#body?.finish() ?? { events: [], rejected: this.#options.opening + this.#held }
  }
}

function chooseBody(first: string, options: BodyOptions): CallBody {
  const { format, opening, accepts } = options
  const { syntax, closes, isNamed = false, isKeyed = false } = format
  const isInTags = first === '<' && closes !== undefined && !isNamed
  const tags = format.tags ?? (isInTags ? USUAL_TAGS : undefined)
  if (syntax === 'gemma') return new GemmaCall(opening)
  if (tags !== undefined && !'{['.includes(first)) return new TaggedCall({ ...options, tags })
  if (syntax === 'python' && first !== '{') return new PythonicCalls(opening, accepts)
  if (first === '[') return new JsonCallList(opening, accepts, isKeyed)
  if (isNamed && first !== '{') return new NamedCall(opening, { showsEnd: closes === undefined })
  if (closes === undefined) return new JsonCallList(opening, accepts)
  return new JsonCall(opening, accepts, isKeyed)
}
