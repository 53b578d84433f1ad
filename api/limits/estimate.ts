import type { FastifyRequest } from 'fastify'

import { costOf } from '#api/usage/usage-meter.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'

import type { Reservation } from './leases.ts'
import { costPartsOf } from './limit-store.ts'

/** The price of a model, and its context length if a worker reported it. */
export interface ModelBounds {
  readonly price: CatalogueModel['price']
  readonly contextLength: number | undefined
}

// A token of English text is about four characters.
const BYTES_PER_TOKEN = 4
const TOKENS_MAX = 10_000_000
const COPIES_MAX = 128
// The default of `max_tokens` for a completion; that of a chat depends on the model.
const COMPLETION_TOKENS_DEFAULT = 16

/** Families whose answers without `max_tokens` end at the context length. */
const OPEN_ENDED: readonly unknown[] = ['chat', 'responses', 'edits']

/** The fields in which the routes of a family read the limit of an answer. */
const LIMIT_FIELDS: Readonly<Record<string, readonly string[]>> = {
  chat: ['max_completion_tokens', 'max_tokens'],
  completions: ['max_tokens'],
  responses: ['max_output_tokens'],
}

/** The tokens and limits that a request states. */
interface RequestSizes {
  /** The tokens of its text. */
  readonly prompt: number
  /** The limit of each answer; undefined if it states none. */
  readonly perCopy: number | undefined
  readonly copies: number
  readonly modelName: string
  /** Whether it continues a stored conversation. */
  readonly continues: boolean
  /** Whether an answer without a limit ends at the context length. */
  readonly isOpenEnded: boolean
}

/**
 * The estimated charge of a request until its usage is known: its length plus its largest output.
 */
export function estimateTokens({ prompt, perCopy = 0, copies }: RequestSizes): number {
  return Math.min(TOKENS_MAX, Math.ceil(prompt + perCopy * copies))
}

/** The most that a request may use of a quota, by its length and the bounds of its model. */
export function reservationOf(
  { prompt, perCopy, copies, modelName, continues, isOpenEnded }: RequestSizes,
  boundsOf: (modelName: string) => ModelBounds | undefined = () => undefined,
): Reservation {
  const { price, contextLength } = boundsOf(modelName) ?? {}
  const rest = isOpenEnded ? Math.max(0, (contextLength ?? 0) - prompt) : 0
  const output = Math.min(perCopy ?? rest, contextLength ?? TOKENS_MAX)
  // The stored part of a conversation is not in the body.
  const input = continues ? Math.max(prompt, (contextLength ?? 0) - output) : prompt
  const used = {
    promptTokens: Math.min(TOKENS_MAX, input),
    completionTokens: Math.min(TOKENS_MAX, Math.ceil(output * copies)),
  }
  return {
    tokens: used.promptTokens + used.completionTokens,
    costParts: costPartsOf(costOf(price, used) ?? 0),
  }
}

/** Reads the sizes of a request. */
export function sizesOf({ body, headers, params, routeOptions }: FastifyRequest): RequestSizes {
  const { scope } = routeOptions.config
  const { engine_id: engineId = '' } = (params ?? {}) as { readonly engine_id?: string }
  // The bytes of a form are an image or a recording.
  if (typeof body !== 'object' || body === null) {
    const none = { prompt: 0, perCopy: 0, copies: 1, continues: false, isOpenEnded: false }
    return { ...none, modelName: engineId }
  }
  const fields = body as Readonly<Record<string, unknown>>
  const stated = (LIMIT_FIELDS[scope ?? ''] ?? [])
    .map((name) => fields[name])
    .filter((value) => typeof value === 'number')
  const limits = stated.filter((value) => value >= 0)
  const isDefault = scope === 'completions' && stated.length === 0
  // A chunked body has no Content-Length.
  const bytes = headers['content-length'] ?? Buffer.byteLength(JSON.stringify(body))
  return {
    prompt: Math.ceil(Number(bytes) / BYTES_PER_TOKEN),
    // Chat reads the first of its fields, and the messages of Anthropic's clients the second.
    perCopy:
      limits.length > 0 ? Math.max(...limits) : isDefault ? COMPLETION_TOKENS_DEFAULT : undefined,
    copies: Math.min(
      COPIES_MAX,
      Math.max(1, count(fields.n), count(fields.best_of)) * promptCount(fields),
    ),
    // The limits come before the checks of the schema: the field may have any type.
    modelName: engineId || (typeof fields.model === 'string' ? fields.model : ''),
    continues: Boolean(fields.previous_response_id ?? fields.conversation),
    // A limit of -1 is none.
    isOpenEnded: OPEN_ENDED.includes(scope) || stated.length > limits.length,
  }
}

/** The prompts of a completion, or the conversations of a batch of chats; 1 for other requests. */
function promptCount({ prompt, messages }: Readonly<Record<string, unknown>>): number {
  const several = [prompt, messages].filter(Array.isArray).find(([first]) => isPrompt(first))
  return several?.length ?? 1
}

/** Whether the item of a list is a prompt of its own, instead of a token id or a message. */
function isPrompt(item: unknown): boolean {
  return typeof item === 'string' || Array.isArray(item)
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 ? value : 0
}
