import type { FastifyInstance, FastifyPluginAsync, FastifyRequest } from 'fastify'
import type { Static, TSchema } from 'typebox'

import { deletedResponse, listResponse } from '#api/v1/list-response.ts'
import { checkMetadata, METADATA_FIELD } from '#api/v1/metadata-field.ts'
import { callerOf, contentsReaderOf } from '#api/v1/request-context.ts'
import { type Clock, unixSeconds } from '#shared/clock.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'
import { Type } from '#shared/schema-types.ts'
import { nullable } from '#shared/schemas.ts'

import type { Conversation, ConversationStore, StoredItem } from './conversation-store.ts'

/** Validates the items of a dialect and assigns their ids. */
interface ItemForm {
  readonly schema: TSchema
  withIds(items: unknown): readonly StoredItem[]
}

interface ConversationServices {
  readonly conversations: ConversationStore
  readonly clock: Clock
  readonly form: ItemForm
}

const CONFIG = { scope: 'responses', readsContents: true } as const
const TAGS = ['Conversations']
const SECURITY = [{ apiKey: [] }]
const ITEMS_MAX = 20
const LIST_LIMIT = 20
const NAME = Type.String({ minLength: 1, maxLength: 200 })
const ID = Type.Object({ conversation_id: NAME })
/** The longest id that an item may have. */
const ITEM_NAME = { maxLength: 512 }
const ITEM_ID = Type.Object({
  conversation_id: NAME,
  item_id: Type.String({ minLength: 1, ...ITEM_NAME }),
})
const ITEM = { type: 'object', description: 'An item.' }
const CONVERSATION = {
  type: 'object',
  description: 'A conversation.',
  required: ['id', 'object', 'created_at', 'metadata'],
  properties: {
    id: { type: 'string' },
    object: { const: 'conversation' },
    created_at: { type: 'integer', description: 'A time in Unix seconds.' },
    metadata: { type: 'object', additionalProperties: { type: 'string' } },
  },
}
const DELETED = deletedResponse('conversation.deleted', 'The conversation and its items are gone.')
const LIST = listResponse(ITEM, 'A list of items.')
const LIST_QUERY = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
    order: Type.Optional(Type.Enum(['asc', 'desc'])),
    after: Type.Optional(Type.String(ITEM_NAME)),
    include: Type.Optional(Type.Array(Type.String({ maxLength: 100 }), { maxItems: 16 })),
  },
  { additionalProperties: true },
)
const UPDATE_BODY = Type.Object({ metadata: METADATA_FIELD }, { additionalProperties: false })

/** `/conversations` and their items, which responses continue and extend. */
export function conversationsPlugin(services: ConversationServices): FastifyPluginAsync {
  return async (app) => {
    registerConversations(app, services)
    registerItems(app, services)
  }
}

const described = (operationId: string, summary: string, answer: object, parts: object = {}) => ({
  config: CONFIG,
  schema: {
    operationId,
    summary,
    tags: TAGS,
    security: SECURITY,
    ...parts,
    response: { 200: answer },
  },
})

function registerConversations(app: FastifyInstance, services: ConversationServices): void {
  const { conversations, clock, form } = services
  const itemsField = Type.Optional(nullable(Type.Array(form.schema, { maxItems: ITEMS_MAX })))
  const body = Type.Object(
    { items: itemsField, metadata: METADATA_FIELD },
    { additionalProperties: false },
  )
  const create = described('createConversation', 'Begin a conversation', CONVERSATION, { body })
  app.post('/conversations', create, async (request) => {
    const { items, metadata = null } = (request.body ?? {}) as Static<typeof body>
    const { organizationId, userId = null } = callerOf(request)
    checkMetadata(metadata)
    const created = await conversations.create(
      {
        id: randomId('conv_', 48),
        organizationId,
        userId,
        metadata,
        createdAt: new Date(clock.now()),
      },
      form.withIds(items ?? []),
    )
    if (created === undefined) throw storesNothing()
    return present(created)
  })

  const retrieve = described('retrieveConversation', 'Show a conversation', CONVERSATION, {
    params: ID,
  })
  app.get('/conversations/:conversation_id', retrieve, async (request) =>
    present(await find(conversations, request)),
  )

  const update = described('updateConversation', 'Change the metadata', CONVERSATION, {
    params: ID,
    body: UPDATE_BODY,
  })
  app.post('/conversations/:conversation_id', update, async (request) => {
    const { metadata = null } = request.body as Static<typeof UPDATE_BODY>
    checkMetadata(metadata)
    const { conversation_id: id } = request.params as Static<typeof ID>
    const { organizationId } = callerOf(request)
    const changed = await conversations.setMetadata(organizationId, id, metadata)
    if (changed === undefined) throw noSuchConversation(id)
    return present(changed)
  })

  const remove = described('deleteConversation', 'Delete a conversation', DELETED, { params: ID })
  app.delete('/conversations/:conversation_id', remove, async (request) => {
    const { conversation_id: id } = request.params as Static<typeof ID>
    if (!(await conversations.remove(callerOf(request).organizationId, id))) {
      throw noSuchConversation(id)
    }
    return { id, object: 'conversation.deleted', deleted: true }
  })
}

function registerItems(app: FastifyInstance, services: ConversationServices): void {
  const { conversations, clock, form } = services
  const path = '/conversations/:conversation_id/items'
  const list = described('listConversationItems', 'List the items of a conversation', LIST, {
    params: ID,
    querystring: LIST_QUERY,
  })
  app.get(path, list, async (request) => {
    const { id } = await find(conversations, request)
    const { limit = LIST_LIMIT, order = 'desc', after } = request.query as Static<typeof LIST_QUERY>
    const reader = contentsReaderOf(request)
    if (after !== undefined && (await conversations.findItem(reader, id, after)) === undefined) {
      throw noSuchItem(after, 'after')
    }
    const page = { limit, isAscending: order === 'asc', ...(after !== undefined && { after }) }
    return presentItems(await conversations.items(reader, id, page))
  })

  const body = Type.Object(
    {
      items: Type.Array(form.schema, { minItems: 1, maxItems: ITEMS_MAX }),
    },
    { additionalProperties: false },
  )
  const add = described('createConversationItems', 'Add items to a conversation', LIST, {
    params: ID,
    body,
  })
  app.post(path, add, async (request) => {
    const { id, organizationId } = await find(conversations, request)
    const items = form.withIds((request.body as Static<typeof body>).items)
    const createdAtMs = clock.now()
    const added = { organizationId, conversationId: id, items, createdAtMs }
    if (!(await conversations.append(added))) throw storesNothing()
    return presentItems({ items, hasMore: false })
  })

  const retrieve = described('retrieveConversationItem', 'Show an item', ITEM, { params: ITEM_ID })
  app.get(`${path}/:item_id`, retrieve, async (request) => {
    const { id } = await find(conversations, request)
    const { item_id: itemId } = request.params as Static<typeof ITEM_ID>
    const item = await conversations.findItem(contentsReaderOf(request), id, itemId)
    if (item === undefined) throw noSuchItem(itemId)
    return presentItem(item)
  })

  const remove = described('deleteConversationItem', 'Delete an item', CONVERSATION, {
    params: ITEM_ID,
  })
  app.delete(`${path}/:item_id`, remove, async (request) => {
    const conversation = await find(conversations, request)
    const { item_id: itemId } = request.params as Static<typeof ITEM_ID>
    if (!(await conversations.removeItem(conversation.id, itemId))) throw noSuchItem(itemId)
    return present(conversation)
  })
}

const WITH_STATUS = ['message', 'function_call', 'function_call_output']

/** An item as clients read it. Items that a client sent without a status are complete. */
function presentItem(item: StoredItem): object {
  if (typeof item.type !== 'string' || !WITH_STATUS.includes(item.type)) return item
  return { status: 'completed', ...item }
}

/** A page of items as clients read it. */
export function presentItems(page: {
  readonly items: readonly StoredItem[]
  readonly hasMore: boolean
}): object {
  const { items, hasMore } = page
  return {
    object: 'list',
    data: items.map(presentItem),
    first_id: items[0]?.id ?? null,
    last_id: items.at(-1)?.id ?? null,
    has_more: hasMore,
  }
}

async function find(
  conversations: ConversationStore,
  request: FastifyRequest,
): Promise<Conversation> {
  const { conversation_id: id } = request.params as Static<typeof ID>
  const found = await conversations.find(callerOf(request).organizationId, id)
  if (found === undefined) throw noSuchConversation(id)
  return found
}

function present({ id, createdAt, metadata }: Conversation): object {
  return {
    id,
    object: 'conversation',
    created_at: unixSeconds(createdAt.getTime()),
    metadata: metadata ?? {},
  }
}

function storesNothing(): ServiceError {
  return failure.accessDenied('Your organization stores no conversations.', {
    code: 'zero_data_retention',
  })
}

function noSuchConversation(id: string): ServiceError {
  return failure.notFound(`Conversation with id '${id.slice(0, 100)}' not found.`, {
    param: 'conversation_id',
  })
}

function noSuchItem(id: string, param = 'item_id'): ServiceError {
  return failure.notFound(`Item with id '${id.slice(0, 100)}' not found.`, { param })
}
