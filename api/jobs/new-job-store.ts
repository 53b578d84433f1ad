import { type Column, getTableColumns, type SQL, sql } from 'drizzle-orm'

import { fitsStorage } from '#api/stored/stored-bytes-store.ts'
import { type Db, prepared } from '#shared/db/client.ts'
import type { JobRow, JobTables } from '#shared/db/schema/jobs.ts'

/** A new job, whose content is already encrypted. */
export type NewJob = Omit<
  JobTables['jobs']['$inferInsert'],
  'state' | 'attempts' | 'leaseId' | 'leaseUntil' | 'deleteAt'
>

/** The limits that decide whether a job is created. */
export interface CreateLimits {
  /** Unfinished jobs that the organization may have. */
  readonly openMax: number
  /** Bytes that the requests of all unfinished jobs may have together, as stored. */
  readonly openBytesMax: number
  /** Whether no job is created for an organization that stores nothing. */
  readonly onlyStored: boolean
}

/**
 * Inserts a job with one statement, unless the organization has too many or too large jobs, as far
 * as the statement sees them, or `onlyStored` is set and the organization stores nothing.
 * `uncounted` jobs of this size may be added at the same time without exceeding a limit.
 */
export async function insertJob(
  { db, tables }: { readonly db: Db; readonly tables: JobTables },
  job: NewJob,
  options: CreateLimits & {
    readonly retentionDays: number
    readonly storedBytesMax: number
    readonly uncounted: number
  },
): Promise<Omit<JobRow, 'request' | 'result'> | undefined> {
  const values: Readonly<Record<string, unknown>> = { attempts: 0, ...job, state: 'queued' }
  const columns: Readonly<Record<string, Column>> = getTableColumns(tables.jobs)
  const row = Object.entries(columns).map(([name, column]) => {
    const value = values[name] ?? null
    return [name, value === null ? null : column.mapToDriverValue(value)]
  })
  const statement = prepared(db, 'insert_job', (name) => prepareInsertion(db, tables, name))
  const { openMax, openBytesMax, onlyStored, retentionDays, storedBytesMax, uncounted } = options
  const limits = {
    onlyStored,
    retentionDays,
    storedBytesMax,
    openBelow: openMax - uncounted,
    openBytesAtMost: openBytesMax - job.request.length * (uncounted + 1),
  }
  return (await statement.execute({ ...Object.fromEntries(row), ...limits }))[0]
}

function prepareInsertion(db: Db, tables: JobTables, name: string) {
  const { request: _request, result: _result, ...columns } = getTableColumns(tables.jobs)
  return db.insert(tables.jobs).select(rowQuery(tables)).returning(columns).prepare(name)
}

function rowQuery(tables: JobTables): SQL {
  const { jobs, organizations } = tables
  const hasRoom = fitsStorage(tables, {
    organizationId: sql`o.id`,
    bytes: 0,
    bytesMax: sql`${sql.placeholder('storedBytesMax')}`,
  })
  const days = sql`coalesce(o.retention_days, ${sql.placeholder('retentionDays')}::int)`
  const row = Object.entries(getTableColumns(jobs)).map(([name, column]) => {
    const value = sql`${sql.placeholder(name)}::${sql.raw(column.getSQLType())}`
    if (name !== 'deleteAt') return value
    // A job needs its record until its result was read, even if nothing else is stored.
    const expiresAt = sql`${sql.placeholder('expiresAt')}::timestamptz`
    return sql`${expiresAt} + make_interval(days => greatest(${days}, 1))`
  })
  return sql`
    select ${sql.join(row, sql`, `)} from ${organizations} o
    where o.id = ${sql.placeholder('organizationId')}
      and (not ${sql.placeholder('onlyStored')}::boolean or ${days} > 0) and ${hasRoom} and exists (
        select from ${jobs} j
        where j.organization_id = o.id and j.state in ('queued', 'in_progress')
        having count(*) < ${sql.placeholder('openBelow')}
          and coalesce(sum(octet_length(j.request)), 0) <= ${sql.placeholder('openBytesAtMost')}
      )`
}
