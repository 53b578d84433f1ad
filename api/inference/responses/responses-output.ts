import { createHash } from 'node:crypto'

import { type AnswerParser, answerParser } from '#api/inference/answers/answer-parser.ts'
import { toolCallId } from '#api/inference/chat/chat-answer.ts'
import { presentChatLogprobs } from '#api/inference/chat/chat-logprobs.ts'
import type { AnswerPart } from '#api/inference/chat/chat-tool-calls.ts'
import type { ToolPlan } from '#api/inference/chat/chat-tools.ts'
import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'
import type { FinishReason, TokenLogprob } from '#shared/contracts/completion.ts'

type ItemStatus = 'in_progress' | 'completed' | 'incomplete'

/** Log-probabilities as this dialect presents them. */
type OutputLogprobs = ReturnType<typeof presentChatLogprobs>['content']

/** A part of the text of a message. */
interface OutputText {
  readonly type: 'output_text'
  readonly text: string
  readonly annotations: readonly never[]
  readonly logprobs: OutputLogprobs
}

/** One item of a model's answer. */
export type OutputItem =
  | {
      readonly id: string
      readonly type: 'reasoning'
      readonly status: ItemStatus
      readonly summary: readonly never[]
      readonly content: readonly { readonly type: 'reasoning_text'; readonly text: string }[]
    }
  | {
      readonly id: string
      readonly type: 'message'
      readonly status: ItemStatus
      readonly role: 'assistant'
      readonly content: readonly OutputText[]
    }
  | {
      readonly id: string
      readonly type: 'function_call'
      readonly status: ItemStatus
      readonly call_id: string
      readonly name: string
      readonly namespace?: string
      readonly arguments: string
    }
  | {
      readonly id: string
      readonly type: 'custom_tool_call'
      readonly status: ItemStatus
      readonly call_id: string
      readonly name: string
      readonly namespace?: string
      readonly input: string
    }

/** The change of an item by one part of the answer. */
export type OutputStep =
  | { readonly kind: 'opened'; readonly index: number; readonly item: OutputItem }
  | {
      readonly kind: 'grown'
      readonly index: number
      readonly item: Pick<OutputItem, 'id' | 'type'>
      readonly text: string
      readonly logprobs: OutputLogprobs
    }
  | { readonly kind: 'closed'; readonly index: number; readonly item: OutputItem }

interface OpenMessage {
  readonly id: string
  readonly type: 'message'
  text: string
  logprobs: TokenLogprob[]
}
interface OpenCall {
  readonly id: string
  readonly type: 'function_call' | 'custom_tool_call'
  readonly callId: string
  readonly called: { readonly name: string; readonly namespace?: string }
  text: string
}
interface OpenReasoning {
  readonly id: string
  readonly type: 'reasoning'
  text: string
}
type OpenItem = OpenMessage | OpenCall | OpenReasoning

/**
 * Converts a model's text to items: messages and calls in their order, one open at a time. A
 * complete and a streamed answer give the same result.
 */
export class ResponseOutput {
  readonly #responseId: string
  readonly #tools: ToolPlan | undefined
  #dialect: AnswerDialect | undefined
  #parser: AnswerParser | undefined
  readonly #closed: OutputItem[] = []
  #open: OpenItem | undefined
  #hasBegun = false
  /** The answer, if it came in one piece. */
  #whole: { readonly text: string; readonly logprobs: readonly TokenLogprob[] } | undefined
  #searchFrom = 0
  // Log-probabilities of withheld text. They belong to the item that the text becomes.
  #logprobs: TokenLogprob[] = []

  constructor(responseId: string, tools: ToolPlan | undefined) {
    this.#responseId = responseId
    this.#tools = tools
    this.#parser = answerParser(tools, undefined)
  }

  /** Sets the dialect of the answer, before its first piece. */
  reads(dialect: AnswerDialect | undefined): void {
    this.#dialect = dialect
    this.#parser = answerParser(this.#tools, dialect)
  }

  /** Takes the next piece of the answer, or all of it. */
  push(piece: {
    readonly text: string
    readonly logprobs?: readonly TokenLogprob[]
    readonly finishReason?: FinishReason
  }): OutputStep[] {
    for (const logprob of piece.logprobs ?? []) this.#logprobs.push(logprob)
    const steps: OutputStep[] = []
    const isLast = piece.finishReason !== undefined
    if (isLast && !this.#hasBegun) this.#whole = { text: piece.text, logprobs: [...this.#logprobs] }
    this.#hasBegun = true
    for (const part of this.#partsOf(piece.text, isLast)) this.#take(part, steps)
    if (isLast) this.#finish(piece.finishReason === 'length' ? 'incomplete' : 'completed', steps)
    return steps
  }

  /** All items so far; an item that is still open is incomplete. */
  get items(): readonly OutputItem[] {
    if (this.#open === undefined) return [...this.#closed]
    return [...this.#closed, present(this.#open, 'incomplete')]
  }

  #partsOf(text: string, isLast: boolean): readonly AnswerPart[] {
    if (this.#parser === undefined) return text === '' ? [] : [{ type: 'content', text }]
    const parts = this.#parser.push(text)
    return isLast ? [...parts, ...this.#parser.finish()] : parts
  }

  #take(part: AnswerPart, steps: OutputStep[]): void {
    if (part.type === 'content') {
      if (this.#open?.type !== 'message') this.#openMessage(steps)
      this.#grow(part.text, steps)
      return
    }
    if (part.type === 'reasoning') {
      if (this.#open?.type !== 'reasoning') {
        this.#close('completed', steps)
        const id = this.#idOf('rs_', this.#closed.length)
        this.#begin({ id, type: 'reasoning', text: '' }, steps)
      }
      this.#grow(part.text, steps)
      this.#logprobs = []
      return
    }
    this.#logprobs = []
    if (part.type === 'callArguments') {
      this.#grow(part.text, steps)
      return
    }
    this.#close('completed', steps)
    const [prefix, type] = part.isCustom
      ? (['ctc_', 'custom_tool_call'] as const)
      : (['fc_', 'function_call'] as const)
    const id = this.#idOf(prefix, this.#closed.length)
    const callId = toolCallId(`${this.#responseId} 0`, part.index, this.#dialect)
    const called = this.#tools?.origins?.get(part.name) ?? { name: part.name }
    this.#begin({ id, type, callId, called, text: '' }, steps)
  }

  #openMessage(steps: OutputStep[]): void {
    this.#close('completed', steps)
    const id = this.#idOf('msg_', this.#closed.length)
    this.#begin({ id, type: 'message', text: '', logprobs: [] }, steps)
  }

  #begin(item: OpenItem, steps: OutputStep[]): void {
    this.#open = item
    steps.push({
      kind: 'opened',
      index: this.#closed.length,
      item: present(item, 'in_progress'),
    })
  }

  #grow(text: string, steps: OutputStep[]): void {
    const item = this.#open as OpenItem
    item.text += text
    const logprobs = item.type === 'message' ? this.#logprobs : []
    if (item.type === 'message') {
      for (const logprob of logprobs) item.logprobs.push(logprob)
      this.#logprobs = []
    }
    steps.push({
      kind: 'grown',
      index: this.#closed.length,
      text,
      item: { id: item.id, type: item.type },
      logprobs: presentChatLogprobs(logprobs).content,
    })
  }

  #finish(status: ItemStatus, steps: OutputStep[]): void {
    // An answer without text still has a message.
    if (this.#open === undefined && this.#closed.length === 0) this.#openMessage(steps)
    if (this.#open?.type === 'message') {
      for (const logprob of this.#logprobs) this.#open.logprobs.push(logprob)
    }
    this.#close(status, steps)
  }

  #close(status: ItemStatus, steps: OutputStep[]): void {
    const open = this.#open
    if (open === undefined) return
    // An answer in one piece includes the tokens around each message.
    if (open.type === 'message' && this.#whole !== undefined) {
      const { text, logprobs } = this.#whole
      const at = Math.max(text.indexOf(open.text, this.#searchFrom), this.#searchFrom)
      this.#searchFrom = at + open.text.length
      const start = Buffer.byteLength(text.slice(0, at))
      open.logprobs = tokensBetween(logprobs, start, start + Buffer.byteLength(open.text))
    }
    const item = present(open, status)
    steps.push({ kind: 'closed', index: this.#closed.length, item })
    this.#closed.push(item)
    this.#open = undefined
  }

  #idOf(prefix: string, index: number): string {
    return (
      prefix + this.#responseId.slice(RESPONSE_PREFIX.length) + index.toString(16).padStart(2, '0')
    )
  }
}

const RESPONSE_PREFIX = 'resp_'
/** An id of an output item: the digits of its response's id, and its position. */
const OUTPUT_ID = /^[a-z]+_([0-9a-f]{48})[0-9a-f]{2,}$/

/** The id of the response whose output contains the item. */
export function responseOfItem(id: string): string | undefined {
  const digits = OUTPUT_ID.exec(id)?.[1]
  return digits === undefined ? undefined : RESPONSE_PREFIX + digits
}

/** An id of this dialect, the prefix and 48 hexadecimal digits, derived from its source. */
export function hexId(prefix: string, source: string): string {
  return prefix + createHash('sha256').update(source).digest('hex').slice(0, 48)
}

/** The tokens that begin within a range of bytes; all of them if there is nothing else. */
function tokensBetween(
  logprobs: readonly TokenLogprob[],
  start: number,
  end: number,
): TokenLogprob[] {
  let at = 0
  return logprobs.filter(({ bytes }) => {
    const isInside = at >= start && at < end
    at += bytes.length
    return isInside
  })
}

function present(item: OpenItem, status: ItemStatus): OutputItem {
  const { id, type } = item
  if (type === 'reasoning') {
    const content = [{ type: 'reasoning_text' as const, text: item.text }]
    return { id, type, status, summary: [], content: status === 'in_progress' ? [] : content }
  }
  if (type === 'message') {
    const content = status === 'in_progress' ? [] : [outputText(item.text, item.logprobs)]
    return { id, type, status, role: 'assistant', content }
  }
  const { callId, called, text } = item
  if (type === 'custom_tool_call') {
    return { id, type, status, call_id: callId, ...called, input: text }
  }
  return { id, type, status, call_id: callId, ...called, arguments: text }
}

/** A part of a message. */
export function outputText(text: string, logprobs: readonly TokenLogprob[]): OutputText {
  return {
    type: 'output_text',
    text,
    annotations: [],
    logprobs: presentChatLogprobs(logprobs).content,
  }
}
