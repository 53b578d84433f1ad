import type { AnswerPart } from '#api/inference/chat/chat-tool-calls.ts'

import { JsonScanner } from './call-body.ts'
import { BEGINNING_LENGTH_MAX, findTag } from './partial-tag.ts'

const MESSAGE = '<|message|>'
const HEADER_TAGS = ['<|start|>', '<|channel|>', '<|constrain|>', MESSAGE, '<|end|>'] as const
const BODY_TAGS = ['<|start|>', '<|channel|>', '<|end|>', '<|call|>', '<|return|>'] as const
const CALLED = /\bto=functions\.([\w.-]+)/
/** How the first header may continue after the prompt, which has opened it. */
const HEADER_STARTS = ['to=', '<|'] as const

/**
 * Reads the messages of the harmony format, whose channel and recipient give their kind: messages
 * of the analysis channel are reasoning, those to a function are its arguments, all others are
 * content.
 */
export class HarmonyParser {
  readonly #callsMax: number
  #text = ''
  #header = ''
  #place: 'beginning' | 'header' | 'content' | 'reasoning' | 'call' = 'beginning'
  #calls = 0
  /** Finds the end of the arguments; undefined after it. */
  #scanner: JsonScanner | undefined
  #hasContent = false

  constructor({ callsMax }: { readonly callsMax: number }) {
    this.#callsMax = callsMax
  }

  get callCount(): number {
    return this.#calls
  }

  push(text: string): AnswerPart[] {
    this.#text += text
    const parts: AnswerPart[] = []
    while (this.#step(parts)) {
      // Each step consumes a tag; the rest waits for more text.
    }
    return parts
  }

  finish(): AnswerPart[] {
    const parts: AnswerPart[] = []
    if (this.#place === 'beginning') this.#place = 'content'
    if (this.#place !== 'header') this.#emit(this.#text, parts)
    this.#text = ''
    return parts
  }

  #step(parts: AnswerPart[]): boolean {
    if (this.#place === 'beginning') {
      const begun = this.#text.trimStart()
      const isUndecided =
        this.#text.length < BEGINNING_LENGTH_MAX &&
        HEADER_STARTS.some((start) => begun.length < start.length && start.startsWith(begun))
      if (isUndecided) return false
      const isHeader = HEADER_STARTS.some((start) => begun.startsWith(start))
      this.#place = isHeader ? 'header' : 'content'
    }
    const isHeader = this.#place === 'header'
    const { tag, at } = findTag(this.#text, isHeader ? HEADER_TAGS : BODY_TAGS)
    if (isHeader) this.#header += this.#text.slice(0, at)
    else this.#emit(this.#text.slice(0, at), parts)
    this.#text = this.#text.slice(at)
    if (tag === undefined) return false
    this.#text = this.#text.slice(tag.length)
    if (tag === MESSAGE) this.#open(parts)
    else if (tag === '<|start|>' || !isHeader) this.#header = ''
    if (tag !== MESSAGE) this.#place = 'header'
    // A tag separates the words of a header.
    if (isHeader && tag !== '<|start|>') this.#header += ' '
    return true
  }

  #open(parts: AnswerPart[]): void {
    const header = this.#header
    this.#header = ''
    const name = CALLED.exec(header)?.[1]
    if (name !== undefined) {
      this.#place = 'call'
      this.#calls += 1
      this.#scanner = new JsonScanner()
      if (this.#calls > this.#callsMax) return
      parts.push({ type: 'callStart', index: this.#calls - 1, name })
      return
    }
    this.#place = /\banalysis\b/.test(header) ? 'reasoning' : 'content'
    // A preamble and the answer are separate messages.
    if (this.#place === 'content' && this.#hasContent) parts.push({ type: 'content', text: '\n' })
  }

  #emit(text: string, parts: AnswerPart[]): void {
    if (text === '') return
    if (this.#place === 'call') {
      if (this.#scanner === undefined) return
      const { end, isWhole } = this.#scanner.scan(text, 0)
      if (isWhole) this.#scanner = undefined
      const index = this.#calls - 1
      if (index >= this.#callsMax) return
      parts.push({ type: 'callArguments', index, text: text.slice(0, end) })
      return
    }
    const type = this.#place === 'reasoning' ? 'reasoning' : 'content'
    if (type === 'content') this.#hasContent = true
    parts.push({ type, text })
  }
}
