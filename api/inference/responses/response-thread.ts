import { createHash } from 'node:crypto'

import type { InferenceServices } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import type { AnswerStore } from '#api/stored/answer-store.ts'
import { tooLargeToContinue } from '#api/stored/bounded-contents.ts'
import type { StoredItem } from '#api/stored/conversation-store.ts'
import {
  type Caller,
  type ContentsReader,
  callerOf,
  contentsReaderOf,
} from '#api/v1/request-context.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'

import { withReferences } from './item-references.ts'
import type { ResponseHead } from './responses-answer.ts'
import type { ResponsesBody } from './responses-body.ts'
import type { InputField } from './responses-input.ts'
import { hexId } from './responses-output.ts'
import { checkUnstored, itemsOf } from './responses-request.ts'

/** The thread that a response continues, and where it is stored. */
export interface ResponseThread {
  /** The items of the conversation so far. */
  readonly earlier: Exclude<InputField, string>
  /** The input of the request, with stored items in place of references. */
  readonly asked: InputField
  readonly isStored: boolean
  readonly conversationId: string | null
  /** Stores a finished response; returns the response that the client receives. */
  save(head: ResponseHead, response: object): Promise<object>
}

/** The thread of a response that is not stored and continues no other. */
export function noThread({ input }: Pick<ResponsesBody, 'input'>): ResponseThread {
  return {
    earlier: [],
    asked: input,
    isStored: false,
    conversationId: null,
    save: async (_head, response) => response,
  }
}

const EARLIER_ITEMS_MAX = 2048

/** Whether a body continues or references stored content. */
export function readsThread(body: unknown): boolean {
  const { previous_response_id: previousId, conversation, input } = body as ResponsesBody
  const continues = typeof previousId === 'string' || (conversation ?? null) !== null
  return continues || (Array.isArray(input) && input.some(({ type }) => type === 'item_reference'))
}

/** Loads the response or conversation that a request continues. Throws if it is not stored. */
export async function threadOf(
  { request }: Http,
  services: InferenceServices,
  body: ResponsesBody,
): Promise<ResponseThread> {
  const { stored } = services
  if (stored === undefined) {
    checkUnstored(body)
    return noThread(body)
  }
  const caller = callerOf(request)
  const { previous_response_id: previousId, conversation } = body
  const conversationId =
    typeof conversation === 'string' ? conversation : (conversation?.id ?? null)
  if (typeof previousId === 'string' && conversationId !== null) {
    throw failure.invalidRequest(
      "Only one of 'previous_response_id' and 'conversation' may be given.",
      { param: 'previous_response_id', code: 'mutually_exclusive_parameters' },
    )
  }
  const { items: earlier, bytes } =
    typeof previousId === 'string'
      ? await earlierOf(stored.answers, contentsReaderOf(request), previousId)
      : conversationId === null
        ? { items: [], bytes: 0 }
        : await itemsOfConversation(services, contentsReaderOf(request), conversationId)
  const { input: asked, bytes: referred } = await withReferences(services, request, {
    input: body.input,
    earlier,
  })
  request.context.contentsRoom?.shrinkTo(bytes + referred)
  return {
    earlier: earlier as unknown as ResponseThread['earlier'],
    asked,
    isStored: body.store ?? stored.isDefault,
    conversationId,
    save: (head, response) => save({ request }, services, { head, response, caller, asked }),
  }
}

/** The items that a request continues, and their stored size in characters. */
interface Earlier {
  readonly items: readonly StoredItem[]
  readonly bytes: number
}

/** Loads the items of the continued response and of all responses before it. */
async function earlierOf(
  answers: AnswerStore,
  reader: ContentsReader,
  previousId: string,
): Promise<Earlier> {
  const chain = await answers.chain(reader, previousId)
  if (chain === undefined) throw noPrevious(previousId)
  const { contents, bytes } = chain
  const { status } = contents.at(-1)?.answer ?? {}
  if (status === 'queued' || status === 'in_progress') {
    throw failure.invalidRequest(
      `The response '${previousId}' has not ended; only a finished response can be continued.`,
      { param: 'previous_response_id', code: 'previous_response_not_finished' },
    )
  }
  const items = contents.flatMap(({ input, answer }) => [
    ...input,
    ...((answer.output ?? []) as readonly StoredItem[]),
  ])
  return { items, bytes }
}

async function itemsOfConversation(
  { stored }: InferenceServices,
  reader: ContentsReader,
  id: string,
): Promise<Earlier> {
  const found = await stored?.conversations.find(reader.organizationId, id)
  if (stored === undefined || found === undefined) {
    throw failure.notFound(`Conversation with id '${id.slice(0, 100)}' not found.`, {
      param: 'conversation',
    })
  }
  const page = { limit: EARLIER_ITEMS_MAX, isAscending: true }
  const { hasMore, ...earlier } = await stored.conversations.items(reader, id, page)
  if (hasMore) throw tooLargeToContinue('conversation')
  return earlier
}

async function save(
  { request }: Pick<Http, 'request'>,
  { stored, clock, log }: InferenceServices,
  what: {
    readonly head: ResponseHead
    readonly response: object
    readonly caller: Caller
    readonly asked: InputField
  },
): Promise<object> {
  const { head, response, caller, asked } = what
  const { body } = head
  if (stored === undefined || (!head.isStored && head.conversationId === null)) return response
  const answer = {
    id: head.id,
    object: 'response' as const,
    model: head.model,
    organizationId: caller.organizationId,
    userId: caller.userId ?? null,
    previousId: body.previous_response_id ?? null,
    conversationId: head.conversationId,
    jobId: request.context.stored?.id ?? null,
    metadata: body.metadata ?? null,
    input: withIds(head.id, asked),
    answer: response as Readonly<Record<string, unknown>>,
    createdAtMs: clock.now(),
  }
  try {
    if (!head.isStored) {
      // The items belong to the conversation; the response itself is not stored.
      const items = [...answer.input, ...((answer.answer.output ?? []) as readonly StoredItem[])]
      const { organizationId, createdAtMs } = answer
      const conversationId = head.conversationId ?? ''
      await stored.conversations.append({ organizationId, conversationId, items, createdAtMs })
      return response
    }
    const isSaved = await (request.context.stored === undefined
      ? stored.answers.add(answer)
      : stored.answers.replace(answer))
    return isSaved ? response : { ...response, store: false }
  } catch (error) {
    // The storage is full or the database is unreachable: the answer is sent, and states that it
    // was not stored.
    if (!(error instanceof ServiceError))
      log.warn({ operation: 'response.save', err: error }, 'a response was not stored')
    return { ...response, store: false }
  }
}

/** The items of an input, each with an id. */
export function withIds(responseId: string, input: InputField): readonly StoredItem[] {
  return itemsOf(input).map((item, index) => {
    const { id, type = 'message' } = item as { id?: unknown; type?: string }
    if (typeof id === 'string' && id !== '') return { ...item, type, id }
    const prefix = PREFIXES[type] ?? 'item_'
    const source = createHash('sha256').update(JSON.stringify(item)).digest('hex')
    return { ...normalized(item), type, id: hexId(prefix, `${responseId} in ${index} ${source}`) }
  })
}

/** The items that a client adds to a conversation, each with an id. */
export function itemsWithIds(items: unknown): readonly StoredItem[] {
  return withIds(randomId(''), items as InputField)
}

const PREFIXES: Readonly<Record<string, string>> = {
  message: 'msg_',
  function_call: 'fc_',
  function_call_output: 'fco_',
  custom_tool_call: 'ctc_',
  custom_tool_call_output: 'ctco_',
  reasoning: 'rs_',
  compaction: 'cmp_',
}

/** Lists the content of messages as parts. */
function normalized(item: object): object {
  const { role, content } = item as { role?: string; content?: unknown }
  if (role === undefined || typeof content !== 'string') return item
  const type = role === 'assistant' ? 'output_text' : 'input_text'
  return { ...item, content: [{ type, text: content }] }
}

function noPrevious(id: string): ServiceError {
  return failure.invalidRequest(`Previous response with id '${id.slice(0, 100)}' not found.`, {
    param: 'previous_response_id',
    code: 'previous_response_not_found',
  })
}
