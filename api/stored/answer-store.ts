import { and, eq, gt, inArray, lt, or, type SQL, sql } from 'drizzle-orm'

import { isOrphan } from '#api/jobs/job-store.ts'
import type { ContentsReader } from '#api/v1/request-context.ts'
import type { Db } from '#shared/db/client.ts'
import { readPage } from '#shared/db/replica.ts'
import type { AnswerRow, JobTables } from '#shared/db/schema/jobs.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { packContent, unpackContent } from '#shared/stored-content.ts'

import {
  type ContentKey,
  idsWithin,
  lengthOf,
  openWithin,
  tooLargeToContinue,
} from './bounded-contents.ts'
import { appendItems, type StoredItem } from './conversation-store.ts'
import { fitsStorage, hasStorageFor, storageLimitExceeded } from './stored-bytes-store.ts'

/** The content of a stored answer. */
interface StoredContent {
  /** The input of the request: items with their own ids. */
  readonly input: readonly StoredItem[]
  /** The answer as its route presented it. */
  readonly answer: Readonly<Record<string, unknown>>
}

/** An answer to be stored. */
interface NewAnswer extends Omit<AnswerRow, 'content' | 'deleteAt' | 'createdAt'>, StoredContent {
  readonly createdAtMs: number
}

/** A stored answer with its content. */
export interface StoredAnswer extends StoredContent {
  readonly row: AnswerRow
}

/** Content that a request read, and its size in characters. */
interface Read<Content> {
  readonly contents: readonly Content[]
  readonly bytes: number
}

interface AnswerFilter {
  readonly object: AnswerRow['object']
  readonly limit: number
  readonly isAscending: boolean
  readonly after?: string
  readonly model?: string
  readonly metadata?: Readonly<Record<string, string>>
}

interface AnswerStoreOptions {
  readonly db: Db
  /** Queries of lists, which may lag slightly behind. */
  readonly lists?: Db
  readonly tables: JobTables
  readonly cipher: ContentCipher | undefined
  /** The retention of answers for organizations without their own. */
  readonly retentionDays: number
  /** The most bytes of all stored contents of an organization; no limit if absent. */
  readonly storedBytesMax?: number
}

/** The maximum number of earlier responses in a thread. */
const CHAIN_MAX = 1000

/** The stored answers of a database; contents are encrypted. */
export class AnswerStore {
  readonly #db: Db
  readonly #lists: Db
  readonly #tables: JobTables
  readonly #answers: JobTables['answers']
  readonly #cipher: ContentCipher | undefined
  readonly #retentionDays: number
  readonly #storedBytesMax: number

  constructor(options: AnswerStoreOptions) {
    const { db, lists = db, tables, cipher, retentionDays } = options
    this.#storedBytesMax = options.storedBytesMax ?? Number.MAX_SAFE_INTEGER
    this.#lists = lists
    this.#db = db
    this.#tables = tables
    this.#answers = tables.answers
    this.#cipher = cipher
    this.#retentionDays = retentionDays
  }

  #one(organizationId: string, object: AnswerRow['object'], id: string): SQL | undefined {
    const answers = this.#answers
    return and(
      eq(answers.organizationId, organizationId),
      eq(answers.object, object),
      eq(answers.id, id),
      gt(answers.deleteAt, sql`now()`),
    )
  }

  async #open(row: Pick<AnswerRow, 'id' | 'content'>): Promise<StoredContent> {
    const plain = await unpackContent(row.content, this.#cipher, contextOf(row.id))
    return JSON.parse(plain.toString('utf8'))
  }

  /** Loads the first answers, at least one, up to the size that a request may read. */
  async #load(
    db: Db,
    keys: readonly ContentKey[],
  ): Promise<{ contents: StoredAnswer[]; bytes: number }> {
    const ids = idsWithin(keys)
    const found = await db.select().from(this.#answers).where(inArray(this.#answers.id, ids))
    const rows = found.toSorted((a, b) => ids.indexOf(a.id) - ids.indexOf(b.id))
    const cipher = this.#cipher
    const opened = await openWithin(rows, { cipher, contextOf: ({ id }) => contextOf(id) })
    const contents = opened.map(({ row, text }) => ({
      row,
      ...(JSON.parse(text) as StoredContent),
    }))
    return { contents, bytes: lengthOf(opened) }
  }

  /**
   * Stores a new answer, unless a process that died has stored it; false when the organization
   * stores nothing. Throws `storage_limit_exceeded` when there is no room.
   */
  async add(answer: NewAnswer): Promise<boolean> {
    const content = await pack(answer, this.#cipher)
    const { organizationId } = answer
    const added = { organizationId, bytes: content.length, bytesMax: this.#storedBytesMax }
    return this.#db.transaction(async (tx) => {
      const days = sql`coalesce(${this.#tables.organizations.retentionDays}, ${this.#retentionDays}::int)`
      const { rows } = await tx.execute(sql`
        insert into ${this.#answers} (id, organization_id, user_id, object, model, previous_id,
          conversation_id, job_id, metadata, content, created_at, delete_at)
        select ${answer.id}, ${organizationId}, ${answer.userId}::uuid, ${answer.object},
          ${answer.model}, ${answer.previousId}, ${answer.conversationId}, ${answer.jobId},
          ${answer.metadata === null ? null : JSON.stringify(answer.metadata)}::jsonb, ${content},
          ${new Date(answer.createdAtMs).toISOString()}::timestamptz,
          now() + make_interval(days => ${days})
        from ${this.#tables.organizations}
        where ${this.#tables.organizations.id} = ${organizationId} and ${days} > 0
          and ${fitsStorage(this.#tables, added)}
        on conflict (id) do nothing returning id`)
      if (rows.length > 0) {
        await this.#append(tx, answer)
        return true
      }
      // Most answers are stored, so the reason is only looked up when one was not.
      const isStored = this.#one(organizationId, answer.object, answer.id)
      if ((await tx.$count(this.#answers, isStored)) > 0) return true
      if (!(await hasStorageFor(tx, this.#tables, added))) throw storageLimitExceeded()
      return false
    })
  }

  /** Replaces the content of an answer that was stored when its job was created. */
  async replace(answer: NewAnswer): Promise<boolean> {
    const content = await pack(answer, this.#cipher)
    return this.#db.transaction(async (tx) => {
      const rows = await tx
        .update(this.#answers)
        .set({ content })
        .where(this.#one(answer.organizationId, answer.object, answer.id))
        .returning({ id: this.#answers.id })
      if (rows.length > 0) await this.#append(tx, answer)
      return rows.length > 0
    })
  }

  async find(
    { organizationId }: ContentsReader,
    object: AnswerRow['object'],
    id: string,
  ): Promise<StoredAnswer | undefined> {
    const [row] = await this.#db
      .select()
      .from(this.#answers)
      .where(this.#one(organizationId, object, id))
    return row === undefined ? undefined : { row, ...(await this.#open(row)) }
  }

  /**
   * A response and all responses that it continues, oldest first; undefined when one is no longer
   * stored. Throws `invalidRequest` when their total size exceeds the limit.
   */
  async chain(
    { organizationId }: ContentsReader,
    id: string,
  ): Promise<Read<StoredContent> | undefined> {
    const { rows: keys } = await this.#db.execute<{
      id: string
      previous_id: string | null
      bytes: number
    }>(
      sql`
      with recursive chain as (
        select a.id, a.previous_id, octet_length(a.content) as bytes, 1 as depth
        from ${this.#answers} a
        where a.organization_id = ${organizationId} and a.id = ${id}
          and a.object = 'response' and a.delete_at > now()
        union all
        select a.id, a.previous_id, octet_length(a.content), c.depth + 1
        from chain c join ${this.#answers} a
          on a.id = c.previous_id and a.organization_id = ${organizationId}
          and a.delete_at > now()
        where c.depth < ${CHAIN_MAX}
      )
      select id, previous_id, bytes from chain order by depth desc`,
    )
    if (keys[0] === undefined || keys[0].previous_id !== null) return undefined
    const chain = await this.#load(this.#db, keys)
    if (chain.contents.length < keys.length) throw tooLargeToContinue('previous_response_id')
    return chain
  }

  /**
   * The output items of those responses that are stored. Throws `invalidRequest` when their total
   * size exceeds the limit.
   */
  async outputs(
    { organizationId }: ContentsReader,
    ids: readonly string[],
  ): Promise<Read<StoredItem>> {
    if (ids.length === 0) return { contents: [], bytes: 0 }
    const { id, object, content, deleteAt } = this.#answers
    const keys: ContentKey[] = await this.#db
      .select({ id, bytes: sql<number>`octet_length(${content})` })
      .from(this.#answers)
      .where(
        and(
          eq(this.#answers.organizationId, organizationId),
          eq(object, 'response'),
          inArray(id, [...ids]),
          gt(deleteAt, sql`now()`),
        ),
      )
    if (keys.length === 0) return { contents: [], bytes: 0 }
    const { contents: found, bytes } = await this.#load(this.#db, keys)
    if (found.length < keys.length) throw tooLargeToContinue('input')
    const items = found.flatMap(({ answer }) => (answer.output ?? []) as readonly StoredItem[])
    return { contents: items, bytes }
  }

  /** A page of answers; shorter than its limit when they are large. */
  async list(
    { organizationId }: ContentsReader,
    filter: AnswerFilter,
  ): Promise<{ answers: StoredAnswer[]; hasMore: boolean }> {
    const { object, limit, after, model, metadata, isAscending } = filter
    const sign = sql.raw(isAscending ? '>' : '<')
    const way = sql.raw(isAscending ? 'asc' : 'desc')
    const { id, content } = this.#answers
    const databases = { db: this.#db, lists: this.#lists }
    let keys: ContentKey[] = []
    const page = await readPage(databases, after, async (db) => {
      keys = await db
        .select({ id, bytes: sql<number>`octet_length(${content})` })
        .from(this.#answers)
        .where(
          and(
            eq(this.#answers.organizationId, organizationId),
            eq(this.#answers.object, object),
            gt(this.#answers.deleteAt, sql`now()`),
            ...(model === undefined ? [] : [eq(this.#answers.model, model)]),
            ...(metadata === undefined
              ? []
              : [sql`${this.#answers.metadata} @> ${JSON.stringify(metadata)}::jsonb`]),
            ...(after === undefined
              ? []
              : [
                  sql`(${this.#answers.createdAt}, ${this.#answers.id}) ${sign} (select created_at, id
                    from ${this.#answers} where organization_id = ${organizationId} and id = ${after})`,
                ]),
          ),
        )
        .orderBy(sql`${this.#answers.createdAt} ${way}, ${this.#answers.id} ${way}`)
        .limit(limit + 1)
      return (await this.#load(db, keys.slice(0, limit))).contents
    })
    return { answers: page, hasMore: keys.length > page.length }
  }

  async setMetadata(
    organizationId: string,
    object: AnswerRow['object'],
    id: string,
    metadata: Readonly<Record<string, string>> | null,
  ): Promise<boolean> {
    const rows = await this.#db
      .update(this.#answers)
      .set({ metadata })
      .where(this.#one(organizationId, object, id))
      .returning({ id: this.#answers.id })
    return rows.length > 0
  }

  async remove(
    organizationId: string,
    object: AnswerRow['object'],
    id: string,
  ): Promise<AnswerRow | undefined> {
    return (
      await this.#db
        .delete(this.#answers)
        .where(this.#one(organizationId, object, id))
        .returning()
    )[0]
  }

  /** Deletes expired answers, and those of deleted organizations and users. */
  async sweep(): Promise<void> {
    await this.#db
      .delete(this.#answers)
      .where(or(lt(this.#answers.deleteAt, sql`now()`), isOrphan(this.#tables, 'answers')))
  }

  /** A finished response adds its input and output to its conversation. */
  async #append(tx: Db, added: NewAnswer) {
    const { organizationId, conversationId, input, answer, createdAtMs } = added
    const { output, status } = answer as { output?: readonly StoredItem[]; status?: string }
    if (conversationId === null || output === undefined) return
    if (status === 'queued' || status === 'in_progress') return
    const items = [...input, ...output]
    const storedBytesMax = this.#storedBytesMax
    await appendItems(
      { db: tx, tables: this.#tables, cipher: this.#cipher, storedBytesMax },
      { organizationId, conversationId, items, createdAtMs },
    )
  }
}

function contextOf(id: string): string {
  return `stored answer ${id}`
}

function pack({ id, input, answer }: NewAnswer, cipher: ContentCipher | undefined) {
  return packContent(JSON.stringify({ input, answer }), cipher, contextOf(id))
}
