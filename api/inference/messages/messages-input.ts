import type { Static } from 'typebox'

import { MESSAGES_MAX } from '#api/inference/chat/chat-messages.ts'
import { CACHE_CONTROL } from '#api/inference/chat/chat-tools.ts'
import { optionalBoolean, optionalObject, optionalString } from '#api/inference/field-schemas.ts'
import { checkJsonText } from '#api/inference/input-limits.ts'
import {
  type ImageSource,
  MessageContent,
  type RequestImages,
} from '#api/inference/request-images.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'
import type { ChatMessage, ChatToolCall } from '#shared/contracts/completion.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable, ofType } from '#shared/schemas.ts'

import {
  BLOCKS_MAX,
  CALL_ID,
  CALLED_NAME,
  COMPACTION_SHAPE,
  compactionText,
  DOCUMENT_SHAPES,
  documentText,
  HOSTED_SHAPES,
  hostedResultText,
  SERVER_SHAPES,
  TEXT_BLOCKS,
  TEXT_SHAPE,
} from './messages-blocks.ts'

const TEXT = Type.String()
const IMAGE_SHAPE = {
  source: variantSchema({
    base64: {
      media_type: choice(['image/jpeg', 'image/png', 'image/gif', 'image/webp']),
      data: TEXT,
    },
    url: { url: TEXT },
    file: { file_id: TEXT },
  }),
  cache_control: CACHE_CONTROL,
}
const RESULT_BLOCK = variantSchema({
  text: TEXT_SHAPE,
  image: IMAGE_SHAPE,
  // A tool that a search found. The model reads its name; all tools are offered to it anyway.
  tool_reference: {
    tool_name: CALLED_NAME,
    cache_control: CACHE_CONTROL,
  },
  ...DOCUMENT_SHAPES,
})
const RESULT_BLOCKS = Type.Array(RESULT_BLOCK, { maxItems: BLOCKS_MAX })
const BLOCK = variantSchema({
  text: TEXT_SHAPE,
  image: IMAGE_SHAPE,
  tool_use: {
    id: CALL_ID,
    name: CALLED_NAME,
    input: ofType(['object']),
    cache_control: CACHE_CONTROL,
    caller: optionalObject(),
  },
  tool_result: {
    tool_use_id: CALL_ID,
    content: Type.Optional(Type.Union([nullable(TEXT), RESULT_BLOCKS])),
    is_error: optionalBoolean(),
    cache_control: CACHE_CONTROL,
  },
  // The reasoning of an earlier answer, for models whose chat template reads it.
  thinking: { thinking: TEXT, signature: optionalString() },
  redacted_thinking: { data: TEXT },
  compaction: COMPACTION_SHAPE,
  ...DOCUMENT_SHAPES,
  ...HOSTED_SHAPES,
  ...SERVER_SHAPES,
})
type Block = Static<typeof BLOCK>
type ResultBlock = Static<typeof RESULT_BLOCK>
type ImageBlock = Extract<Block, { type: 'image' }>
type CallBlock = Extract<Block, { type: 'tool_use' | 'server_tool_use' | 'mcp_tool_use' }>
type ToolResultBlock = Extract<Block, { type: 'tool_result' }>

/** The schema of `system`. */
export const SYSTEM = Type.Union([nullable(TEXT), TEXT_BLOCKS], {
  description: 'The system message, as text or as blocks of text.',
})
type SystemField = Static<typeof SYSTEM>

const MESSAGE = Type.Object(
  {
    role: choice(['user', 'assistant', 'system']),
    content: Type.Union([TEXT, Type.Array(BLOCK, { maxItems: BLOCKS_MAX })]),
  },
  { additionalProperties: false },
)
type MessageField = Static<typeof MESSAGE>

/** The schema of `messages`. */
export const MESSAGES = Type.Array(MESSAGE, {
  minItems: 1,
  maxItems: MESSAGES_MAX,
  description:
    'The conversation so far. If the last message is from the assistant, the answer continues it.',
})

/**
 * The conversation in the form of chat templates: consecutive messages of one role are joined, and
 * each tool result is a separate message. Images are added to `images`. Throws when calls and
 * results do not match.
 */
export function conversationOf(
  fields: readonly MessageField[],
  system: SystemField | undefined,
  images: RequestImages,
): readonly ChatMessage[] {
  checkToolResults(fields)
  const { content: opening } = contentOf(system ?? '', 'system', images)
  const messages: ChatMessage[] = opening === '' ? [] : [{ role: 'system', content: opening }]
  for (const [index, field] of fields.entries()) {
    const path = `messages.${index}.content`
    for (const message of messagesOf(field, path, images)) append(messages, message)
  }
  if (messages.every(({ role }) => role === 'system')) {
    throw fault('messages: at least one message is required', 'messages')
  }
  return messages
}

function messagesOf(
  { role, content }: MessageField,
  path: string,
  images: RequestImages,
): ChatMessage[] {
  if (typeof content === 'string') return content === '' ? [] : [{ role, content }]
  const read = contentOf(content, path, images)
  const isEmpty = read.content === '' && read.images === undefined
  if (role !== 'user' && read.images !== undefined) {
    throw fault(`${path}: images can only be in \`user\` messages.`, path)
  }
  if (role === 'assistant') return answersOf(content, path, images)
  const results = content.flatMap((block, index) =>
    block.type === 'tool_result' ? [resultOf(block, `${path}.${index}.content`, images)] : [],
  )
  return isEmpty ? results : [...results, { role, ...read }]
}

/** The messages of an answer: the result of a hosted call is a message between its parts. */
function answersOf(content: readonly Block[], path: string, images: RequestImages): ChatMessage[] {
  const end = content.findIndex((block) => block.type.endsWith('_tool_result'))
  const part = end === -1 ? content : content.slice(0, end)
  const read = contentOf(part, path, images)
  const toolCalls = part.flatMap((block) => ('input' in block ? [callOf(block, path)] : []))
  const isEmpty = read.content === '' && toolCalls.length === 0
  const reasoning = part
    .flatMap((block) => (block.type === 'thinking' ? [block.thinking] : []))
    .join('\n')
  const answer: ChatMessage = {
    role: 'assistant',
    ...read,
    ...(reasoning !== '' && { reasoning }),
    ...(toolCalls.length > 0 && { toolCalls }),
  }
  const messages = isEmpty ? [] : [answer]
  const found = content[end]
  if (found === undefined || !('tool_use_id' in found)) return messages
  const result: ChatMessage = {
    role: 'tool',
    toolCallId: found.tool_use_id,
    content: hostedResultText(found.content),
  }
  return [...messages, result, ...answersOf(content.slice(end + 1), path, images)]
}

function append(messages: ChatMessage[], message: ChatMessage): void {
  const last = messages.at(-1)
  const isMergeable = last?.role === message.role && message.role !== 'tool'
  if (last === undefined || !isMergeable || last.toolCalls !== undefined) {
    messages.push(message)
    return
  }
  const before = `${last.content}\n\n`
  const content = before + message.content
  const moved = message.images?.map((image) => ({ ...image, at: image.at + before.length })) ?? []
  const images = [...(last.images ?? []), ...moved]
  messages[messages.length - 1] = {
    ...last,
    ...message,
    content,
    ...(images.length > 0 && { images }),
  }
}

// Templates parse the arguments, so they keep the limits of JSON inside a string.
function callOf({ id, name, input }: CallBlock, param: string): ChatToolCall {
  const text = JSON.stringify(input)
  checkJsonText(text, param)
  return { id, name, arguments: text }
}

function resultOf(block: ToolResultBlock, path: string, images: RequestImages): ChatMessage {
  const { tool_use_id: toolCallId, content, is_error: isError } = block
  const read = new MessageContent(isError === true ? 'Error: ' : '')
  readBlocks(content ?? '', { path, images, read })
  return { role: 'tool', toolCallId, ...read.fields }
}

function contentOf(
  content: string | readonly Block[],
  path: string,
  images: RequestImages,
): MessageContent['fields'] {
  const read = new MessageContent()
  readBlocks(content, { path, images, read })
  return read.fields
}

/** Adds texts, with a line break between them, and images. */
function readBlocks(
  content: string | readonly (Block | ResultBlock)[],
  target: {
    readonly path: string
    readonly images: RequestImages
    readonly read: MessageContent
  },
): void {
  const { path, images, read } = target
  if (typeof content === 'string') {
    read.addText(content)
    return
  }
  for (const [index, block] of content.entries()) {
    if (block.type === 'text' && block.text !== '') read.addText(block.text, '\n')
    if (block.type === 'tool_reference') read.addText(block.tool_name, '\n')
    if (block.type === 'document' || block.type === 'search_result') {
      read.addText(documentText(block), '\n')
    }
    if (block.type === 'compaction') {
      const summary = compactionText(block, `${path}.${index}`)
      if (summary !== '') read.addText(summary, '\n')
    }
    if (block.type !== 'image') continue
    read.addImage(images.add(sourceOf(block), { path: `${path}.${index}.source` }))
  }
}

function sourceOf({ source }: ImageBlock): ImageSource {
  switch (source.type) {
    case 'base64':
      return { kind: 'base64', data: source.data }
    case 'url':
      return { kind: 'url', url: source.url }
    case 'file':
      return { kind: 'file', fileId: source.file_id }
  }
}

/** Every call must be answered in the next message, and every result needs a call. */
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
