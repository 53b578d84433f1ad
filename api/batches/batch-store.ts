import {
  and,
  asc,
  desc,
  eq,
  exists,
  getTableColumns,
  gt,
  inArray,
  isNotNull,
  isNull,
  lt,
  lte,
  ne,
  notExists,
  notInArray,
  or,
  type SQL,
  sql,
  TransactionRollbackError,
} from 'drizzle-orm'

import { hasStorageFor } from '#api/stored/stored-bytes-store.ts'
import type { Db } from '#shared/db/client.ts'
import {
  databaseNow,
  isBeyondRowWhere,
  secondsFromNow,
  tableOfArrays,
} from '#shared/db/expressions.ts'
import { type ListDatabases, readPage } from '#shared/db/replica.ts'
import type { BatchRow, BatchTables, InputFault } from '#shared/db/schema/batches.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { sealText } from '#shared/stored-content.ts'

import { lineContextOf } from './batch.ts'

/** The fields of a new batch. */
interface NewBatch {
  readonly id: string
  readonly organizationId: string
  readonly modelIds: readonly string[] | null
  /** The account that its lines are charged to. */
  readonly apiKeyId: string | undefined
  readonly userId: string | undefined
  readonly endpoint: string
  readonly inputFileId: string
  readonly inputObjectKey: string
  readonly completionWindow: string
  readonly windowSeconds: number
  readonly metadata: Readonly<Record<string, string>> | null
  readonly outputRetentionSeconds: number | null
}

interface BatchPage {
  readonly limit: number
  /** The id of the last batch of the previous page. */
  readonly after?: string
}

/** The organizations whose batches a process validates or finalizes. */
interface Rotation {
  readonly busy: readonly string[]
  /** Organizations that were served, the least recent first. */
  readonly served: readonly string[]
}

/** One request of an input file. */
export interface NewLine {
  readonly line: number
  readonly customId: string
  readonly body: string
}

/** The batches of a database and their state transitions. */
export interface Batches {
  /** Undefined when the organization already has `openMax` unfinished batches. */
  create(batch: NewBatch, openMax: number): Promise<BatchRow | undefined>
  find(organizationId: string, id: string): Promise<BatchRow | undefined>
  list(organizationId: string, page: BatchPage): Promise<{ rows: BatchRow[]; hasMore: boolean }>
  /** Starts the cancellation; undefined for an unknown batch, unchanged for an ended one. */
  cancel(organizationId: string, id: string): Promise<BatchRow | undefined>
  /** Whether lines of batches may add this many bytes to the organization's stored contents. */
  hasRoom(organizationId: string, bytes: number): Promise<boolean>
  /**
   * Leases a batch that waits for validation or finalization, unless another process holds it. The
   * organization served least recently comes first; busy ones are skipped.
   */
  lease(leaseId: string, seconds: number, rotation: Rotation): Promise<BatchRow | undefined>
  renew(leaseId: string, seconds: number): Promise<void>
  /** Stores all lines in one transaction and starts the batch, unless the lease was lost. */
  begin(id: string, leaseId: string, lines: AsyncIterable<readonly NewLine[]>): Promise<void>
  /** Ends a batch whose input is faulty. */
  reject(id: string, leaseId: string, errors: readonly InputFault[]): Promise<void>
  /**
   * Advances batches whose lines are all answered, whose time is over, or whose owner was deleted
   * or banned.
   */
  settle(): Promise<void>
}

/**
 * The states of unfinished batches, as in their partial index, because most batches are finished.
 */
const OPEN = ['validating', 'in_progress', 'finalizing', 'cancelling'] as const
const CANCELLABLE = ['validating', 'in_progress'] as const
const NO_LEASE = { leaseId: null, leaseUntil: null }
const CANCELLING = { status: 'cancelling', cancellingAt: databaseNow, ...NO_LEASE } as const

/** Opens the batches of a database. */
export function openBatches(
  db: Db,
  tables: BatchTables,
  options: {
    readonly cipher?: ContentCipher | undefined
    readonly lists?: Db
    /** Bytes that all stored contents of an organization may have together; no limit if absent. */
    readonly storedBytesMax?: number
  } = {},
): Batches {
  const { cipher, lists = db, storedBytesMax: bytesMax = Number.MAX_SAFE_INTEGER } = options
  const { batches } = tables
  const own = (organizationId: string, id: string) =>
    and(eq(batches.organizationId, organizationId), eq(batches.id, id))
  return {
    create: (batch, openMax) => create(db, tables, batch, openMax),
    async find(organizationId, id) {
      return (await db.select().from(batches).where(own(organizationId, id)))[0]
    },
    list: (organizationId, page) => list({ db, lists }, tables, organizationId, page),
    async cancel(organizationId, id) {
      const [cancelled] = await db
        .update(batches)
        .set(CANCELLING)
        .where(and(own(organizationId, id), inArray(batches.status, CANCELLABLE)))
        .returning()
      return cancelled ?? this.find(organizationId, id)
    },
    hasRoom: (organizationId, bytes) =>
      hasStorageFor(db, tables, { organizationId, bytes, bytesMax }),
    lease: (leaseId, seconds, rotation) => lease(db, tables, { leaseId, seconds, rotation }),
    async renew(leaseId, seconds) {
      await db
        .update(batches)
        .set({ leaseUntil: secondsFromNow(seconds) })
        .where(and(eq(batches.leaseId, leaseId), inArray(batches.status, OPEN)))
    },
    begin: (id, leaseId, lines) => begin(db, tables, { id, leaseId, lines, cipher }),
    async reject(id, leaseId, errors) {
      await db
        .update(batches)
        .set({ status: 'failed', failedAt: databaseNow, errors, ...NO_LEASE })
        .where(isValidatedBy(tables, id, leaseId))
    },
    settle: () => settle(db, tables),
  }
}

/** Locks the organization, so that concurrent requests count its batches one after another. */
function create(
  db: Db,
  { batches, organizations }: BatchTables,
  { windowSeconds, modelIds, ...batch }: NewBatch,
  openMax: number,
): Promise<BatchRow | undefined> {
  const { organizationId } = batch
  return inTransaction(db, async (tx) => {
    const found = tx.select({ id: organizations.id }).from(organizations)
    await found.where(eq(organizations.id, organizationId)).for('no key update')
    // Counted before the insertion, which its own statement does not see.
    const open = sql<string>`(${tx
      .select({ total: sql`count(*)` })
      .from(batches)
      .where(and(eq(batches.organizationId, organizationId), inArray(batches.status, OPEN)))})`
    const expiresAt = secondsFromNow(windowSeconds)
    const [made] = await tx
      .insert(batches)
      .values({ ...batch, expiresAt, modelIds: modelIds === null ? null : [...modelIds] })
      .returning({ ...getTableColumns(batches), open })
    if (made === undefined || Number(made.open) >= openMax) return undefined
    const { open: _open, ...row } = made
    return row
  })
}

async function list(
  databases: ListDatabases,
  { batches }: BatchTables,
  organizationId: string,
  { limit, after }: BatchPage,
): Promise<{ rows: BatchRow[]; hasMore: boolean }> {
  const isOwn = eq(batches.organizationId, organizationId)
  const isLast = and(isOwn, eq(batches.id, after ?? ''))
  const isBehind = isBeyondRowWhere([batches.createdAt, batches.id], '<', isLast)
  const rows = await readPage(databases, after, (db) =>
    db
      .select()
      .from(batches)
      .where(and(isOwn, after === undefined ? undefined : isBehind))
      .orderBy(desc(batches.createdAt), desc(batches.id))
      .limit(limit + 1),
  )
  return { rows: rows.slice(0, limit), hasMore: rows.length > limit }
}

/** A cancelled batch is finalized once none of its lines runs any more. */
async function lease(
  db: Db,
  tables: BatchTables,
  wanted: { readonly leaseId: string; readonly seconds: number; readonly rotation: Rotation },
): Promise<BatchRow | undefined> {
  const { batches } = tables
  const { leaseId, seconds, rotation } = wanted
  const { organizationId } = batches
  const lastServed = sql`array_position(${sql.param([...rotation.served])}::text[], ${organizationId})`
  const next = db
    .select({ id: batches.id })
    .from(batches)
    .where(
      and(
        or(isNull(batches.leaseUntil), lt(batches.leaseUntil, databaseNow)),
        notInArray(organizationId, [...rotation.busy]),
        or(
          inArray(batches.status, ['validating', 'finalizing']),
          and(eq(batches.status, 'cancelling'), runsNoLine(db, tables)),
        ),
      ),
    )
    .orderBy(sql`${lastServed} nulls first`, asc(batches.createdAt))
    .limit(1)
    .for('update', { skipLocked: true })
  const [leased] = await db
    .update(batches)
    .set({ leaseId, leaseUntil: secondsFromNow(seconds) })
    .where(eq(batches.id, next))
    .returning()
  return leased
}

function runsNoLine(db: Db, { batches, lines }: BatchTables): SQL {
  const isRunning = and(eq(lines.state, 'running'), gt(lines.leaseUntil, databaseNow))
  const ofBatch = db.select({ line: lines.line }).from(lines)
  return notExists(ofBatch.where(and(eq(lines.batchId, batches.id), isRunning)))
}

const BANNED: InputFault = {
  code: 'user_banned',
  message: 'The batch was cancelled because its user is banned.',
  param: null,
  line: null,
}

async function settle(db: Db, tables: BatchTables): Promise<void> {
  const { batches, lines, organizations, users } = tables
  const isOwned = and(
    eq(organizations.id, batches.organizationId),
    inArray(batches.status, CANCELLABLE),
  )
  // A deleted organization needs no results.
  await db
    .update(batches)
    .set(CANCELLING)
    .from(organizations)
    .where(and(isOwned, isNotNull(organizations.deletedAt)))
  // A ban cancels the batches of the user's own organization, and those that the user created with
  // an access token elsewhere.
  const isOwner = or(eq(users.id, organizations.personalUserId), eq(users.id, batches.userId))
  const found = db.select({ id: users.id }).from(users)
  const banned = found.where(and(isOwner, gt(users.bannedUntil, databaseNow)))
  await db
    .update(batches)
    .set({ ...CANCELLING, errors: [BANNED] })
    .from(organizations)
    .where(and(isOwned, exists(banned)))
  const ofBatch = db.select({ line: lines.line }).from(lines)
  const open = ofBatch.where(and(eq(lines.batchId, batches.id), ne(lines.state, 'done')))
  const isOver = lte(batches.expiresAt, databaseNow)
  const isInProgress = eq(batches.status, 'in_progress')
  await db
    .update(batches)
    .set({ status: 'finalizing', finalizingAt: databaseNow })
    .where(
      or(
        and(eq(batches.status, 'validating'), isOver),
        and(isInProgress, runsNoLine(db, tables), or(isOver, notExists(open))),
      ),
    )
}

function isValidatedBy({ batches }: BatchTables, id: string, leaseId: string): SQL | undefined {
  return and(eq(batches.id, id), eq(batches.leaseId, leaseId), eq(batches.status, 'validating'))
}

async function begin(
  db: Db,
  tables: BatchTables,
  batch: {
    readonly id: string
    readonly leaseId: string
    readonly lines: AsyncIterable<readonly NewLine[]>
    readonly cipher: ContentCipher | undefined
  },
): Promise<void> {
  const { id, leaseId, cipher } = batch
  await inTransaction(db, async (tx) => {
    let total = 0
    for await (const page of batch.lines) {
      const rows = tableOfArrays([
        ['int', page.map(({ line }) => line)],
        ['text', page.map(({ customId }) => customId)],
        ['text', page.map(({ line, body }) => sealText(body, cipher, lineContextOf(id, line)))],
      ])
      await tx.execute(sql`
        insert into ${tables.lines} (batch_id, line, custom_id, body)
        select ${id}, * from ${rows}`)
      total += page.length
    }
    const begun = await tx
      .update(tables.batches)
      .set({ status: 'in_progress', inProgressAt: databaseNow, total, ...NO_LEASE })
      .where(isValidatedBy(tables, id, leaseId))
      .returning({ id: tables.batches.id })
    // Without the lease, the lines belong to another process.
    return begun.length === 1 ? total : undefined
  })
}

/** Commits when `work` returns a value and rolls back when it returns undefined. */
async function inTransaction<T>(
  db: Db,
  work: (tx: Db) => Promise<T | undefined>,
): Promise<T | undefined> {
  try {
    return await db.transaction(async (tx) => (await work(tx)) ?? tx.rollback())
  } catch (error) {
    if (error instanceof TransactionRollbackError) return undefined
    throw error
  }
}
