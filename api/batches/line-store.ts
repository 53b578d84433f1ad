import type { Pool } from 'pg'

import { tablePrefixOf } from '#shared/db/migrate.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { openText, sealText } from '#shared/stored-content.ts'

import { lineContextOf } from './batch.ts'

/** A line that a process has claimed. */
export interface ClaimedLine {
  readonly batch_id: string
  readonly line: number
  readonly body: string
  readonly attempts: number
  readonly organization_id: string
  readonly endpoint: string
  readonly model_ids: readonly string[] | null
  readonly api_key_id: string | null
  readonly user_id: string | null
}

/** The outcome of a line. */
export interface LineAnswer {
  readonly requestId: string
  readonly statusCode: number
  /** JSON text. */
  readonly body: string
}

/** A line as it is written to a file. */
export interface FinishedLine {
  readonly line: number
  readonly custom_id: string
  readonly request_id: string | null
  readonly status_code: number | null
  readonly answer: string | null
}

interface LineCounts {
  readonly good: number
  /** Failed or never run. */
  readonly bad: number
  readonly unrun: number
}

/** The lines of batches. One process at a time claims a line, and each is answered once. */
export interface BatchLines {
  /** Claims up to `limit` lines of the next batch in rotation. */
  claim(leaseId: string, limit: number, seconds: number): Promise<readonly ClaimedLine[]>
  /** Renews claims; returns the lines that must still run. */
  renew(leaseId: string, seconds: number): Promise<ReadonlySet<string>>
  /** Writes and counts the answer once; false when another process holds the line. */
  finish(line: ClaimedLine, leaseId: string, answer: LineAnswer): Promise<boolean>
  /** Returns a line for a later attempt. */
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

const PAGE_LINES = 200
/**
 * An answer with many vectors has tens of megabytes: a page ends after the line that exceeds this.
 */
const PAGE_BYTES = 1024 * 1024

/** The key of a line among the claims of a process. */
export function lineName({ batch_id, line }: Pick<ClaimedLine, 'batch_id' | 'line'>): string {
  return `${batch_id}:${line}`
}

/** Opens the lines of a database's batches. */
export function openBatchLines(pool: Pool, namespace: string, cipher?: ContentCipher): BatchLines {
  const prefix = tablePrefixOf(namespace)
  const batches = `${prefix}batches`
  const lines = `${prefix}batch_lines`
  const outcome = "(state = 'done' and status_code between 200 and 299)"
  return {
    async claim(leaseId, limit, seconds) {
      const { rows } = await pool.query<ClaimedLine>(claimQuery(batches, lines), [
        leaseId,
        limit,
        seconds,
      ])
      return rows.map((row) => {
        const context = lineContextOf(row.batch_id, row.line)
        return { ...row, body: openText(row.body, cipher, context) }
      })
    },
    async renew(leaseId, seconds) {
      const { rows } = await pool.query<ClaimedLine>(
        `update ${lines} l set lease_until = now() + make_interval(secs => $2)
         from ${batches} b
         where l.lease_id = $1 and l.state = 'running' and b.id = l.batch_id
           and b.status = 'in_progress'
         returning l.batch_id, l.line`,
        [leaseId, seconds],
      )
      return new Set(rows.map(lineName))
    },
    finish(line, leaseId, answer) {
      const context = lineContextOf(line.batch_id, line.line)
      const sealed = { ...answer, body: sealText(answer.body, cipher, context) }
      return finish(pool, { batches, lines }, { line, leaseId, answer: sealed })
    },
    release: (line, leaseId, options) => release(pool, lines, { line, leaseId, ...options }),
    async countOutcomes(batchId) {
      const { rows } = await pool.query<LineCounts>(
        `select count(*) filter (where ${outcome})::int as good,
           count(*) filter (where not ${outcome})::int as bad,
           count(*) filter (where state <> 'done')::int as unrun
         from ${lines} where batch_id = $1`,
        [batchId],
      )
      return rows[0] ?? { good: 0, bad: 0, unrun: 0 }
    },
    read: (batchId, isGood) =>
      read(pool, { lines, cipher }, { batchId, condition: `${isGood ? '' : 'not '}${outcome}` }),
    async close(batchId, leaseId, { status, outputFileId, errorFileId }) {
      const { rowCount } = await pool.query(
        `with ended as (
           update ${batches} set status = $3, ${status}_at = now(), failed = total - completed,
             output_file_id = $4, error_file_id = $5, lease_id = null, lease_until = null
           where id = $1 and lease_id = $2 and status in ('finalizing', 'cancelling')
           returning id
         ), deleted_lines as (delete from ${lines} where batch_id in (select id from ended))
         select id from ended`,
        [batchId, leaseId, status, outputFileId, errorFileId],
      )
      return rowCount === 1
    },
  }
}

async function* read(
  pool: Pool,
  { lines, cipher }: { readonly lines: string; readonly cipher: ContentCipher | undefined },
  { batchId, condition }: { readonly batchId: string; readonly condition: string },
): AsyncGenerator<FinishedLine> {
  let after = -1
  for (;;) {
    const text = pageQuery(lines, condition)
    const { rows } = await pool.query<FinishedLine>(text, [batchId, after])
    for (const { answer, ...row } of rows) {
      const context = lineContextOf(batchId, row.line)
      yield { ...row, answer: answer === null ? null : openText(answer, cipher, context) }
    }
    const last = rows.at(-1)
    if (last === undefined) return
    after = last.line
  }
}

function pageQuery(lines: string, condition: string): string {
  return `
    select line, custom_id, request_id, status_code, answer from (
      select *, coalesce(sum(octet_length(answer)) over (
        order by line rows between unbounded preceding and 1 preceding), 0) as bytes_before
      from (
        select line, custom_id, request_id, status_code, answer from ${lines}
        where batch_id = $1 and line > $2 and ${condition} order by line limit ${PAGE_LINES}
      ) page
    ) measured
    where bytes_before < ${PAGE_BYTES} order by line`
}

async function finish(
  pool: Pool,
  { batches, lines }: { readonly batches: string; readonly lines: string },
  done: { readonly line: ClaimedLine; readonly leaseId: string; readonly answer: LineAnswer },
): Promise<boolean> {
  const { requestId, statusCode, body } = done.answer
  const isGood = statusCode >= 200 && statusCode < 300
  const { rowCount } = await pool.query(
    `with done as (
       update ${lines} set state = 'done', lease_id = null, lease_until = null,
         request_id = $4, status_code = $5, answer = $6
       where batch_id = $1 and line = $2 and lease_id = $3 and state = 'running'
       returning batch_id
     )
     update ${batches} set ${isGood ? 'completed = completed + 1' : 'failed = failed + 1'}
     from done where id = done.batch_id`,
    [done.line.batch_id, done.line.line, done.leaseId, requestId, statusCode, body],
  )
  return rowCount === 1
}

async function release(
  pool: Pool,
  lines: string,
  given: {
    readonly line: ClaimedLine
    readonly leaseId: string
    readonly delaySeconds: number
    readonly isCounted: boolean
  },
): Promise<void> {
  const { line, leaseId, delaySeconds, isCounted } = given
  await pool.query(
    `update ${lines} set state = 'waiting', lease_id = null, lease_until = null,
       retry_at = now() + make_interval(secs => $4), attempts = attempts - $5
     where batch_id = $1 and line = $2 and lease_id = $3 and state = 'running'`,
    [line.batch_id, line.line, leaseId, delaySeconds, isCounted ? 0 : 1],
  )
}

// Batches alternate: the one that was served longest ago goes first. A line with an expired lease
// belonged to a process that died. Of one batch, the index has the lines in their order: a join
// would sort all remaining ones each time.
function claimQuery(batches: string, lines: string): string {
  const isFree = `((l.state = 'waiting' and l.retry_at <= now())
    or (l.state = 'running' and l.lease_until < now()))`
  return `
    with chosen as (
      select b.id from ${batches} b
      where b.status = 'in_progress' and b.expires_at > now()
        and exists (select 1 from ${lines} l where l.batch_id = b.id and ${isFree})
      order by b.served_at nulls first, b.created_at limit 1
    ), served as (
      update ${batches} set served_at = clock_timestamp() where id in (select id from chosen)
      returning id, organization_id, endpoint, model_ids, api_key_id, user_id
    ), free as (
      select l.batch_id, l.line from ${lines} l
      where l.batch_id = (select id from served) and ${isFree}
      order by l.batch_id, l.line limit $2 for update of l skip locked
    )
    update ${lines} l set state = 'running', lease_id = $1, attempts = l.attempts + 1,
      lease_until = now() + make_interval(secs => $3)
    from free, served
    where l.batch_id = free.batch_id and l.line = free.line and served.id = l.batch_id
    returning l.batch_id, l.line, l.body, l.attempts,
      served.organization_id, served.endpoint, served.model_ids,
      served.api_key_id, served.user_id`
}
