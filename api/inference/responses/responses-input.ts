import type { Static } from 'typebox'

import { customArguments } from '#api/inference/chat/custom-tools.ts'
import {
  ineffective,
  invalidValue,
  missingParameter,
  optionalEnum,
  optionalList,
  optionalObject,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { checkJsonText } from '#api/inference/input-limits.ts'
import { DETAIL, MessageContent, type RequestImages } from '#api/inference/request-images.ts'
import { FILE_FIELDS, fileText } from '#api/inference/text-files.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'
import type { ChatMessage, ChatToolCall } from '#shared/contracts/completion.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable } from '#shared/schemas.ts'

import { HOSTED_ITEMS, type HostedItem, hostedStep } from './hosted-items.ts'
import type { OpenSummary } from './summaries.ts'

const ITEMS_MAX = 2048

const TEXT = Type.String()
const PART = variantSchema({
  input_text: { text: TEXT },
  // Clients send complete answers back; the model reads their text.
  output_text: {
    text: TEXT,
    annotations: optionalList(),
    logprobs: optionalList(),
    parsed: Type.Optional(Type.Unknown()),
  },
  refusal: { refusal: TEXT },
  input_image: {
    image_url: optionalString({
      description: 'An image as a data URL, or as an https URL that the server fetches.',
    }),
    file_id: optionalString({ description: 'The id of an uploaded image, instead of a URL.' }),
    detail: DETAIL,
  },
  input_file: { ...FILE_FIELDS, file_url: optionalString(), detail: DETAIL },
})
type ContentPart = Static<typeof PART>
type ImagePart = Omit<Extract<ContentPart, { type: 'input_image' }>, 'type'>
const REASONING_PART = variantSchema({ reasoning_text: { text: TEXT }, text: { text: TEXT } })
const PARTS = Type.Union([Type.String(), Type.Array(PART)])

/**
 * Proxies use longer ids than this server; an entry of the database index has at most 2,700 bytes.
 */
const ITEM_ID = optionalString({ maxLength: 512 })
const STORED = {
  id: ITEM_ID,
  status: optionalEnum(['in_progress', 'completed', 'incomplete']),
}
const STORED_CALL = {
  ...STORED,
  caller: optionalObject(),
  async: ineffective({ type: ['boolean', 'null'] }, [false]),
  namespace: optionalString({ maxLength: 64, description: 'The namespace of the tool.' }),
}
const CALL_ID = Type.String({ minLength: 1, maxLength: 256 })

const ITEMS = {
  message: {
    role: choice(['user', 'assistant', 'system', 'developer']),
    content: PARTS,
    phase: ineffective({ type: ['string', 'null'] }),
    ...STORED,
  },
  function_call: {
    call_id: CALL_ID,
    name: Type.String({ minLength: 1 }),
    arguments: TEXT,
    parsed_arguments: Type.Optional(Type.Unknown()),
    ...STORED_CALL,
  },
  function_call_output: { call_id: CALL_ID, output: PARTS, name: optionalString(), ...STORED_CALL },
  custom_tool_call: {
    call_id: CALL_ID,
    name: Type.String({ minLength: 1 }),
    input: TEXT,
    ...STORED_CALL,
  },
  custom_tool_call_output: { call_id: CALL_ID, output: PARTS, ...STORED_CALL },
  // Only the server that wrote `encrypted_content` can read it; the model reads `content`.
  reasoning: {
    summary: optionalList(),
    content: Type.Optional(nullable(Type.Array(REASONING_PART))),
    encrypted_content: optionalString(),
    ...STORED,
  },
  // The answer of `POST /v1/responses/compact`.
  compaction: { encrypted_content: TEXT, id: ITEM_ID, created_by: optionalString() },
  ...HOSTED_ITEMS,
} as const

/** The schema of one item of a conversation. */
export const ITEM = variantSchema(ITEMS, { fallback: 'message' })

const INPUT_ITEM = variantSchema(
  { ...ITEMS, item_reference: { id: Type.String({ minLength: 1, maxLength: 512 }) } },
  { fallback: 'message' },
)

/** The conversation so far. */
export const INPUT_ITEMS = Type.Array(INPUT_ITEM, { minItems: 1, maxItems: ITEMS_MAX })

/** The schema of the field `input`: a user's text, or the conversation so far. */
export const INPUT = Type.Union([Type.String(), INPUT_ITEMS], {
  description:
    'The message of the user, or the whole conversation: messages (the type may be omitted), calls of functions and custom tools, and their outputs. The model reads the `content` of reasoning items if its chat template does; a compaction is a summary that this server wrote; the model sees calls of the built-in tools of other servers as function calls; an `item_reference` names an output item of a stored response.',
})
export type InputField = Static<typeof INPUT>
type Item = Exclude<InputField, string>[number]

/**
 * The conversation in the form of chat templates: the instructions first, the calls of one turn in
 * one message, and their outputs right after it. Images are added to `images`. Throws when a call
 * or its output is missing.
 */
export function responsesMessages(
  input: InputField,
  {
    instructions,
    images,
    openSummary,
  }: {
    readonly instructions: string | null | undefined
    readonly images: RequestImages
    readonly openSummary: OpenSummary
  },
): readonly ChatMessage[] {
  const conversation = new Conversation()
  if (typeof instructions === 'string') conversation.say('system', { content: instructions })
  if (typeof input === 'string') conversation.say('user', { content: input })
  else {
    for (const [index, item] of input.entries()) {
      take(conversation, item, { index, images, openSummary })
    }
  }
  return conversation.finish()
}

function take(
  conversation: Conversation,
  item: Item,
  {
    index,
    images,
    openSummary,
  }: {
    readonly index: number
    readonly images: RequestImages
    readonly openSummary: OpenSummary
  },
): void {
  switch (item.type) {
    case 'function_call':
      checkJsonText(item.arguments, `input[${index}].arguments`)
      conversation.call({ id: item.call_id, name: offeredName(item), arguments: item.arguments })
      break
    case 'custom_tool_call':
      conversation.call({
        id: item.call_id,
        name: offeredName(item),
        arguments: customArguments(item.input),
      })
      break
    case 'function_call_output':
    case 'custom_tool_call_output':
      conversation.answer(
        item.call_id,
        contentOf(item.output, `input[${index}].output`, images),
        `input[${index}].call_id`,
      )
      break
    case 'compaction': {
      const summary = openSummary(item.encrypted_content, `input[${index}].encrypted_content`)
      conversation.say('assistant', { content: `Summary of the conversation so far:\n${summary}` })
      break
    }
    case 'reasoning':
      conversation.reason((item.content ?? []).map(({ text }) => text).join('\n'))
      break
    case 'item_reference':
      throw notStored(item.id, index)
    case 'computer_call_output': {
      const read = new MessageContent()
      read.addImage(imageOf(item.output, `input[${index}].output`, images))
      conversation.answer(item.call_id, read.fields, `input[${index}].call_id`)
      break
    }
    case undefined:
    case 'message':
      say(conversation, item, { index, images })
      break
    default:
      takeHosted(conversation, item, index)
  }
}

function say(
  conversation: Conversation,
  { role, content }: Extract<Item, { role: unknown; content: unknown }>,
  { index, images }: { readonly index: number; readonly images: RequestImages },
): void {
  const read = contentOf(content, `input[${index}].content`, images)
  const [image] = read.images ?? []
  if (image !== undefined && role !== 'user') {
    throw invalidValue(image.path, "images are only allowed with role 'user'.")
  }
  conversation.say(role === 'developer' ? 'system' : role, read)
}

/** Presents the tools of another server as calls of functions. */
function takeHosted(conversation: Conversation, item: HostedItem, index: number): void {
  const step = hostedStep(item, index)
  switch (step.kind) {
    case 'call':
      checkJsonText(step.call.arguments, `input[${index}].arguments`)
      conversation.call(step.call)
      if (step.output !== undefined) {
        conversation.answer(step.call.id, { content: step.output }, `input[${index}].id`)
      }
      break
    case 'output':
      conversation.answer(step.callId, { content: step.output }, `input[${index}].call_id`)
      break
    case 'nothing':
      break
  }
}

function contentOf(
  content: string | readonly ContentPart[],
  path: string,
  images: RequestImages,
): Content {
  if (typeof content === 'string') return { content }
  const read = new MessageContent()
  for (const [index, part] of content.entries()) {
    const place = `${path}[${index}]`
    if (part.type === 'input_image') read.addImage(imageOf(part, place, images))
    else if (part.type === 'input_file') read.addText(fileText(part, place), '\n')
    else read.addText(part.type === 'refusal' ? part.refusal : part.text)
  }
  return read.fields
}

function imageOf(part: ImagePart, path: string, images: RequestImages) {
  const { image_url: url, file_id: fileId, detail } = part
  if (typeof url === 'string') {
    return images.add({ kind: 'url', url }, { path: `${path}.image_url`, detail })
  }
  if (typeof fileId !== 'string') throw missingParameter(`${path}.image_url`)
  return images.add({ kind: 'file', fileId }, { path: `${path}.file_id`, detail })
}

/** The name of a tool for the model: templates and answers have a single name for it. */
export function offeredName(tool: {
  readonly name: string
  readonly namespace?: string | null | undefined
}): string {
  const { name, namespace } = tool
  return namespace === null || namespace === undefined ? name : `${namespace}__${name}`
}

type Content = MessageContent['fields']

interface Turn {
  readonly role: ChatMessage['role']
  content: Content
  reasoning: string
  readonly calls: ChatToolCall[]
}

/** The messages so far, and the calls that wait for their outputs. */
class Conversation {
  readonly #messages: ChatMessage[] = []
  /** Outputs of the calls of the last turn. */
  readonly #outputs = new Map<string, Content>()
  readonly #open = new Set<string>()
  /** The last turn, which later calls may belong to. */
  #turn: Turn | undefined
  /** The reasoning of the next item of the assistant. */
  #reasoning = ''

  say(role: ChatMessage['role'], content: Content): void {
    const turn = this.#turn
    // Text after a call belongs to the same assistant message.
    if (role === 'assistant' && turn !== undefined && turn.calls.length > 0 && this.#mayGrow) {
      // Only users send images.
      turn.content = { content: turn.content.content + content.content }
      turn.reasoning = joined(turn.reasoning, this.#takeReasoning())
      return
    }
    this.#begin(role, content)
  }

  reason(text: string): void {
    this.#reasoning = joined(this.#reasoning, text)
  }

  call(call: ChatToolCall): void {
    let turn = this.#turn
    if (turn?.role !== 'assistant' || !this.#mayGrow) {
      turn = this.#begin('assistant', { content: '' })
    }
    turn.reasoning = joined(turn.reasoning, this.#takeReasoning())
    turn.calls.push(call)
    this.#open.add(call.id)
  }

  answer(callId: string, output: Content, param: string): void {
    if (!this.#open.delete(callId)) {
      throw failure.invalidRequest(
        `No tool call found for function call output with call_id ${shown(callId)}.`,
        { param },
      )
    }
    this.#outputs.set(callId, output)
  }

  finish(): readonly ChatMessage[] {
    this.#endTurn()
    if (this.#messages.length === 0) {
      throw failure.invalidRequest("Invalid 'input': it contains no message.", {
        param: 'input',
        code: 'invalid_value',
      })
    }
    return this.#messages
  }

  /** A turn can grow as long as all of its calls with outputs are its only calls. */
  get #mayGrow(): boolean {
    return this.#outputs.size === 0 || this.#open.size > 0
  }

  #begin(role: ChatMessage['role'], content: Content): Turn {
    this.#endTurn()
    const reasoning = this.#takeReasoning()
    const turn = { role, content, reasoning: role === 'assistant' ? reasoning : '', calls: [] }
    this.#turn = turn
    return turn
  }

  #takeReasoning(): string {
    const reasoning = this.#reasoning
    this.#reasoning = ''
    return reasoning
  }

  #endTurn(): void {
    const turn = this.#turn
    if (turn === undefined) return
    const { role, content, reasoning, calls } = turn
    const [unanswered] = this.#open
    if (unanswered !== undefined) throw noOutput(unanswered)
    this.#messages.push({
      role,
      ...content,
      ...(reasoning !== '' && { reasoning }),
      ...(calls.length > 0 && { toolCalls: calls }),
    })
    for (const { id } of calls) {
      const output = this.#outputs.get(id) ?? { content: '' }
      this.#messages.push({ role: 'tool', ...output, toolCallId: id })
    }
    this.#outputs.clear()
    this.#turn = undefined
  }
}

function joined(before: string, after: string): string {
  return [before, after].filter(Boolean).join('\n')
}

function noOutput(callId: string): ServiceError {
  return failure.invalidRequest(`No tool output found for function call ${shown(callId)}.`, {
    param: 'input',
  })
}

function shown(callId: string): string {
  return callId.slice(0, 100)
}

/** The refusal of a reference to an item that is not stored. */
export function notStored(id: string, index: number): ServiceError {
  return failure.invalidRequest(
    `Item with id '${id.slice(0, 100)}' not found. Only items of stored responses can be referred to: send the item itself, or store its response with 'store'.`,
    { param: `input[${index}].id`, code: 'item_not_found' },
  )
}
