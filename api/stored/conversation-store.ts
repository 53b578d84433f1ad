import { and, eq, gt, inArray, lt, or, type SQL, sql } from 'drizzle-orm'

import { isOrphan } from '#api/jobs/job-store.ts'
import type { ContentsReader } from '#api/v1/request-context.ts'
import type { Db } from '#shared/db/client.ts'
import { findRetention } from '#shared/db/organizations.ts'
import type { JobTables } from '#shared/db/schema/jobs.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { packContent, unpackContent } from '#shared/stored-content.ts'

import { type ContentKey, idsWithin, lengthOf, openWithin } from './bounded-contents.ts'
import { hasStorageFor, ROW_BYTES, storageLimitExceeded } from './stored-bytes-store.ts'

/** One item of a conversation. */
export type StoredItem = Readonly<Record<string, unknown>> & { readonly id: string }

/** A conversation without its items. */
export type Conversation = JobTables['conversations']['$inferSelect']

interface ItemPage {
  readonly limit: number
  readonly isAscending: boolean
  /** The id of the last item of the previous page. */
  readonly after?: string
}

interface Opened {
  readonly db: Db
  readonly tables: JobTables
  readonly cipher: ContentCipher | undefined
  /** The most bytes of all stored contents of an organization; no limit if absent. */
  readonly storedBytesMax?: number
}

/** The conversations of a database; their items are encrypted. */
export class ConversationStore {
  readonly #db: Db
  readonly #tables: JobTables
  readonly #conversations: JobTables['conversations']
  readonly #items: JobTables['items']
  readonly #cipher: ContentCipher | undefined
  readonly #retentionDays: number
  readonly #storedBytesMax: number

  /** `retentionDays` applies to organizations without their own retention. */
  constructor(options: Opened & { readonly retentionDays: number }) {
    const { db, tables, cipher, retentionDays } = options
    this.#storedBytesMax = options.storedBytesMax ?? Number.MAX_SAFE_INTEGER
    this.#db = db
    this.#tables = tables
    this.#conversations = tables.conversations
    this.#items = tables.items
    this.#cipher = cipher
    this.#retentionDays = retentionDays
  }

  #opened(db: Db): Opened {
    const storedBytesMax = this.#storedBytesMax
    return { db, tables: this.#tables, cipher: this.#cipher, storedBytesMax }
  }

  /** Days; 0 for organizations that store nothing or do not exist. */
  async #retentionOf(db: Db, organizationId: string): Promise<number> {
    const own = await findRetention(db, this.#tables, organizationId)
    return own === undefined ? 0 : (own.days ?? this.#retentionDays)
  }

  #one(organizationId: string, id: string): SQL | undefined {
    const conversations = this.#conversations
    return and(
      eq(conversations.organizationId, organizationId),
      eq(conversations.id, id),
      gt(conversations.deleteAt, sql`now()`),
    )
  }

  /** Undefined when the organization stores nothing. */
  create(
    conversation: Omit<Conversation, 'deleteAt'>,
    first: readonly StoredItem[],
  ): Promise<Conversation | undefined> {
    const { id, organizationId, createdAt } = conversation
    return this.#db.transaction(async (tx) => {
      const days = await this.#retentionOf(tx, organizationId)
      if (days === 0) return undefined
      const bytes = ROW_BYTES + JSON.stringify(conversation.metadata ?? {}).length
      const addition = { organizationId, bytes, bytesMax: this.#storedBytesMax }
      if (!(await hasStorageFor(tx, this.#tables, addition))) throw storageLimitExceeded()
      const deleteAt = sql`now() + make_interval(days => ${days})`
      const [row] = await tx
        .insert(this.#conversations)
        .values({ ...conversation, deleteAt })
        .returning()
      const createdAtMs = createdAt.getTime()
      const added = { organizationId, conversationId: id, items: first, createdAtMs }
      await appendItems(this.#opened(tx), added)
      return row
    })
  }

  async find(organizationId: string, id: string): Promise<Conversation | undefined> {
    return (
      await this.#db.select().from(this.#conversations).where(this.#one(organizationId, id))
    )[0]
  }

  async setMetadata(
    organizationId: string,
    id: string,
    metadata: Conversation['metadata'],
  ): Promise<Conversation | undefined> {
    const change = this.#db.update(this.#conversations).set({ metadata })
    return (await change.where(this.#one(organizationId, id)).returning())[0]
  }

  async remove(organizationId: string, id: string): Promise<boolean> {
    const rows = await this.#db
      .delete(this.#conversations)
      .where(this.#one(organizationId, id))
      .returning()
    return rows.length > 0
  }

  /**
   * A page of the items of a conversation; shorter than its limit when the items are large. The
   * caller has checked that the conversation exists.
   */
  async items(
    _reader: ContentsReader,
    conversationId: string,
    { limit, isAscending, after }: ItemPage,
  ): Promise<{ items: StoredItem[]; hasMore: boolean; bytes: number }> {
    const sign = sql.raw(isAscending ? '>' : '<')
    const way = sql.raw(isAscending ? 'asc' : 'desc')
    const { id, content, position } = this.#items
    const keys: ContentKey[] = await this.#db
      .select({ id, bytes: sql<number>`octet_length(${content})` })
      .from(this.#items)
      .where(
        and(
          eq(this.#items.conversationId, conversationId),
          ...(after === undefined
            ? []
            : [
                sql`${position} ${sign} (select position from ${this.#items}
                  where conversation_id = ${conversationId} and id = ${after})`,
              ]),
        ),
      )
      .orderBy(sql`${position} ${way}`)
      .limit(limit + 1)
    const rows = await this.#db
      .select()
      .from(this.#items)
      .where(
        and(
          eq(this.#items.conversationId, conversationId),
          inArray(id, idsWithin(keys.slice(0, limit))),
        ),
      )
      .orderBy(sql`${position} ${way}`)
    const opened = await openWithin(rows, {
      cipher: this.#cipher,
      contextOf: (row) => contextOf(conversationId, row.id),
    })
    const items = opened.map(({ text }) => JSON.parse(text) as StoredItem)
    return { items, hasMore: keys.length > items.length, bytes: lengthOf(opened) }
  }

  async findItem(
    _reader: ContentsReader,
    conversationId: string,
    id: string,
  ): Promise<StoredItem | undefined> {
    const [row] = await this.#db
      .select()
      .from(this.#items)
      .where(and(eq(this.#items.conversationId, conversationId), inArray(this.#items.id, [id])))
    if (row === undefined) return undefined
    const plain = await unpackContent(row.content, this.#cipher, contextOf(conversationId, id))
    return JSON.parse(plain.toString('utf8')) as StoredItem
  }

  /** False when the organization stores nothing now, though it has the conversation. */
  async append(added: AddedItems): Promise<boolean> {
    if ((await this.#retentionOf(this.#db, added.organizationId)) === 0) return false
    await appendItems(this.#opened(this.#db), added)
    return true
  }

  /** False when the conversation has no such item. */
  async removeItem(conversationId: string, id: string): Promise<boolean> {
    const isIt = and(eq(this.#items.conversationId, conversationId), eq(this.#items.id, id))
    const rows = await this.#db.delete(this.#items).where(isIt).returning({ id: this.#items.id })
    return rows.length > 0
  }

  /** Deletes expired conversations, and those of deleted owners. */
  async sweep(): Promise<void> {
    await this.#db
      .delete(this.#conversations)
      .where(
        or(lt(this.#conversations.deleteAt, sql`now()`), isOrphan(this.#tables, 'conversations')),
      )
  }
}

interface AddedItems {
  readonly organizationId: string
  readonly conversationId: string
  readonly items: readonly StoredItem[]
  readonly createdAtMs: number
}

/**
 * Appends items to a conversation in order; existing items are unchanged. Throws
 * `storage_limit_exceeded` when the organization has no room.
 */
export async function appendItems(
  { db, tables, cipher, storedBytesMax: bytesMax = Number.MAX_SAFE_INTEGER }: Opened,
  { organizationId, conversationId, items, createdAtMs }: AddedItems,
): Promise<void> {
  if (items.length === 0) return
  const rows = await Promise.all(
    items.map(async (item) => ({
      id: item.id,
      conversationId,
      content: await packContent(JSON.stringify(item), cipher, contextOf(conversationId, item.id)),
      createdAt: new Date(createdAtMs),
    })),
  )
  const bytes = rows.reduce((sum, { content }) => sum + ROW_BYTES + content.length, 0)
  if (!(await hasStorageFor(db, tables, { organizationId, bytes, bytesMax })))
    throw storageLimitExceeded()
  await db.insert(tables.items).values(rows).onConflictDoNothing()
}

function contextOf(conversationId: string, id: string): string {
  return `conversation item ${conversationId} ${id}`
}
