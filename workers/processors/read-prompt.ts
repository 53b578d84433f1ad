import type { Prompt } from '#shared/contracts/completion.ts'

import type { WorkBudget } from '../preparation/work-budget.ts'
import { contentOnly, type RenderedText } from '../text/content-spans.ts'
import { renderChat, type TextModel } from '../text/text-model.ts'
import { encodeWithin } from '../text/tokenizer.ts'

/** Input of the tokenizer: a prompt of a request, or a text of which some parts are content. */
export type PromptSource =
  | Exclude<Prompt, { readonly form: 'tokenIds' }>
  | { readonly form: 'rendered'; readonly rendered: RenderedText }

/** A prompt as tokens; plain data, so that it passes between threads. */
export interface ReadPrompt {
  /** Absent when the text is far too long to be encoded at all. */
  readonly tokenIds?: readonly number[]
  readonly rendered: RenderedText
  readonly count: number
}

/** How a prompt is read. */
export interface ReadOptions {
  readonly addSpecialTokens: boolean
  /** More tokens are counted, or estimated where they are far too many. */
  readonly tokensMax: number
}

/** Renders and tokenizes a prompt. Charges the budget for the rendering. */
export async function readPromptSource(
  model: TextModel,
  source: PromptSource,
  { budget, ...options }: ReadOptions & { readonly budget: WorkBudget },
): Promise<ReadPrompt> {
  if (source.form === 'rendered') return encode(model, source.rendered, options)
  if (source.form === 'text') {
    // A raw prompt is the caller's own template: control tokens in it count, as in other servers.
    return encode(model, { text: source.text, content: [] }, options)
  }
  if (source.form === 'chat') {
    // Each has a token at least: thousands that cannot fit need not be put into the template first.
    const { length: count } = source.messages
    if (count > options.tokensMax) return { rendered: contentOnly(''), count }
    const tools = source.toolChoice === 'none' ? [] : (source.tools ?? [])
    const chat = renderChat(model, source.messages, tools, { ...source.template, budget })
    return encode(model, chat, options)
  }
  const text = editPrompt(source.instruction, source.input)
  if (model.chatTemplate === undefined) {
    return encode(model, contentOnly(`${text}\n`), { ...options, addSpecialTokens: true })
  }
  const chat = renderChat(model, [{ role: 'user', content: text }], [], { budget })
  return encode(model, chat, { ...options, addSpecialTokens: false })
}

async function encode(
  { tokenizer }: TextModel,
  rendered: RenderedText,
  options: ReadOptions,
): Promise<ReadPrompt> {
  const { text, content } = rendered
  const outcome = await encodeWithin(tokenizer, text, { ...options, content })
  return outcome.fits
    ? { tokenIds: outcome.tokenIds, rendered, count: outcome.tokenIds.length }
    : { rendered, count: outcome.estimatedTokens }
}

function editPrompt(instruction: string, input: string): string {
  const asked = instruction.trim()
  return `${asked}${/[:.?!]$/.test(asked) ? '' : ':'}\n${input}`
}

/** Larger sources are read in a thread; a source of this size takes some 50 ms. */
const INLINE_SIZE_MAX = 65_536
/** What a message adds to the work beyond its text, as characters. */
const SIZE_PER_MESSAGE = 100

/** Whether a prompt is read in a thread rather than on the event loop. */
export function isLarge(source: PromptSource): boolean {
  return sizeOf(source) > INLINE_SIZE_MAX
}

function sizeOf(source: PromptSource): number {
  if (source.form === 'rendered') return source.rendered.text.length
  if (source.form === 'text') return source.text.length
  if (source.form === 'edit') return source.input.length + source.instruction.length
  const { messages, tools = [], template } = source
  const sizes = messages.map(
    ({ content, toolCalls = [] }) =>
      SIZE_PER_MESSAGE +
      content.length +
      toolCalls.reduce((sum, call) => sum + SIZE_PER_MESSAGE + call.arguments.length, 0),
  )
  const text = sizes.reduce((sum, size) => sum + size, 0)
  const described = tools.length === 0 ? 0 : JSON.stringify(tools).length
  return text + described + JSON.stringify(template?.variables ?? '').length
}
