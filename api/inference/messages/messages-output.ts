import { type AnswerParser, answerParser } from '#api/inference/answers/answer-parser.ts'
import type { AnswerPart } from '#api/inference/chat/chat-tool-calls.ts'
import type { ToolPlan } from '#api/inference/chat/chat-tools.ts'
import { derivedId } from '#api/v1/request-context.ts'
import type { AnswerDialect } from '#shared/contracts/answer-formats.ts'
import type { FinishReason } from '#shared/contracts/completion.ts'

/** A block of an answer; `text` of a call is the JSON of its input. */
export type OutputBlock =
  | { readonly type: 'text' | 'thinking'; text: string }
  | { readonly type: 'tool_use'; readonly id: string; readonly name: string; text: string }

/** The change of a block by one part of the answer. */
export type OutputStep =
  | { readonly kind: 'opened' | 'closed'; readonly index: number; readonly block: OutputBlock }
  | {
      readonly kind: 'grown'
      readonly index: number
      readonly block: OutputBlock
      readonly text: string
    }

type StopReason = 'end_turn' | 'max_tokens' | 'stop_sequence' | 'tool_use'

/** The settings of a request that shape its answer. */
interface OutputOptions {
  readonly messageId: string
  readonly tools: ToolPlan | undefined
  readonly stopSequences: readonly string[]
  /** Whether the request asks for the model's reasoning or refuses it. */
  readonly thinking: 'asked' | 'refused' | 'unsaid'
}

/** The dialect assumed for workers that report none. */
const THINKING: AnswerDialect = { calls: 'hermes', reasoning: 'think' }

/** Converts a model's text to blocks. A complete and a streamed answer give the same result. */
export class MessageOutput {
  readonly #options: OutputOptions
  #parser: AnswerParser | undefined
  readonly #blocks: OutputBlock[] = []
  #isOpen = false
  #stopReason: StopReason | null = null
  #stopSequence: string | null = null

  constructor(options: OutputOptions) {
    this.#options = options
    this.reads(options.thinking === 'asked' ? THINKING : undefined)
  }

  /** Sets the dialect of the answer, before its first piece. */
  reads(dialect: AnswerDialect | undefined): void {
    this.#parser = answerParser(this.#options.tools, dialect)
  }

  get blocks(): readonly OutputBlock[] {
    return this.#blocks
  }

  /** Why the answer ended; null before. */
  get ending(): { readonly stop_reason: StopReason | null; readonly stop_sequence: string | null } {
    return { stop_reason: this.#stopReason, stop_sequence: this.#stopSequence }
  }

  /** Takes the next piece of the answer, or all of it. */
  push(piece: { readonly text: string; readonly finishReason?: FinishReason }): OutputStep[] {
    const { finishReason } = piece
    const steps: OutputStep[] = []
    const text = finishReason === 'stop' ? this.#withoutStop(piece.text) : piece.text
    const isLast = finishReason !== undefined
    for (const part of this.#parse(text, isLast)) this.#take(part, steps)
    if (!isLast) return steps
    this.#close(steps)
    this.#stopReason = this.#reasonOf(finishReason)
    return steps
  }

  #withoutStop(text: string): string {
    const met = this.#options.stopSequences.find((sequence) => text.endsWith(sequence))
    if (met === undefined) return text
    this.#stopSequence = met
    return text.slice(0, -met.length)
  }

  #parse(text: string, isLast: boolean): readonly AnswerPart[] {
    if (this.#parser === undefined) return text === '' ? [] : [{ type: 'content', text }]
    return [...this.#parser.push(text), ...(isLast ? this.#parser.finish() : [])]
  }

  #take(part: AnswerPart, steps: OutputStep[]): void {
    if (part.type === 'content') this.#grow('text', part.text, steps)
    else if (part.type === 'reasoning') {
      if (this.#options.thinking !== 'refused') this.#grow('thinking', part.text, steps)
    } else if (part.type === 'callArguments') this.#extend(part.text, steps)
    else {
      const id = derivedId('toolu_', `${this.#options.messageId} ${part.index}`)
      this.#open({ type: 'tool_use', id, name: part.name, text: '' }, steps)
    }
  }

  #grow(type: 'text' | 'thinking', text: string, steps: OutputStep[]): void {
    if (!this.#isOpen || this.#blocks.at(-1)?.type !== type) this.#open({ type, text: '' }, steps)
    this.#extend(text, steps)
  }

  #open(block: OutputBlock, steps: OutputStep[]): void {
    this.#close(steps)
    this.#isOpen = true
    this.#blocks.push(block)
    steps.push({ kind: 'opened', index: this.#blocks.length - 1, block })
  }

  #extend(text: string, steps: OutputStep[]): void {
    const block = this.#blocks.at(-1)
    if (block === undefined || text === '') return
    block.text += text
    steps.push({ kind: 'grown', index: this.#blocks.length - 1, block, text })
  }

  #close(steps: OutputStep[]): void {
    const block = this.#blocks.at(-1)
    if (block === undefined || !this.#isOpen) return
    this.#isOpen = false
    steps.push({ kind: 'closed', index: this.#blocks.length - 1, block })
  }

  #reasonOf(reason: FinishReason): StopReason {
    if (reason === 'length') return 'max_tokens'
    if (this.#stopSequence !== null) return 'stop_sequence'
    return this.#blocks.some(({ type }) => type === 'tool_use') ? 'tool_use' : 'end_turn'
  }
}
