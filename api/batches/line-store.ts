import {
  and,
  asc,
  between,
  count,
  eq,
  exists,
  gt,
  inArray,
  lt,
  lte,
  ne,
  not,
  or,
  sql,
} from 'drizzle-orm'

import type { SlotRoom } from '#api/v1/fair-slots.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import type { Db } from '#shared/db/client.ts'
import { databaseNow, increased, numberUnder, secondsFromNow } from '#shared/db/expressions.ts'
import type { BatchLineRow, BatchRow, BatchTables } from '#shared/db/schema/batches.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { openText, sealText } from '#shared/stored-content.ts'

import { lineContextOf } from './batch.ts'

/** A line that a process has claimed, with the fields of its batch that it needs. */
export type ClaimedLine = Pick<BatchLineRow, 'batchId' | 'line' | 'body' | 'attempts'> &
  Pick<BatchRow, 'organizationId' | 'endpoint' | 'modelIds' | 'apiKeyId' | 'userId'>

/** The model and the tokens of an answer. A failed line has none. */
interface LineUse {
  readonly modelId: string
  readonly usage: TokenUsage
}

/** The outcome of a line. */
export interface LineAnswer extends Partial<LineUse> {
  readonly requestId: string
  readonly statusCode: number
  /** JSON text. */
  readonly body: string
}

/** A line as it is written to a file. */
export type FinishedLine = Pick<
  BatchLineRow,
  'line' | 'customId' | 'requestId' | 'statusCode' | 'answer'
>

interface LineCounts {
  readonly good: number
  /** Failed or never run. */
  readonly bad: number
  readonly unrun: number
}

/** The lines of batches. One process at a time claims a line, and each is answered once. */
export interface BatchLines {
  /**
   * Claims lines of the next batch in rotation, from the organizations with the fewest lines in
   * flight.
   */
  claim(leaseId: string, seconds: number, room: SlotRoom): Promise<readonly ClaimedLine[]>
  /** Renews claims; returns the lines that must still run. */
  renew(leaseId: string, seconds: number): Promise<ReadonlySet<string>>
  /** Writes and counts the answer once; false when another process holds the line. */
  finish(line: ClaimedLine, leaseId: string, answer: LineAnswer): Promise<boolean>
  /** Releases a line for a later attempt. */
  release(
    line: ClaimedLine,
    leaseId: string,
    options: { readonly delaySeconds: number; readonly isCounted: boolean },
  ): Promise<void>
  countOutcomes(batchId: string): Promise<LineCounts>
  /** The lines with one outcome, in order. */
  read(batchId: string, isGood: boolean): AsyncIterable<FinishedLine>
  /** Ends a batch with its files, and deletes its lines. False when the lease was lost. */
  close(batchId: string, leaseId: string, end: BatchEnd): Promise<boolean>
}

export interface BatchEnd {
  readonly status: 'completed' | 'expired' | 'cancelled'
  readonly outputFileId: string | null
  readonly errorFileId: string | null
}

/** Lines that are claimed from one batch before the next one. */
const LINES_PER_TURN = 8
const PAGE_LINES = 200
/**
 * An answer with many vectors has tens of megabytes, so a page ends after the line that exceeds
 * this.
 */
const PAGE_BYTES = 1024 * 1024

/** The key of a line among the claims of a process. */
export function lineName({ batchId, line }: Pick<ClaimedLine, 'batchId' | 'line'>): string {
  return `${batchId}:${line}`
}

const NO_LEASE = { leaseId: null, leaseUntil: null }

/** Opens the lines of a database's batches. */
export function openBatchLines(db: Db, tables: BatchTables, cipher?: ContentCipher): BatchLines {
  const { batches, lines } = tables
  const held = (line: ClaimedLine, leaseId: string) =>
    and(
      eq(lines.batchId, line.batchId),
      eq(lines.line, line.line),
      eq(lines.leaseId, leaseId),
      eq(lines.state, 'running'),
    )
  return {
    async claim(leaseId, seconds, room) {
      const rows = await claim(db, tables, { leaseId, seconds, room })
      return rows.map((row) => {
        const context = lineContextOf(row.batchId, row.line)
        return { ...row, body: openText(row.body, cipher, context) }
      })
    },
    async renew(leaseId, seconds) {
      const rows = await db
        .update(lines)
        .set({ leaseUntil: secondsFromNow(seconds) })
        .from(batches)
        .where(
          and(
            eq(lines.leaseId, leaseId),
            eq(lines.state, 'running'),
            eq(batches.id, lines.batchId),
            eq(batches.status, 'in_progress'),
          ),
        )
        .returning({ batchId: lines.batchId, line: lines.line })
      return new Set(rows.map(lineName))
    },
    async finish(line, leaseId, { requestId, statusCode, body, ...use }) {
      const answer = sealText(body, cipher, lineContextOf(line.batchId, line.line))
      const finished = db
        .update(lines)
        .set({ state: 'done', ...NO_LEASE, requestId, statusCode, answer })
        .where(held(line, leaseId))
        .returning({ batchId: lines.batchId })
      const done = db.$with('done').as(finished)
      const counter = statusCode >= 200 && statusCode < 300 ? 'completed' : 'failed'
      const counted = await db
        .with(done)
        .update(batches)
        .set({ [counter]: increased(batches[counter]), ...used(batches, use) })
        .from(done)
        .where(eq(batches.id, done.batchId))
        .returning({ id: batches.id })
      return counted.length === 1
    },
    async release(line, leaseId, { delaySeconds, isCounted }) {
      const retryAt = secondsFromNow(delaySeconds)
      const attempts = isCounted ? lines.attempts : increased(lines.attempts, -1)
      await db
        .update(lines)
        .set({ state: 'waiting', ...NO_LEASE, retryAt, attempts: sql`${attempts}` })
        .where(held(line, leaseId))
    },
    countOutcomes: (batchId) => countOutcomes(db, tables, batchId),
    read: (batchId, wantsGood) => read(db, tables, { batchId, wantsGood, cipher }),
    close: (batchId, leaseId, end) => close(db, tables, { batchId, leaseId, end }),
  }
}

/** The model of a batch is the one that answered first. */
function used({ modelId, ...sums }: BatchTables['batches'], use: Partial<LineUse>) {
  if (use.usage === undefined) return {}
  const { promptTokens, completionTokens, cachedTokens, reasoningTokens = 0 } = use.usage
  return {
    modelId: sql`coalesce(${modelId}, ${use.modelId})`,
    promptTokens: increased(sums.promptTokens, promptTokens),
    completionTokens: increased(sums.completionTokens, completionTokens),
    cachedTokens: increased(sums.cachedTokens, cachedTokens),
    reasoningTokens: increased(sums.reasoningTokens, reasoningTokens),
  }
}

async function countOutcomes(db: Db, tables: BatchTables, batchId: string): Promise<LineCounts> {
  const { lines } = tables
  const isDone = isGood(tables)
  const [counts] = await db
    .select({
      good: sql<number>`${count()} filter (where ${isDone})`.mapWith(Number),
      bad: sql<number>`${count()} filter (where not ${isDone})`.mapWith(Number),
      unrun: sql<number>`${count()} filter (where ${ne(lines.state, 'done')})`.mapWith(Number),
    })
    .from(lines)
    .where(eq(lines.batchId, batchId))
  return counts ?? { good: 0, bad: 0, unrun: 0 }
}

function isGood({ lines }: BatchTables) {
  return sql`(${and(eq(lines.state, 'done'), between(lines.statusCode, 200, 299))})`
}

interface Reading {
  readonly batchId: string
  readonly wantsGood: boolean
  readonly cipher: ContentCipher | undefined
}

async function* read(
  db: Db,
  tables: BatchTables,
  { batchId, wantsGood, cipher }: Reading,
): AsyncGenerator<FinishedLine> {
  let after = -1
  for (;;) {
    const rows = await readPage(db, tables, { batchId, wantsGood, after })
    for (const { answer, ...row } of rows) {
      const context = lineContextOf(batchId, row.line)
      yield { ...row, answer: answer === null ? null : openText(answer, cipher, context) }
    }
    const last = rows.at(-1)
    if (last === undefined) return
    after = last.line
  }
}

function readPage(
  db: Db,
  tables: BatchTables,
  where: Omit<Reading, 'cipher'> & { readonly after: number },
): Promise<FinishedLine[]> {
  const { lines } = tables
  const { line, customId, requestId, statusCode, answer } = lines
  const isWanted = where.wantsGood ? isGood(tables) : not(isGood(tables))
  const page = db
    .select({ line, customId, requestId, statusCode, answer })
    .from(lines)
    .where(and(eq(lines.batchId, where.batchId), gt(line, where.after), isWanted))
    .orderBy(asc(line))
    .limit(PAGE_LINES)
    .as('page')
  const bytesBefore = sql<number>`coalesce(sum(octet_length(${page.answer})) over (
    order by ${page.line} rows between unbounded preceding and 1 preceding), 0)`
  const measured = db
    .select({
      line: page.line,
      customId: page.customId,
      requestId: page.requestId,
      statusCode: page.statusCode,
      answer: page.answer,
      bytesBefore: bytesBefore.as('bytes_before'),
    })
    .from(page)
    .as('measured')
  return db
    .select({
      line: measured.line,
      customId: measured.customId,
      requestId: measured.requestId,
      statusCode: measured.statusCode,
      answer: measured.answer,
    })
    .from(measured)
    .where(lt(measured.bytesBefore, PAGE_BYTES))
    .orderBy(asc(measured.line))
}

async function close(
  db: Db,
  { batches, lines }: BatchTables,
  { batchId, leaseId, end }: { batchId: string; leaseId: string; end: BatchEnd },
): Promise<boolean> {
  const { status, outputFileId, errorFileId } = end
  const closed = db
    .update(batches)
    .set({
      status,
      outputFileId,
      errorFileId,
      ...NO_LEASE,
      [`${status}At`]: databaseNow,
      failed: sql`${batches.total} - ${batches.completed}`,
    })
    .where(
      and(
        eq(batches.id, batchId),
        eq(batches.leaseId, leaseId),
        inArray(batches.status, ['finalizing', 'cancelling']),
      ),
    )
    .returning({ id: batches.id })
  const ended = db.$with('ended').as(closed)
  const ids = db.select({ id: ended.id }).from(ended)
  const deleted = db.$with('deleted').as(db.delete(lines).where(inArray(lines.batchId, ids)))
  const rows = await db.with(ended, deleted).select({ id: ended.id }).from(ended)
  return rows.length === 1
}

/**
 * Batches alternate: of the organizations with the fewest lines in flight, the one served longest
 * ago goes first. A line with an expired lease belonged to a process that died. The index returns
 * the lines of one batch in order; a join would sort all remaining ones each time.
 */
function claim(
  db: Db,
  { batches, lines }: BatchTables,
  options: { readonly leaseId: string; readonly seconds: number; readonly room: SlotRoom },
): Promise<ClaimedLine[]> {
  const { leaseId, seconds, room } = options
  const inFlight = numberUnder(room.inFlight, batches.organizationId)
  const isFree = or(
    and(eq(lines.state, 'waiting'), lte(lines.retryAt, databaseNow)),
    and(eq(lines.state, 'running'), lt(lines.leaseUntil, databaseNow)),
  )
  const ofBatch = db.select({ line: lines.line }).from(lines)
  const hasFree = exists(ofBatch.where(and(eq(lines.batchId, batches.id), isFree)))
  const isOpen = and(eq(batches.status, 'in_progress'), gt(batches.expiresAt, databaseNow))
  const chosen = db
    .select({ id: batches.id })
    .from(batches)
    .where(and(isOpen, lt(inFlight, room.perOrganizationMax), hasFree))
    .orderBy(inFlight, sql`${batches.servedAt} nulls first`, asc(batches.createdAt))
    .limit(1)
  const { id, organizationId, endpoint, modelIds, apiKeyId, userId } = batches
  const ofServed = { id, organizationId, endpoint, modelIds, apiKeyId, userId }
  const serving = db.update(batches).set({ servedAt: sql`clock_timestamp()` })
  const served = db.$with('served').as(serving.where(eq(id, chosen)).returning(ofServed))
  const free = db.$with('free').as(
    db
      .select({ batchId: lines.batchId, line: lines.line })
      .from(lines)
      .where(and(eq(lines.batchId, db.select({ id: served.id }).from(served)), isFree))
      .orderBy(asc(lines.batchId), asc(lines.line))
      .limit(Math.min(LINES_PER_TURN, room.limit, room.perOrganizationMax))
      .for('update', { skipLocked: true }),
  )
  return db
    .with(served, free)
    .update(lines)
    .set({
      state: 'running',
      leaseId,
      leaseUntil: secondsFromNow(seconds),
      attempts: increased(lines.attempts),
    })
    .from(free)
    .innerJoin(served, eq(served.id, free.batchId))
    .where(and(eq(lines.batchId, free.batchId), eq(lines.line, free.line)))
    .returning({
      batchId: lines.batchId,
      line: lines.line,
      body: lines.body,
      attempts: lines.attempts,
      organizationId: served.organizationId,
      endpoint: served.endpoint,
      modelIds: served.modelIds,
      apiKeyId: served.apiKeyId,
      userId: served.userId,
    })
}
