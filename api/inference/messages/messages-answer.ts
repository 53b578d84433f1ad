import type { StreamPresenter } from '#api/inference/generate.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { messagesErrorBody } from './messages-errors.ts'
import type { MessageOutput, OutputBlock, OutputStep } from './messages-output.ts'

/** The fields that an answer has before its first token. */
interface MessageHead {
  readonly id: string
  readonly model: string
  readonly requestId: string | null
}

/** Presents a finished message. */
export function presentMessage(
  head: MessageHead,
  output: MessageOutput,
  usage: TokenUsage,
): object {
  return messageOf(head, {
    content: output.blocks.map(presentBlock),
    ...output.ending,
    usage: presentUsage(usage),
  })
}

/** Writes the named events of a streamed message. */
export function messagePresenter(head: MessageHead, output: MessageOutput): StreamPresenter {
  let promptTokens = 0
  return {
    started(tokens, { dialect } = {}) {
      promptTokens = tokens
      if (dialect !== undefined) output.reads(dialect)
    },
    opening() {
      const usage = presentUsage({ promptTokens, completionTokens: 0, cachedTokens: 0 })
      const message = messageOf(head, { content: [], ...output.ending, usage })
      return event('message_start', { message })
    },
    deltas: (deltas) =>
      deltas
        .flatMap((delta) => output.push(delta))
        .map(writeStep)
        .join(''),
    ending: (usage) =>
      event('message_delta', { delta: output.ending, usage: presentUsage(usage) }) +
      event('message_stop', {}),
    failing: (error) =>
      `event: error\ndata: ${JSON.stringify(messagesErrorBody(error, head.requestId))}\n\n`,
  }
}

function messageOf(
  { id, model }: MessageHead,
  state: { readonly content: readonly object[]; readonly usage: object },
): object {
  return { id, type: 'message', role: 'assistant', model, ...state }
}

/** Tokens that were read from the cache are not part of `input_tokens`. */
function presentUsage(usage: TokenUsage): object {
  const { promptTokens, completionTokens, cachedTokens, reasoningTokens = 0 } = usage
  return {
    input_tokens: promptTokens - cachedTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cachedTokens,
    output_tokens: completionTokens,
    output_tokens_details: { thinking_tokens: reasoningTokens },
    service_tier: 'standard',
  }
}

function presentBlock(block: OutputBlock): object {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text }
    case 'thinking':
      return { type: 'thinking', thinking: block.text, signature: '' }
    case 'tool_use':
      return { type: 'tool_use', id: block.id, name: block.name, input: inputOf(block.text) }
  }
}

/** The input of a call that was cut off is sent as text only in the stream. */
function inputOf(text: string): unknown {
  try {
    return JSON.parse(text === '' ? '{}' : text)
  } catch {
    return {}
  }
}

function writeStep({ index, ...step }: OutputStep): string {
  switch (step.kind) {
    case 'opened':
      return event('content_block_start', { index, content_block: emptyBlock(step.block) })
    case 'grown':
      return event('content_block_delta', { index, delta: deltaOf(step.block, step.text) })
    case 'closed':
      return event('content_block_stop', { index })
  }
}

function emptyBlock(block: OutputBlock): object {
  return presentBlock({ ...block, text: '' })
}

function deltaOf({ type }: OutputBlock, text: string): object {
  switch (type) {
    case 'text':
      return { type: 'text_delta', text }
    case 'thinking':
      return { type: 'thinking_delta', thinking: text }
    case 'tool_use':
      return { type: 'input_json_delta', partial_json: text }
  }
}

function event(type: string, fields: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`
}
