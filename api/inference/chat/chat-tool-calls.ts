import type { CallBody, CallEvent } from '#api/inference/answers/call-body.ts'
import { ChosenBody } from '#api/inference/answers/choose-body.ts'
import { JsonCall } from '#api/inference/answers/json-call.ts'
import { findTag, TrailingSpace } from '#api/inference/answers/partial-tag.ts'
import { callFormat } from '#shared/contracts/call-formats.ts'
import type { CallFormat } from '#shared/contracts/call-syntax.ts'
import type { ToolDefinition } from '#shared/contracts/completion.ts'
import { isRecord } from '#shared/json.ts'

/** A parsed part of an answer: content, reasoning or a tool call. */
export type AnswerPart =
  | { readonly type: 'content'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | ({ readonly type: 'callStart'; readonly index: number; readonly name: string } & OfCustom)
  | ({ readonly type: 'callArguments'; readonly index: number; readonly text: string } & OfCustom)

interface OfCustom {
  /** The call is one of a custom tool: its text is the input, not arguments. */
  readonly isCustom?: boolean
}

interface ToolCallOptions {
  /** Calls beyond this number are dropped. */
  readonly callsMax: number
  /** A call was demanded, so an answer that begins with a brace is a call even without its tag. */
  readonly isForced: boolean
  /** How the family of the model writes calls; Hermes when absent. */
  readonly format?: CallFormat
  /** The offered tools. They distinguish calls from plain text, and numbers from strings. */
  readonly tools?: readonly ToolDefinition[]
}

/** The beginning of a call after its opening text, which the end of an answer may cut off. */
const CUT_CALL = /^\s*(?:$|[{[]|<f|call:|[\w.-]*$)/

/**
 * Separates content from calls in the text of an answer, chunk by chunk, in the format of the
 * model's family, such as `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. Arguments are
 * sent while they are written. Text that might still become a tag is withheld, and so is white
 * space, which is dropped around calls. Text that looks like a call but is not one is sent as
 * content unchanged, except for the beginning of a call that the end of the answer cut off, which
 * is dropped.
 */
export class ToolCallParser {
  readonly #options: ToolCallOptions
  readonly #format: CallFormat
  readonly #tags: readonly string[]
  #text = ''
  #body: CallBody | undefined
  #opening = ''
  #calls = 0
  #hasContent = false
  readonly #space = new TrailingSpace()

  constructor(options: ToolCallOptions) {
    this.#options = options
    this.#format = options.format ?? callFormat()
    this.#tags = [...this.#format.opens, ...(this.#format.wrappers ?? [])]
  }

  /** The number of calls found so far. */
  get callCount(): number {
    return this.#calls
  }

  /** Takes the next piece of text. */
  push(text: string): AnswerPart[] {
    this.#text += text
    const parts: AnswerPart[] = []
    while (this.#step(parts)) {
      // Each step consumes a tag or a body; the rest waits for more text.
    }
    return parts
  }

  /** Ends the answer and releases withheld text. */
  finish(): AnswerPart[] {
    const parts: AnswerPart[] = []
    if (this.#body !== undefined) {
      this.#feedBody(this.#text, parts)
      this.#closeBody(parts, { isCut: true })
    } else {
      this.#content(this.#text, parts)
    }
    this.#text = ''
    const space = this.#space.take()
    if (this.#calls === 0 && space !== '') parts.push({ type: 'content', text: space })
    return parts
  }

  #step(parts: AnswerPart[]): boolean {
    if (this.#body !== undefined) return this.#stepInside(parts)
    if (this.#beginsBare()) return true
    const { tag, at } = findTag(this.#text, this.#tags)
    this.#content(this.#text.slice(0, at), parts)
    this.#text = this.#text.slice(at)
    if (tag === undefined) return false
    this.#text = this.#text.slice(tag.length)
    if (this.#format.opens.includes(tag)) this.#openBody(tag)
    return true
  }

  #stepInside(parts: AnswerPart[]): boolean {
    const { closes } = this.#format
    const { tag, at } = findTag(this.#text, closes === undefined ? [] : [closes])
    this.#feedBody(this.#text.slice(0, at), parts)
    this.#text = this.#text.slice(at)
    const rest = this.#body?.rest
    if (rest !== undefined) {
      this.#text = rest + this.#text
      this.#closeBody(parts)
      return true
    }
    if (tag === undefined) return false
    this.#text = this.#text.slice(tag.length)
    this.#closeBody(parts)
    return true
  }

  /** Opens a body if the answer begins with a call without its opening text. */
  #beginsBare(): boolean {
    if (this.#calls > 0 || this.#hasContent) return false
    const [first] = this.#text.trimStart()
    if (first !== undefined && first === this.#format.bareStart) {
      const { tools = [] } = this.#options
      this.#openBody('', (name) => tools.some((tool) => tool.name === name))
      return true
    }
    if (!this.#options.isForced || first !== '{' || this.#format.syntax === 'gemma') return false
    this.#opening = ''
    this.#body = new JsonCall('')
    return true
  }

  #openBody(opening: string, accepts: (name: string) => boolean = () => true): void {
    const { tools = [] } = this.#options
    const names = new Set(tools.map(({ name }) => name))
    this.#opening = opening
    this.#body = new ChosenBody({
      format: this.#format,
      opening,
      accepts,
      isOffered: (name) => names.has(name),
      typeOf: (name, parameter) => typeOf(tools, name, parameter),
    })
  }

  #feedBody(text: string, parts: AnswerPart[]): void {
    const body = this.#body as CallBody
    for (const event of body.push(text)) this.#emitCall(event, parts)
  }

  #closeBody(parts: AnswerPart[], { isCut = false } = {}): void {
    const body = this.#body as CallBody
    this.#body = undefined
    const { events, rejected } = body.finish()
    for (const event of events) this.#emitCall(event, parts)
    if (rejected === '') return
    const isBare = this.#opening === '' && this.#format.bareStart !== undefined
    const isBeginning = CUT_CALL.test(rejected.slice(this.#opening.length))
    if (!(isCut && !isBare && isBeginning)) this.#content(rejected, parts)
  }

  #emitCall(event: CallEvent, parts: AnswerPart[]): void {
    if ('name' in event) {
      this.#calls += 1
      this.#space.take()
    }
    const index = this.#calls - 1
    if (index >= this.#options.callsMax) return
    parts.push(
      'name' in event
        ? { type: 'callStart', index, name: event.name }
        : { type: 'callArguments', index, text: event.arguments },
    )
  }

  #content(text: string, parts: AnswerPart[]): void {
    const visible = this.#space.push(text)
    if (visible === '') return
    this.#hasContent = true
    parts.push({ type: 'content', text: visible })
  }
}

/** The type of a parameter in the schema of its tool; undefined if the schema states none. */
function typeOf(tools: readonly ToolDefinition[], name: string, parameter: string): unknown {
  const schema = tools.find((tool) => tool.name === name)?.parameters as
    | { readonly properties?: Readonly<Record<string, unknown>> }
    | undefined
  const properties = schema?.properties
  if (properties === undefined || !Object.hasOwn(properties, parameter)) return undefined
  const property = properties[parameter]
  if (!isRecord(property)) return undefined
  const values = 'const' in property ? [property.const] : [property.enum ?? []].flat()
  // A choice between schemas, and one of other values than texts, may be anything but plain text.
  const isAny = 'anyOf' in property || values.some((value) => typeof value !== 'string')
  return property.type ?? (isAny ? 'any' : undefined)
}
