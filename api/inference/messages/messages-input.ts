import { MESSAGES_MAX } from '#api/inference/chat/chat-messages.ts'
import { CACHE_CONTROL } from '#api/inference/chat/chat-tools.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'
import type { ChatMessage, ChatToolCall } from '#shared/contracts/completion.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

const BLOCKS_MAX = 2048

interface TextBlock {
  readonly type: 'text'
  readonly text: string
}
interface ToolUseBlock {
  readonly type: 'tool_use'
  readonly id: string
  readonly name: string
  readonly input: object
}
interface ToolResultBlock {
  readonly type: 'tool_result'
  readonly tool_use_id: string
  readonly content?: string | readonly TextBlock[]
  readonly is_error?: boolean
}
/** The reasoning of an earlier answer, which the model is not shown again. */
interface ThinkingBlock {
  readonly type: 'thinking' | 'redacted_thinking'
}
type Block = TextBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock

/** One message as clients write it. */
export interface MessageField {
  readonly role: 'user' | 'assistant' | 'system'
  readonly content: string | readonly Block[]
}
/** The system message. */
export type SystemField = string | readonly TextBlock[]

const TEXT = { type: 'string' }
const TEXT_SHAPE = {
  required: ['text'],
  properties: {
    text: TEXT,
    cache_control: CACHE_CONTROL,
    citations: { type: ['array', 'null'] },
    parsed_output: {},
  },
}
const TEXT_BLOCKS = {
  type: 'array',
  maxItems: BLOCKS_MAX,
  items: variantSchema({ text: TEXT_SHAPE }),
}
const BLOCK = variantSchema({
  text: TEXT_SHAPE,
  tool_use: {
    required: ['id', 'name', 'input'],
    properties: {
      id: { type: 'string', minLength: 1, maxLength: 256 },
      name: { type: 'string', minLength: 1, maxLength: 200 },
      input: { type: 'object' },
      cache_control: CACHE_CONTROL,
      caller: { type: ['object', 'null'] },
    },
  },
  tool_result: {
    required: ['tool_use_id'],
    properties: {
      tool_use_id: { type: 'string', minLength: 1, maxLength: 256 },
      content: { anyOf: [TEXT, TEXT_BLOCKS] },
      is_error: { type: ['boolean', 'null'] },
      cache_control: CACHE_CONTROL,
    },
  },
  thinking: {
    required: ['thinking'],
    properties: { thinking: TEXT, signature: TEXT },
  },
  redacted_thinking: { required: ['data'], properties: { data: TEXT } },
})

/** The schema of `system`. */
export const SYSTEM_SCHEMA = {
  anyOf: [TEXT, TEXT_BLOCKS],
  description: 'The system message, as text or as blocks of text.',
}

/** The schema of `messages`. */
export const MESSAGES_SCHEMA = {
  type: 'array',
  minItems: 1,
  maxItems: MESSAGES_MAX,
  items: {
    type: 'object',
    required: ['role', 'content'],
    properties: {
      role: { type: 'string', enum: ['user', 'assistant', 'system'] },
      content: {
        anyOf: [TEXT, { type: 'array', maxItems: BLOCKS_MAX, items: BLOCK }],
      },
    },
    additionalProperties: false,
  },
  description: 'The conversation so far; an answer continues a last message of the assistant.',
}

/**
 * The conversation as chat templates read it: consecutive messages of one role are one message, and
 * each tool result is a message of its own. Throws when calls and results do not match.
 */
export function conversationOf(
  fields: readonly MessageField[],
  system: SystemField | undefined,
): readonly ChatMessage[] {
  checkToolResults(fields)
  const opening = system === undefined ? '' : textOf(system)
  const messages: ChatMessage[] = opening === '' ? [] : [{ role: 'system', content: opening }]
  for (const field of fields) {
    for (const message of messagesOf(field)) append(messages, message)
  }
  if (messages.every(({ role }) => role === 'system')) {
    throw fault('messages: at least one message is required', 'messages')
  }
  return messages
}

function messagesOf({ role, content }: MessageField): ChatMessage[] {
  if (typeof content === 'string') return content === '' ? [] : [{ role, content }]
  const text = textOf(content)
  if (role === 'assistant') {
    const toolCalls = content.flatMap((block) => (block.type === 'tool_use' ? [callOf(block)] : []))
    if (text === '' && toolCalls.length === 0) return []
    return [{ role, content: text, ...(toolCalls.length > 0 && { toolCalls }) }]
  }
  const results = content.flatMap((block) =>
    block.type === 'tool_result' ? [resultOf(block)] : [],
  )
  return text === '' ? results : [...results, { role, content: text }]
}

function append(messages: ChatMessage[], message: ChatMessage): void {
  const last = messages.at(-1)
  const isMergeable = last?.role === message.role && message.role !== 'tool'
  if (last === undefined || !isMergeable || last.toolCalls !== undefined) {
    messages.push(message)
    return
  }
  const content = `${last.content}\n\n${message.content}`
  messages[messages.length - 1] = { ...last, ...message, content }
}

function callOf({ id, name, input }: ToolUseBlock): ChatToolCall {
  return { id, name, arguments: JSON.stringify(input) }
}

function resultOf({ tool_use_id: toolCallId, content = '', is_error: isError }: ToolResultBlock) {
  const text = textOf(content)
  return { role: 'tool', toolCallId, content: isError === true ? `Error: ${text}` : text } as const
}

function textOf(content: string | readonly Block[]): string {
  if (typeof content === 'string') return content
  return content
    .flatMap((block) => (block.type === 'text' && block.text !== '' ? [block.text] : []))
    .join('\n')
}

/** Every call is answered in the message after it, and nothing else is. */
function checkToolResults(fields: readonly MessageField[]): void {
  let open = new Set<string>()
  for (const [index, { role, content }] of fields.entries()) {
    const blocks = typeof content === 'string' ? [] : content
    for (const block of blocks) {
      if (block.type === 'tool_result' && !open.delete(block.tool_use_id)) {
        throw fault(
          `messages.${index}.content: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${block.tool_use_id}. Each \`tool_result\` block must have a corresponding \`tool_use\` block in the previous message.`,
          `messages.${index}.content`,
        )
      }
      if (block.type === 'tool_use' && role !== 'assistant') {
        throw fault(
          `messages.${index}.content: \`tool_use\` blocks can only be in \`assistant\` messages.`,
          `messages.${index}.content`,
        )
      }
    }
    if (open.size > 0) throw unanswered(open, index - 1)
    open = new Set(blocks.flatMap((block) => (block.type === 'tool_use' ? [block.id] : [])))
  }
  if (open.size > 0) throw unanswered(open, fields.length - 1)
}

function unanswered(ids: ReadonlySet<string>, index: number): ServiceError {
  return fault(
    `messages.${index}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${[...ids].join(', ').slice(0, 200)}. Each \`tool_use\` block must have a corresponding \`tool_result\` block in the next message.`,
    `messages.${index}`,
  )
}

function fault(message: string, param: string): ServiceError {
  return failure.invalidRequest(message, { param, code: 'invalid_value' })
}
