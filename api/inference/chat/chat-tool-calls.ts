import { ToolCallBody } from './tool-call-body.ts'

/** A parsed part of an answer: content or a tool call. */
export type AnswerPart =
  | { readonly type: 'content'; readonly text: string }
  | { readonly type: 'callStart'; readonly index: number; readonly name: string }
  | { readonly type: 'callArguments'; readonly index: number; readonly text: string }

interface ToolCallOptions {
  /** Calls beyond this number are dropped. */
  readonly callsMax: number
  /** A call was demanded, so that an answer that begins with a brace is one even without its tag. */
  readonly isForced: boolean
}

/** How a call begins and ends in the text of a model. */
const CALL_OPENS = '<tool_call>'
export const CALL_CLOSES = '</tool_call>'
const CUT_CALL = /^(?:<tool_call>)?\s*(?:\{|$)/

/**
 * Takes the text of an answer chunk by chunk and separates content from calls written as
 * `<tool_call>{"name": …, "arguments": {…}}</tool_call>`. Arguments are sent as they arise. Text
 * that might still become a tag is withheld, and so is white space, which is dropped around calls.
 * Text that looks like a call and is none is sent as content, letter by letter; but the beginning
 * of a call that the answer's end has cut off is dropped.
 */
export class ToolCallParser {
  readonly #options: ToolCallOptions
  #text = ''
  #body: ToolCallBody | undefined
  #calls = 0
  #hasContent = false
  #whiteSpace = ''

  constructor(options: ToolCallOptions) {
    this.#options = options
  }

  /** How many calls have been found. */
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
    if (this.#calls === 0 && this.#whiteSpace !== '') {
      parts.push({ type: 'content', text: this.#whiteSpace })
    }
    return parts
  }

  #step(parts: AnswerPart[]): boolean {
    if (this.#body !== undefined) return this.#stepInside(parts)
    if (this.#beginsBare()) {
      this.#body = new ToolCallBody('')
      return true
    }
    const at = this.#text.indexOf(CALL_OPENS)
    const end = at >= 0 ? at : this.#text.length - partialTagLength(this.#text, CALL_OPENS)
    this.#content(this.#text.slice(0, end), parts)
    this.#text = this.#text.slice(end)
    if (at < 0) return false
    this.#text = this.#text.slice(CALL_OPENS.length)
    this.#body = new ToolCallBody(CALL_OPENS)
    return true
  }

  #stepInside(parts: AnswerPart[]): boolean {
    const at = this.#text.indexOf(CALL_CLOSES)
    const end = at >= 0 ? at : this.#text.length - partialTagLength(this.#text, CALL_CLOSES)
    this.#feedBody(this.#text.slice(0, end), parts)
    this.#text = this.#text.slice(end)
    if (at < 0) return false
    this.#text = this.#text.slice(CALL_CLOSES.length)
    this.#closeBody(parts)
    return true
  }

  #beginsBare(): boolean {
    if (!this.#options.isForced || this.#calls > 0 || this.#hasContent) return false
    return /^\s*\{/.test(this.#whiteSpace + this.#text)
  }

  #feedBody(text: string, parts: AnswerPart[]): void {
    const body = this.#body as ToolCallBody
    for (const event of body.push(text)) this.#emitCall(event, parts)
  }

  #closeBody(parts: AnswerPart[], { isCut = false } = {}): void {
    const body = this.#body as ToolCallBody
    this.#body = undefined
    const { events, rejected } = body.finish()
    for (const event of events) this.#emitCall(event, parts)
    if (rejected !== '' && !(isCut && CUT_CALL.test(rejected))) this.#content(rejected, parts)
  }

  #emitCall(event: { name: string } | { arguments: string }, parts: AnswerPart[]): void {
    if ('name' in event) {
      this.#calls += 1
      this.#whiteSpace = ''
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
    const whole = this.#whiteSpace + text
    const visible = whole.trimEnd()
    this.#whiteSpace = whole.slice(visible.length)
    if (visible === '') return
    this.#hasContent = true
    parts.push({ type: 'content', text: visible })
  }
}

/** How many characters at the end of a text could be the beginning of a tag. */
export function partialTagLength(text: string, tag: string): number {
  for (let length = Math.min(tag.length - 1, text.length); length > 0; length -= 1) {
    if (text.endsWith(tag.slice(0, length))) return length
  }
  return 0
}
