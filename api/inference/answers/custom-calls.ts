import type { AnswerPart } from '#api/inference/chat/chat-tool-calls.ts'

import { CustomInput } from './custom-input.ts'

interface Parser {
  readonly callCount: number
  push(text: string): AnswerPart[]
  finish(): AnswerPart[]
}

/** Marks the calls of custom tools, and extracts their inputs from the arguments. */
export class CustomCallParser implements Parser {
  readonly #parser: Parser
  readonly #customNames: ReadonlySet<string>
  /** The call of a custom tool that is being written. */
  #open: { readonly index: number; readonly input: CustomInput } | undefined

  constructor(parser: Parser, customNames: ReadonlySet<string>) {
    this.#parser = parser
    this.#customNames = customNames
  }

  get callCount(): number {
    return this.#parser.callCount
  }

  push(text: string): AnswerPart[] {
    return this.#parser.push(text).flatMap((part) => this.#read(part))
  }

  finish(): AnswerPart[] {
    const last = this.#parser.finish().flatMap((part) => this.#read(part))
    return [...last, ...this.#close()]
  }

  #read(part: AnswerPart): AnswerPart[] {
    if (part.type === 'callArguments' && this.#open?.index === part.index) {
      return piece(part.index, this.#open.input.push(part.text))
    }
    const before = this.#close()
    if (part.type !== 'callStart' || !this.#customNames.has(part.name)) return [...before, part]
    this.#open = { index: part.index, input: new CustomInput() }
    return [...before, { ...part, isCustom: true }]
  }

  #close(): AnswerPart[] {
    const open = this.#open
    if (open === undefined) return []
    this.#open = undefined
    return piece(open.index, open.input.finish())
  }
}

function piece(index: number, text: string): AnswerPart[] {
  return text === '' ? [] : [{ type: 'callArguments', index, text, isCustom: true }]
}
