import type { Static } from 'typebox'

import { CACHE_CONTROL } from '#api/inference/chat/chat-tools.ts'
import {
  ineffective,
  optionalBoolean,
  optionalList,
  optionalObject,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { ofType } from '#shared/schemas.ts'

/** The most blocks of one text or one message. */
export const BLOCKS_MAX = 2048

const TEXT = Type.String()
const ANY = Type.Optional(Type.Unknown())
export const CALL_ID = Type.String({ minLength: 1, maxLength: 256 })
export const CALLED_NAME = Type.String({ minLength: 1, maxLength: 200 })

/** A block of text. */
export const TEXT_SHAPE = {
  text: TEXT,
  cache_control: CACHE_CONTROL,
  citations: optionalList(),
  parsed_output: Type.Optional(Type.Unknown()),
}
/** Blocks of text alone. */
export const TEXT_BLOCKS = Type.Array(variantSchema({ text: TEXT_SHAPE }), { maxItems: BLOCKS_MAX })

/** Blocks that are read as text. Answers contain no citations of documents. */
export const DOCUMENT_SHAPES = {
  document: {
    source: variantSchema(
      {
        text: { media_type: optionalString(), data: TEXT },
        content: { content: Type.Union([TEXT, TEXT_BLOCKS]) },
      },
      { instead: 'Documents are read as text: send the text of a PDF or its pages as images.' },
    ),
    title: optionalString(),
    context: optionalString(),
    citations: optionalObject(),
    cache_control: CACHE_CONTROL,
  },
  search_result: {
    source: TEXT,
    title: TEXT,
    content: TEXT_BLOCKS,
    citations: optionalObject(),
    cache_control: CACHE_CONTROL,
  },
}
const DOCUMENT = variantSchema(DOCUMENT_SHAPES)
type DocumentBlock = Static<typeof DOCUMENT>

const HOSTED_CALL = {
  id: CALL_ID,
  name: CALLED_NAME,
  input: ofType(['object']),
  server_name: optionalString(),
  cache_control: CACHE_CONTROL,
  caller: optionalObject(),
}
const HOSTED_RESULT = {
  tool_use_id: CALL_ID,
  content: Type.Optional(Type.Unknown()),
  is_error: optionalBoolean(),
  cache_control: CACHE_CONTROL,
  caller: optionalObject(),
}

/** Calls that a hosted server ran during an answer, and their results. */
export const HOSTED_SHAPES = {
  server_tool_use: HOSTED_CALL,
  mcp_tool_use: HOSTED_CALL,
  web_search_tool_result: HOSTED_RESULT,
  web_fetch_tool_result: HOSTED_RESULT,
  advisor_tool_result: HOSTED_RESULT,
  code_execution_tool_result: HOSTED_RESULT,
  bash_code_execution_tool_result: HOSTED_RESULT,
  text_editor_code_execution_tool_result: HOSTED_RESULT,
  tool_search_tool_result: HOSTED_RESULT,
  mcp_tool_result: HOSTED_RESULT,
}

/** Blocks about the operation of a hosted server, which mean nothing to a model. */
export const SERVER_SHAPES = {
  fallback: { from: ANY, to: ANY, trigger: ANY },
  mcp_tool_listing: { mcp_server_name: ANY, tools: ANY },
}

/** The summary with which a hosted server replaced the beginning of a conversation. */
export const COMPACTION_SHAPE = {
  content: optionalString(),
  encrypted_content: ineffective({ type: ['string', 'null'] }),
  signature: ANY,
  tool_changes: ineffective({ type: ['array', 'object', 'null'] }),
  cache_control: CACHE_CONTROL,
}
const COMPACTION = Type.Object(COMPACTION_SHAPE)

/**
 * The text of a summary; empty if compaction failed, after which the request has the whole
 * conversation. Throws when only another server can read it.
 */
export function compactionText(
  { content, encrypted_content: encrypted }: Static<typeof COMPACTION>,
  path: string,
): string {
  if (content) return `Summary of the conversation so far:\n${content}`
  if (!encrypted) return ''
  throw failure.invalidRequest(
    `${path}: only the server that wrote this summary can read it, and without it the conversation would lack its beginning.`,
    { param: path, code: 'invalid_value' },
  )
}

/** A document or a search result as text. */
export function documentText(block: DocumentBlock): string {
  if (block.type === 'search_result') {
    return joinLines([block.title, block.source, textOf(block.content)])
  }
  const { title, context, source } = block
  return joinLines([title, context, source.type === 'text' ? source.data : textOf(source.content)])
}

/** The result of a hosted call as text. */
export function hostedResultText(content: unknown): string {
  const isText = (block: unknown): block is { text: string } =>
    typeof block === 'object' && block !== null && 'text' in block && typeof block.text === 'string'
  if (Array.isArray(content) && content.every(isText)) return textOf(content)
  return typeof content === 'string' ? content : JSON.stringify(content ?? '')
}

function textOf(content: string | readonly { readonly text: string }[]): string {
  return typeof content === 'string' ? content : joinLines(content.map(({ text }) => text))
}

function joinLines(lines: readonly (string | null | undefined)[]): string {
  return lines.filter((line) => typeof line === 'string' && line !== '').join('\n')
}
