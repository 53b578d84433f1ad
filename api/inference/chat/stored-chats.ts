import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Static } from 'typebox'

import type { Generation, StreamedCandidates } from '#api/inference/generate.ts'
import { CHAT_RESPONSE } from '#api/inference/response-schemas.ts'
import type { InferenceServices, ResponseStorage } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import type { AnswerStore, StoredAnswer } from '#api/stored/answer-store.ts'
import { presentItems } from '#api/stored/conversation-routes.ts'
import { deletedResponse, listResponse } from '#api/v1/list-response.ts'
import { checkMetadata, METADATA_FIELD } from '#api/v1/metadata-field.ts'
import { callerOf, contentsReaderOf } from '#api/v1/request-context.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'

import type { ChatBody } from './chat-request.ts'

const OBJECT = 'chat.completion'

/** Stores the answer of a chat whose request asks for it; returns it as the client receives it. */
export async function storeChat(
  { request }: Pick<Http, 'request'>,
  { stored, clock, log }: InferenceServices,
  answer: object,
): Promise<void> {
  const { messages, metadata = null, store } = request.body as ChatBody
  if (store !== true || stored === undefined) return
  const { organizationId, userId = null } = callerOf(request)
  const { id, model } = answer as { readonly id: string; readonly model: string }
  checkMetadata(metadata)
  try {
    await stored.answers.add({
      id,
      model,
      object: OBJECT,
      organizationId,
      userId,
      metadata: metadata ?? null,
      previousId: null,
      conversationId: null,
      jobId: request.context.stored?.id ?? null,
      input: messages.map((message, index) => ({ ...message, id: `${id}-${index}` })),
      answer: answer as Readonly<Record<string, unknown>>,
      createdAtMs: clock.now(),
    })
  } catch (error) {
    // The storage is full or the database is unreachable: the client still receives its answer.
    if (!(error instanceof ServiceError))
      log.warn({ operation: 'chat.store', err: error }, 'a chat was not stored')
  }
}

/** A generation whose stream is stored when it has ended. */
export function storedWhenStreamed(
  generation: Generation<object>,
  save: (answer: object) => Promise<void>,
): Generation<object> {
  return {
    ...generation,
    presenter() {
      const inner = generation.presenter()
      const candidates: StreamedCandidates = new Map()
      return {
        ...inner,
        deltas(deltas) {
          for (const { index, text, tokenIds, endTokenId, logprobs, finishReason } of deltas) {
            const before = candidates.get(index)
            candidates.set(index, {
              index,
              text: (before?.text ?? '') + text,
              tokenIds: [...(before?.tokenIds ?? []), ...tokenIds],
              ...(endTokenId !== undefined && { endTokenId }),
              ...(logprobs !== undefined && {
                logprobs: [...(before?.logprobs ?? []), ...logprobs],
              }),
              finishReason: finishReason ?? 'stop',
            })
          }
          return inner.deltas(deltas)
        },
        async ending(usage) {
          await save(generation.present({ candidates: [...candidates.values()], usage }))
          return inner.ending(usage)
        },
      }
    },
  }
}

const CONFIG = { scope: 'chat', readsContents: true } as const
const SECURITY = [{ apiKey: [] }]
const ID = Type.Object({ completion_id: Type.String({ minLength: 1, maxLength: 200 }) })
const PAGE = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
  order: Type.Optional(Type.Enum(['asc', 'desc'])),
  after: Type.Optional(Type.String({ maxLength: 200 })),
}
const LIST_QUERY = Type.Object(
  { ...PAGE, model: Type.Optional(Type.String({ maxLength: 200 })) },
  { additionalProperties: true },
)
const MESSAGES_QUERY = Type.Object(PAGE, { additionalProperties: false })
const BODY = Type.Object({ metadata: METADATA_FIELD }, { additionalProperties: false })
const DELETED = deletedResponse('chat.completion.deleted')

const route = (operationId: string, summary: string, answer: object, parts: object) => ({
  config: CONFIG,
  schema: {
    operationId,
    summary,
    tags: ['Chat'],
    security: SECURITY,
    ...parts,
    response: { 200: answer },
  },
})

/** `/chat/completions/{completion_id}`: list, fetch, label and delete stored chats. */
export function registerStoredChats(app: FastifyInstance, { answers }: ResponseStorage): void {
  const path = '/chat/completions'
  const list = route('listChatCompletions', 'List stored chats', listResponse(CHAT_RESPONSE), {
    querystring: LIST_QUERY,
  })
  app.get(path, list, async (request) => {
    const query = request.query as Static<typeof LIST_QUERY> & Readonly<Record<string, unknown>>
    const { limit = 20, order = 'asc', after, model } = query
    const page = await answers.list(contentsReaderOf(request), {
      object: OBJECT,
      limit,
      isAscending: order === 'asc',
      metadata: pairsOf(query),
      ...(after !== undefined && { after }),
      ...(model !== undefined && { model }),
    })
    const data = page.answers.map(present)
    return {
      object: 'list',
      data,
      has_more: page.hasMore,
      first_id: page.answers[0]?.row.id ?? null,
      last_id: page.answers.at(-1)?.row.id ?? null,
    }
  })

  const retrieve = route('retrieveChatCompletion', 'Fetch a stored chat', CHAT_RESPONSE, {
    params: ID,
  })
  app.get(`${path}/:completion_id`, retrieve, async (request) =>
    present(await find(answers, request)),
  )

  const update = route('updateChatCompletion', 'Change the metadata', CHAT_RESPONSE, {
    params: ID,
    body: BODY,
  })
  app.post(`${path}/:completion_id`, update, async (request) => {
    const { completion_id: id } = request.params as Static<typeof ID>
    const { metadata = null } = request.body as Static<typeof BODY>
    checkMetadata(metadata)
    const { organizationId } = callerOf(request)
    const isChanged = await answers.setMetadata(organizationId, OBJECT, id, metadata)
    if (!isChanged) throw noSuchChat(id)
    return present(await find(answers, request))
  })

  const remove = route('deleteChatCompletion', 'Delete a stored chat', DELETED, { params: ID })
  app.delete(`${path}/:completion_id`, remove, async (request) => {
    const { completion_id: id } = request.params as Static<typeof ID>
    const row = await answers.remove(callerOf(request).organizationId, OBJECT, id)
    if (row === undefined) throw noSuchChat(id)
    return { id, object: 'chat.completion.deleted', deleted: true }
  })

  const messages = route(
    'listChatMessages',
    'List the messages of a stored chat',
    listResponse({ type: 'object' }),
    { params: ID, querystring: MESSAGES_QUERY },
  )
  app.get(`${path}/:completion_id/messages`, messages, async (request) => {
    const { input } = await find(answers, request)
    const { limit = 20, order = 'asc', after } = request.query as Static<typeof MESSAGES_QUERY>
    const ordered = order === 'asc' ? input : input.toReversed()
    const start = ordered.findIndex(({ id }) => id === after) + 1
    const page = ordered.slice(start, start + limit)
    return presentItems({ items: page, hasMore: start + limit < ordered.length })
  })
}

/** The metadata of a query: `metadata[name]=value`. */
function pairsOf(query: Readonly<Record<string, unknown>>): Readonly<Record<string, string>> {
  const pairs = Object.fromEntries(
    Object.entries(query).flatMap(([name, value]) => {
      const match = /^metadata\[(.{1,64})\]$/.exec(name)
      return match === null || typeof value !== 'string' ? [] : [[match[1] as string, value]]
    }),
  )
  checkMetadata(pairs)
  return pairs
}

async function find(answers: AnswerStore, request: FastifyRequest): Promise<StoredAnswer> {
  const { completion_id: id } = request.params as Static<typeof ID>
  const found = await answers.find(contentsReaderOf(request), OBJECT, id)
  if (found === undefined) throw noSuchChat(id)
  return found
}

function present({ row, answer }: StoredAnswer): object {
  return { ...answer, metadata: row.metadata ?? {} }
}

function noSuchChat(id: string): ServiceError {
  return failure.notFound(`No stored chat found with id '${id.slice(0, 100)}'.`, {
    param: 'completion_id',
  })
}
