import type { Static } from 'typebox'

import { addIgnoredFields } from '#api/http/validation.ts'
import {
  answerLength,
  ineffective,
  invalidValue,
  modelBodies,
  optionalBoolean,
  optionalEnum,
  optionalInteger,
  optionalString,
  unsupported,
} from '#api/inference/field-schemas.ts'
import { SchemaBudget } from '#api/inference/input-limits.ts'
import { chatGuidance, REASONING_FIELDS } from '#api/inference/reasoning-fields.ts'
import { RequestImages } from '#api/inference/request-images.ts'
import { FORMAT_FIELDS, responseFormatOf } from '#api/inference/response-format.ts'
import {
  endingRules,
  maxTokensOf,
  promptLogprobs,
  SAMPLING_FIELDS,
  samplingParams,
  stopStrings,
  streamChoice,
  tokenRules,
  unsetSampling,
} from '#api/inference/sampling-fields.ts'
import type { PriorityClass } from '#api/jobs/observers.ts'
import { METADATA_FIELD } from '#api/v1/metadata-field.ts'
import type { ChatMessage, GenerateInput, TemplateOptions } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable } from '#shared/schemas.ts'

import {
  chatMessages,
  MESSAGE,
  MESSAGES_MAX,
  type MessageField,
  TEMPLATE_FIELDS,
  templateOptions,
} from './chat-messages.ts'
import { TOOL_FIELDS, type ToolPlan, toolPlan } from './chat-tools.ts'

/** The most alternatives per token that one request may ask for. */
export const TOP_LOGPROBS_MAX = 20

/** The request fields about the urgency of a request and its meaning to the client. */
export const REQUEST_FIELDS = {
  service_tier: optionalEnum(['auto', 'default', 'flex', 'priority', 'scale', 'fast'], {
    description: 'The priority of the request among the requests of its organization.',
  }),
  metadata: METADATA_FIELD,
  prompt_cache_key: ineffective({
    type: ['string', 'null'],
    maxLength: 256,
    description: 'Ignored and reported: the server finds shared beginnings of prompts without it.',
  }),
  safety_identifier: optionalString({
    maxLength: 64,
    description: 'Your identifier of the end user.',
  }),
}

/** The fields of a chat request. */
export const CHAT_FIELDS = {
  messages: Type.Array(MESSAGE, {
    minItems: 1,
    maxItems: MESSAGES_MAX,
    description: 'The conversation so far.',
  }),
  max_tokens: answerLength('Older name of the next one.'),
  max_completion_tokens: answerLength(
    'Longest answer in tokens; the rest of the context window if absent.',
  ),
  echo: optionalBoolean({
    default: false,
    description: 'Begin the answer with the last message if it is a message of the assistant.',
  }),
  logprobs: optionalBoolean({
    default: false,
    description: 'Return the log-probabilities of the chosen tokens.',
  }),
  top_logprobs: optionalInteger({
    minimum: 0,
    maximum: TOP_LOGPROBS_MAX,
    description: 'The number of alternatives per token; only with `logprobs`.',
  }),
  ...FORMAT_FIELDS,
  ...TOOL_FIELDS,
  ...TEMPLATE_FIELDS,
  ...REQUEST_FIELDS,
  store: optionalBoolean({
    description: 'Whether the answer can be fetched later; false if absent.',
  }),
  modalities: Type.Optional(nullable(Type.Array(choice(['text'])))),
  prediction: ineffective({ type: ['object', 'null'] }),
  moderation: unsupported(),
  prompt_cache_options: ineffective({ type: ['object', 'null'] }),
  prompt_cache_retention: ineffective({ type: ['string', 'null'] }),
  audio: unsupported(),
  ...REASONING_FIELDS,
  web_search_options: unsupported(),
  ...SAMPLING_FIELDS,
}

/** The bodies of `POST /v1/chat/completions` and of its older path. */
export const { body: CHAT_BODY, engineBody: ENGINE_CHAT_BODY } = modelBodies(CHAT_FIELDS)

export type ChatBody = Static<typeof ENGINE_CHAT_BODY>

/** Throws for a body of `/v1/responses`, which some clients send to this route. */
export function refuseResponseBody(body: unknown): void {
  const fields = typeof body === 'object' && body !== null ? body : {}
  if ('messages' in fields || !('input' in fields)) return
  throw failure.invalidRequest(
    "Missing required parameter: 'messages'. To send 'input', use /v1/responses or select the Responses API in your client.",
    { param: 'messages', code: 'missing_required_parameter' },
  )
}

/** A chat request in the form of the workers, and the data that its presentation needs. */
export interface ChatRequest {
  readonly input: GenerateInput
  readonly images: RequestImages
  readonly tools: ToolPlan | undefined
}

/** The messages of one conversation, and their place in the request. */
interface Conversation {
  readonly path: string
  readonly fields: readonly MessageField[]
}

/**
 * Reads a chat request with one conversation, or with several that share its other fields. Throws
 * for faults that the schema cannot express.
 */
export function chatRequest(
  body: Omit<ChatBody, 'messages'>,
  conversations: readonly Conversation[],
): ChatRequest {
  streamChoice(body)
  const images = new RequestImages()
  const chats = conversations.map(({ path, fields }) => chatMessages(fields, images, path))
  const budget = new SchemaBudget()
  const tools = toolPlan(body, budget)
  const maxTokens =
    maxTokensOf(body.max_completion_tokens, 'max_completion_tokens') ??
    maxTokensOf(body.max_tokens, 'max_tokens')
  const messages = conversations.flatMap(({ fields }) => fields)
  const responseFormat = responseFormatOf(body, { budget, messages })
  const isCallForced = tools !== undefined && tools.choice !== 'none' && tools.choice !== 'auto'
  const hasForm = isCallForced || responseFormat.type !== 'text'
  const chat = {
    tools,
    n: body.n ?? 1,
    maxTokens,
    sampling: samplingParams(body),
    ...unsetSampling(body),
    stop: stopStrings(body.stop),
    ...endingRules(body, { maxTokens, hasForm }),
    ...tokenRules(body),
    ...promptLogprobs(body),
    logprobs: logprobsOf(body),
    responseFormat,
    stream: body.stream ?? false,
  }
  const guidance = chatGuidance(body)
  const inputs = chats.map((messages) =>
    chatInput({ messages, ...chat, ...templateOptions(body, messages, guidance) }),
  )
  const input = { ...(inputs[0] as GenerateInput), prompts: inputs.flatMap((one) => one.prompts) }
  addIgnoredFields(body, budget.ignored)
  return { tools, input, images }
}

/** A chat in the dialect of its endpoint. */
interface Chat
  extends Pick<
    GenerateInput,
    | 'n'
    | 'maxTokens'
    | 'sampling'
    | 'unsetSampling'
    | 'stop'
    | 'ending'
    | 'hints'
    | 'tokenRules'
    | 'cacheSalt'
    | 'returnsPromptTokens'
    | 'namesTokensById'
    | 'promptLogprobs'
    | 'logprobs'
    | 'responseFormat'
    | 'stream'
  > {
  readonly messages: readonly ChatMessage[]
  readonly tools: ToolPlan | undefined
  readonly template?: TemplateOptions
  readonly isTruncated?: boolean
}

/** The job input of a chat. */
export function chatInput(options: Chat): GenerateInput {
  const { messages, tools, template, isTruncated, ...chat } = options
  const endsAfterCall = tools !== undefined && tools.callsMax === 1 && tools.choice !== 'none'
  return {
    ...chat,
    task: 'generate',
    prompts: [
      {
        form: 'chat',
        messages,
        ...(tools !== undefined && { tools: tools.tools, toolChoice: tools.choice }),
        ...(template !== undefined && { template }),
        ...(isTruncated === true && { isTruncated }),
      },
    ],
    bestOf: chat.n,
    ...(endsAfterCall && { endsAfterCall }),
    echo: false,
  }
}

/** The text that `echo` puts before the answer: that of a final assistant message. */
export function echoedOf(body: Pick<ChatBody, 'echo' | 'messages'>): string {
  if (body.echo !== true) return ''
  const last = chatMessages(body.messages, new RequestImages()).at(-1)
  return last?.role === 'assistant' ? last.content : ''
}

/** The tier of a request, as its answer states it. */
export function serviceTierOf(body: Pick<ChatBody, 'service_tier'>): PriorityClass {
  switch (body.service_tier) {
    case 'flex':
      return 'flex'
    case 'priority':
    case 'scale':
    case 'fast':
      return 'priority'
    default:
      return 'default'
  }
}

function logprobsOf(body: Pick<ChatBody, 'logprobs' | 'top_logprobs'>): number | null {
  const count = body.top_logprobs ?? null
  if (body.logprobs === true) return count ?? 0
  if (count === null || count === 0) return null
  throw invalidValue('top_logprobs', "'top_logprobs' is only allowed when 'logprobs' is enabled.")
}
