import type { Static } from 'typebox'

import {
  invalidValue,
  missingParameter,
  optionalBoolean,
  optionalInteger,
  optionalList,
  optionalObject,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { checkJsonText } from '#api/inference/input-limits.ts'
import type { Guidance } from '#api/inference/reasoning-fields.ts'
import { DETAIL, MessageContent, type RequestImages } from '#api/inference/request-images.ts'
import { FILE_FIELDS, fileText } from '#api/inference/text-files.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'
import type { ChatMessage, Hint, TemplateOptions } from '#shared/contracts/completion.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, mapOf, nullable, ofType } from '#shared/schemas.ts'

import { CACHE_CONTROL } from './chat-tools.ts'
import { customArguments } from './custom-tools.ts'

const NAME_LENGTH_MAX = 64

/** Messages of one chat; a template takes some 40 µs of the event loop for each. */
export const MESSAGES_MAX = 2048

/** Calls of one message, and parts of its content. */
const CALLS_MAX = 128
const PARTS_MAX = 2048

const CLOSED = { additionalProperties: false }

const CALLED_FUNCTION = Type.Object(
  {
    name: Type.String({ minLength: 1 }),
    arguments: Type.String(),
    // The client library's parsed form of the arguments, which is ignored.
    parsed_arguments: Type.Optional(Type.Unknown()),
  },
  CLOSED,
)

const CALLED_CUSTOM = Type.Object(
  { name: Type.String({ minLength: 1 }), input: Type.String() },
  CLOSED,
)

const CALL_PLACE = { id: Type.String({ minLength: 1 }), index: optionalInteger({}) }
// Clients of Mistral's API send calls without a type.
const CALL = variantSchema(
  {
    function: { ...CALL_PLACE, function: CALLED_FUNCTION },
    custom: { ...CALL_PLACE, custom: CALLED_CUSTOM },
  },
  { fallback: 'function' },
)

const IMAGE_URL = Type.String({
  description: 'An image as a data URL, or as an https URL that the server fetches.',
})

const CONTENT_PART = Type.Object({
  type: choice(['text', 'refusal', 'image_url', 'file']),
  text: optionalString(),
  refusal: optionalString(),
  image_url: Type.Optional(
    Type.Union([nullable(IMAGE_URL), Type.Object({ url: IMAGE_URL, detail: DETAIL })]),
  ),
  file: Type.Optional(nullable(Type.Object(FILE_FIELDS))),
})

/** The fields of one message. */
export const MESSAGE_FIELDS = {
  role: choice(['developer', 'system', 'user', 'assistant', 'tool', 'function'], {
    description: '`developer` means the same as `system`; `function` is the older name of `tool`.',
  }),
  content: Type.Optional(
    Type.Union([
      ofType(['string', 'null']),
      // A tool without output may return an empty list of parts.
      Type.Array(CONTENT_PART, { maxItems: PARTS_MAX }),
    ]),
  ),
  // Load generators write an absent name as an empty one.
  name: optionalString({ maxLength: NAME_LENGTH_MAX, pattern: '^[^\\s<|\\\\/>]*$' }),
  tool_calls: Type.Optional(nullable(Type.Array(CALL, { maxItems: CALLS_MAX }))),
  tool_call_id: optionalString(),
  function_call: Type.Optional(nullable(CALLED_FUNCTION)),
  refusal: optionalString({ description: 'The refusal, in an assistant message without content.' }),
  reasoning: optionalString({ description: 'The same as `reasoning_content`.' }),
  reasoning_content: optionalString({
    description: 'The reasoning of an assistant message, for models whose chat template reads it.',
  }),
  // Clients send complete answers back; the model does not read these parts.
  annotations: optionalList(),
  reasoning_details: optionalList(),
  thinking_blocks: optionalList(),
  provider_specific_fields: optionalObject(),
  cache_control: CACHE_CONTROL,
  audio: Type.Optional(Type.Null()),
  parsed: Type.Optional(Type.Unknown()),
}

/** The rules that the schema states for each message; code checks those of its role. */
export const MESSAGE_RULES = {
  additionalProperties: false,
  allOf: [
    {
      if: { required: ['role'], properties: { role: { not: { const: 'assistant' } } } },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
      then: { required: ['content'] },
    },
    {
      if: { required: ['role'], properties: { role: { const: 'tool' } } },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
      then: { required: ['tool_call_id'] },
    },
  ],
}

/** One message as clients write it. */
export const MESSAGE = Type.Object(MESSAGE_FIELDS, MESSAGE_RULES)
export type MessageField = Static<typeof MESSAGE>

/**
 * Converts messages to the form that chat templates read, and adds their images to `images`. Throws
 * when the messages, which are at `path` of the request, are not a valid conversation.
 */
export function chatMessages(
  fields: readonly MessageField[],
  images: RequestImages,
  path = 'messages',
): readonly ChatMessage[] {
  const messages = fields.map((field, index) => presentable(field, `${path}[${index}]`, images))
  checkToolHistory(messages, fields, path)
  return messages
}

function presentable(field: MessageField, path: string, images: RequestImages): ChatMessage {
  const calls = callsOf(field, path)
  const hasName = typeof field.name === 'string' && field.name !== ''
  const name = hasName ? { name: field.name as string } : {}
  const content = contentOf(field, `${path}.content`, images) ?? refusalOf(field)
  const reasoning = field.role === 'assistant' ? reasoningOf(field) : {}
  const isEmpty = calls.length === 0 && reasoning.reasoning === undefined
  if (content === undefined && isEmpty) throw noContent(field, path)
  const message = { ...(content ?? { content: '' }), ...name }
  switch (field.role) {
    case 'developer':
    case 'system':
      return { role: 'system', ...message }
    case 'user':
      return { role: 'user', ...message }
    case 'assistant':
      return {
        role: 'assistant',
        ...message,
        ...reasoning,
        ...(calls.length > 0 && { toolCalls: calls }),
      }
    case 'tool':
      if (typeof field.tool_call_id !== 'string') throw missingParameter(`${path}.tool_call_id`)
      return { role: 'tool', ...message, toolCallId: field.tool_call_id }
    case 'function':
      if (!hasName) throw missingParameter(`${path}.name`)
      return { role: 'tool', ...message, toolCallId: legacyCallId(field.name as string) }
  }
}

function callsOf(field: MessageField, path: string): NonNullable<ChatMessage['toolCalls']> {
  const calls = field.tool_calls ?? []
  const legacy = field.function_call ?? undefined
  if (field.role !== 'assistant' && (calls.length > 0 || legacy !== undefined)) {
    const param = `${path}.${calls.length > 0 ? 'tool_calls' : 'function_call'}`
    throw failure.invalidRequest(
      `Invalid parameter: only messages with role 'assistant' may have '${param}'.`,
      { param, code: 'invalid_value' },
    )
  }
  if (legacy !== undefined) {
    checkJsonText(legacy.arguments, `${path}.function_call.arguments`)
    return [{ id: legacyCallId(legacy.name), name: legacy.name, arguments: legacy.arguments }]
  }
  return calls.map((call, index) => {
    const { id } = call
    if (call.type === 'custom') {
      return { id, name: call.custom.name, arguments: customArguments(call.custom.input) }
    }
    const { name, arguments: text } = call.function
    checkJsonText(text, `${path}.tool_calls[${index}].function.arguments`)
    return { id, name, arguments: text }
  })
}

function contentOf(
  { role, content }: MessageField,
  path: string,
  images: RequestImages,
): MessageContent['fields'] | undefined {
  if (content === null || content === undefined) return undefined
  if (typeof content === 'string') return { content }
  const read = new MessageContent()
  for (const [index, part] of content.entries()) {
    const place = `${path}[${index}]`
    const value = part[part.type]
    if (value === undefined || value === null) throw missingParameter(`${place}.${part.type}`)
    if (part.type === 'file') {
      read.addText(fileText(part.file ?? {}, `${place}.file`), '\n')
      continue
    }
    if (part.type !== 'image_url') {
      read.addText(value as string)
      continue
    }
    if (role !== 'user' && role !== 'tool') {
      throw invalidValue(
        `${place}.type`,
        "images are only allowed with the roles 'user' and 'tool'.",
      )
    }
    const image = part.image_url ?? ''
    const { url, detail } = typeof image === 'string' ? { url: image } : image
    read.addImage(images.add({ kind: 'url', url }, { path: `${place}.image_url`, detail }))
  }
  return read.fields
}

/** The refusal of an assistant message, which replaces its content. */
function refusalOf({ role, refusal }: MessageField): MessageContent['fields'] | undefined {
  return role === 'assistant' && typeof refusal === 'string' ? { content: refusal } : undefined
}

function reasoningOf(field: MessageField): Pick<ChatMessage, 'reasoning'> {
  const reasoning = field.reasoning_content ?? field.reasoning ?? ''
  return reasoning === '' ? {} : { reasoning }
}

/** Every call must be answered right after it was made, and every output needs a call. */
function checkToolHistory(
  messages: readonly ChatMessage[],
  fields: readonly MessageField[],
  path: string,
): void {
  let open = new Set<string>()
  let callerIndex = 0
  messages.forEach((message, index) => {
    const isLegacy = fields[index]?.role === 'function'
    if (message.role === 'tool') {
      if (isLegacy || open.delete(message.toolCallId as string)) return
      throw failure.invalidRequest(
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        { param: `${path}[${index}].role` },
      )
    }
    if (open.size > 0) throw unanswered(open, `${path}[${callerIndex}]`)
    // Clients that send complete answers back write null for missing fields.
    const wasLegacy = (fields[index]?.function_call ?? undefined) !== undefined
    open = new Set(wasLegacy ? [] : message.toolCalls?.map(({ id }) => id))
    callerIndex = index
  })
  if (open.size > 0) throw unanswered(open, `${path}[${callerIndex}]`)
}

function unanswered(callIds: ReadonlySet<string>, path: string): ServiceError {
  return failure.invalidRequest(
    `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: ${[...callIds].join(', ').slice(0, 200)}`,
    { param: `${path}.tool_calls` },
  )
}

function noContent(field: MessageField, path: string): ServiceError {
  if (field.content === undefined) return missingParameter(`${path}.content`)
  return failure.invalidRequest(
    `Invalid value for '${path}.content': expected a string, got null.`,
    { param: `${path}.content`, code: 'invalid_value' },
  )
}

function legacyCallId(name: string): string {
  return `call_${name}`
}

const VARIABLES_MAX = 16
const VARIABLE_LENGTH_MAX = 1024

/** Request fields of other servers of this API that control the chat template. */
export const TEMPLATE_FIELDS = {
  add_generation_prompt: optionalBoolean({
    description: 'Open the turn of the assistant after the messages; true if absent.',
  }),
  continue_final_message: optionalBoolean({
    default: false,
    description: 'Continue the last message, which is the beginning of the answer.',
  }),
  chat_template_kwargs: Type.Optional(
    nullable(
      mapOf(ofType(['string', 'number', 'boolean'], { maxLength: VARIABLE_LENGTH_MAX }), {
        maxProperties: VARIABLES_MAX,
        propertyNames: { pattern: '^[A-Za-z_][A-Za-z0-9_]{0,63}$' },
        description: 'Variables of the chat template of the model, such as `enable_thinking`.',
      }),
    ),
  ),
}

const TEMPLATE_BODY = Type.Object(TEMPLATE_FIELDS)

/**
 * The options of the chat template; empty by default. Its variables take precedence over those of
 * `guidance`. Throws for faults that the schema cannot express.
 */
export function templateOptions(
  body: Static<typeof TEMPLATE_BODY>,
  messages: readonly ChatMessage[],
  guidance: Guidance = { variables: {}, hints: [] },
): { readonly template?: TemplateOptions; readonly hints?: readonly Hint[] } {
  const own = body.chat_template_kwargs ?? {}
  const variables = { ...guidance.variables, ...own }
  const hints = [
    ...guidance.hints,
    ...Object.keys(own).map((name) => ({
      field: `chat_template_kwargs.${name}`,
      variables: [name],
    })),
  ]
  const continuesLast = body.continue_final_message === true
  if (continuesLast) checkContinued(body, messages.at(-1))
  const options: TemplateOptions = {
    ...(body.add_generation_prompt === false && { opensAnswer: false }),
    ...(continuesLast && { continuesLast }),
    ...(Object.keys(variables).length > 0 && { variables }),
  }
  return {
    ...(Object.keys(options).length > 0 && { template: options }),
    ...(hints.length > 0 && { hints }),
  }
}

function checkContinued(body: Static<typeof TEMPLATE_BODY>, last: ChatMessage | undefined): void {
  const refuse = (reason: string) => invalidValue('continue_final_message', reason)
  if (body.add_generation_prompt === true) {
    throw refuse("it cannot be true together with 'add_generation_prompt'.")
  }
  const isSpoken = last?.role === 'assistant' && last.toolCalls === undefined
  if (isSpoken && last.content.trim() !== '') return
  throw refuse("it needs a last message with role 'assistant' and some text in its content.")
}
