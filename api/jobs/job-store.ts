import {
  and,
  desc,
  eq,
  getTableColumns,
  inArray,
  isNotNull,
  isNull,
  lt,
  or,
  type SQL,
  sql,
} from 'drizzle-orm'
import type { PgUpdateSetSource } from 'drizzle-orm/pg-core'

import { hasStorageFor, STORAGE_LIMIT_EXCEEDED } from '#api/stored/stored-bytes-store.ts'
import type { SlotRoom } from '#api/v1/fair-slots.ts'
import type { Db } from '#shared/db/client.ts'
import {
  databaseNow,
  firstOf,
  hasFields,
  increased,
  isBeyondRowWhere,
  secondsFromNow,
} from '#shared/db/expressions.ts'
import { findRetention } from '#shared/db/organizations.ts'
import { readPage } from '#shared/db/replica.ts'
import {
  JOB_PRIORITIES,
  type JobError,
  type JobPriority,
  type JobRow,
  type JobTables,
} from '#shared/db/schema/jobs.ts'
import { defined } from '#shared/json.ts'

import { abandonQuery, claimQuery } from './job-claim-store.ts'
import { type CreateLimits, insertJob, type NewJob } from './new-job-store.ts'

/**
 * Jobs that may be added at once without counting each other. More than the connections of a
 * database.
 */
const UNCOUNTED_MAX = 1000

/** A job without its contents. */
export type JobSummary = Omit<JobRow, 'request' | 'result'>

/** A job that a process runs; its request is included unless it is large. */
export interface ClaimedJob extends JobSummary {
  readonly request: Buffer | null
}

/** Larger requests are read when their bodies may be held in memory. */
const CLAIMED_REQUEST_BYTES_MAX = 1024 * 1024

/** The filter of a list of jobs. */
interface JobFilter {
  readonly limit: number
  /** The id of the last job of the previous page. */
  readonly after?: string
  readonly state?: JobRow['state']
  readonly endpoint?: string
  readonly model?: string
  readonly metadata?: Readonly<Record<string, string>>
}

/** How a job ended. */
export interface JobEnding {
  readonly state: Extract<JobRow['state'], 'completed' | 'incomplete' | 'failed' | 'cancelled'>
  readonly error?: JobError
  readonly status?: number
  readonly headers?: Readonly<Record<string, string>>
  readonly result?: Buffer
}

const NO_ROOM: JobEnding = { state: 'failed', error: STORAGE_LIMIT_EXCEEDED }
const NO_REQUEST = Buffer.alloc(0)
/** An ended job does not run again: its request is deleted and counts towards no limit. */
const ENDED = { leaseId: null, leaseUntil: null, endedAt: databaseNow, request: NO_REQUEST }

interface JobStoreOptions {
  readonly db: Db
  /** Queries of lists, which may lag slightly behind. */
  readonly lists?: Db
  readonly tables: JobTables
  /** How long a job is stored after its deadline. */
  readonly retentionDays: number
  /** The most bytes of all stored contents of an organization; no limit if absent. */
  readonly storedBytesMax?: number
  /** Receives jobs that end, in the transaction that ends them. */
  readonly announce: (db: Db, jobs: readonly JobSummary[]) => Promise<void>
}

/**
 * Why no job was created: a limit on unfinished jobs or their bytes, no room for its result, or a
 * policy to store nothing.
 */
type NoJob = 'full' | 'too large' | 'no room' | 'unstored'

/** The background jobs of a database. */
export class JobStore {
  readonly #db: Db
  readonly #lists: Db
  readonly #tables: JobTables
  readonly #jobs: JobTables['jobs']
  readonly #retentionDays: number
  readonly #storedBytesMax: number
  readonly #isOpen: SQL
  readonly #announce: JobStoreOptions['announce']

  constructor(options: JobStoreOptions) {
    const { db, lists = db, tables, retentionDays, announce } = options
    this.#storedBytesMax = options.storedBytesMax ?? Number.MAX_SAFE_INTEGER
    this.#lists = lists
    this.#announce = announce
    this.#db = db
    this.#tables = tables
    this.#jobs = tables.jobs
    this.#retentionDays = retentionDays
    this.#isOpen = inArray(tables.jobs.state, ['queued', 'in_progress'])
  }

  #ownedBy(organizationId: string, id: string): SQL | undefined {
    return and(eq(this.#jobs.organizationId, organizationId), eq(this.#jobs.id, id))
  }

  #held(id: string, leaseId: string): SQL | undefined {
    const { jobs } = this.#tables
    return and(eq(jobs.id, id), eq(jobs.leaseId, leaseId), eq(jobs.state, 'in_progress'))
  }

  /** Ends the jobs that meet a condition, and announces them. */
  #end(isMeant: SQL | undefined, ending: PgUpdateSetSource<JobTables['jobs']>): Promise<number> {
    const { request: _request, result: _result, ...columns } = getTableColumns(this.#jobs)
    return this.#db.transaction(async (tx) => {
      const rows = await tx
        .update(this.#jobs)
        .set({ ...ENDED, ...ending })
        .where(isMeant)
        .returning(columns)
      if (rows.length > 0) await this.#announce(tx, rows)
      return rows.length
    })
  }

  /**
   * Adds a job, unless its organization has too many or too large unfinished jobs. One statement
   * does so while the limits are far away. Near them, the organization is locked, so that only one
   * request at a time counts its jobs.
   */
  async create(job: NewJob, limits: CreateLimits): Promise<JobSummary | NoJob> {
    const retentionDays = this.#retentionDays
    const storedBytesMax = this.#storedBytesMax
    const options = { ...limits, retentionDays, storedBytesMax, uncounted: 0 }
    const store = { db: this.#db, tables: this.#tables }
    const added = await insertJob(store, job, { ...options, uncounted: UNCOUNTED_MAX })
    if (added !== undefined) return added
    return this.#db.transaction(async (tx) => {
      const { organizations } = this.#tables
      const [organization] = await tx
        .select({ days: organizations.retentionDays })
        .from(organizations)
        .where(eq(organizations.id, job.organizationId))
        .for('no key update')
      if (limits.onlyStored && (organization?.days ?? retentionDays) === 0) return 'unstored'
      const last = await insertJob({ ...store, db: tx }, job, options)
      if (last !== undefined) return last
      const { organizationId } = job
      if (!(await this.#hasRoom(organizationId, 0, tx))) return 'no room'
      const isOfOrganization = eq(this.#jobs.organizationId, job.organizationId)
      const open = await tx.$count(this.#jobs, and(isOfOrganization, this.#isOpen))
      return open < limits.openMax ? 'too large' : 'full'
    })
  }

  /** Whether the organization's policy is to store nothing. */
  async storesNothing(organizationId: string): Promise<boolean> {
    const own = await findRetention(this.#db, this.#tables, organizationId)
    return (own?.days ?? this.#retentionDays) === 0
  }

  async find(organizationId: string, id: string): Promise<JobSummary | undefined> {
    const { request: _request, result: _result, ...columns } = getTableColumns(this.#jobs)
    const found = this.#db.select(columns).from(this.#jobs)
    return (await found.where(this.#ownedBy(organizationId, id)))[0]
  }

  /** The packed answer of a job; undefined while it has none. */
  async readResult({
    organizationId,
    id,
  }: Pick<JobSummary, 'organizationId' | 'id'>): Promise<Buffer | undefined> {
    const found = this.#db.select({ result: this.#jobs.result }).from(this.#jobs)
    return (await found.where(this.#ownedBy(organizationId, id)))[0]?.result ?? undefined
  }

  /** A page of jobs without their contents, the newest first. */
  async list(
    organizationId: string,
    { limit, after, state, endpoint, model, metadata }: JobFilter,
  ): Promise<{ rows: JobSummary[]; hasMore: boolean }> {
    const isLast = this.#ownedBy(organizationId, after ?? '')
    const before = isBeyondRowWhere([this.#jobs.createdAt, this.#jobs.id], '<', isLast)
    const { request: _request, result: _result, ...columns } = getTableColumns(this.#jobs)
    const databases = { db: this.#db, lists: this.#lists }
    const rows = await readPage(databases, after, (db) =>
      db
        .select(columns)
        .from(this.#jobs)
        .where(
          and(
            eq(this.#jobs.organizationId, organizationId),
            ...(after === undefined ? [] : [before]),
            ...(state === undefined ? [] : [eq(this.#jobs.state, state)]),
            ...(endpoint === undefined ? [] : [eq(this.#jobs.endpoint, endpoint)]),
            ...(model === undefined ? [] : [eq(this.#jobs.model, model)]),
            ...(metadata === undefined ? [] : [hasFields(this.#jobs.metadata, metadata)]),
          ),
        )
        .orderBy(desc(this.#jobs.createdAt), desc(this.#jobs.id))
        .limit(limit + 1),
    )
    return { rows: rows.slice(0, limit), hasMore: rows.length > limit }
  }

  /** Ends a waiting job, or asks the process that runs it to stop. An ended job is unchanged. */
  async cancel(organizationId: string, id: string): Promise<JobSummary | undefined> {
    // A job whose process is gone does not run anywhere.
    const isIdle = and(this.#ownedBy(organizationId, id), this.#isOpen, isFree(this.#tables))
    await this.#end(isIdle, { state: 'cancelled', cancelledAt: databaseNow })
    await this.#db
      .update(this.#jobs)
      .set({ cancelledAt: firstOf(this.#jobs.cancelledAt, databaseNow) })
      .where(and(this.#ownedBy(organizationId, id), this.#isOpen))
    return this.find(organizationId, id)
  }

  /** Changes the priority of a waiting job; false if it no longer waits. */
  async prioritize(organizationId: string, id: string, priority: JobPriority): Promise<boolean> {
    const rows = await this.#db
      .update(this.#jobs)
      .set({ priority: JOB_PRIORITIES.indexOf(priority) })
      .where(and(this.#ownedBy(organizationId, id), eq(this.#jobs.state, 'queued')))
      .returning({ id: this.#jobs.id })
    return rows.length > 0
  }

  /**
   * Claims jobs that are due, including those of dead processes. Organizations with the fewest jobs
   * in flight come first.
   */
  async claim(leaseId: string, seconds: number, room: SlotRoom): Promise<ClaimedJob[]> {
    const query = claimQuery(this.#tables, room)
    const { rows } = await this.#db.execute<{ id: string }>(query)
    if (rows.length === 0) return []
    const ids = rows.map(({ id }) => id)
    const { request, result: _result, ...columns } = getTableColumns(this.#jobs)
    const isSmall = sql`octet_length(${request}) <= ${CLAIMED_REQUEST_BYTES_MAX}`
    // Another process may have claimed some of them in between.
    return this.#db
      .update(this.#jobs)
      .set({
        state: 'in_progress',
        leaseId,
        leaseUntil: secondsFromNow(seconds),
        startedAt: firstOf(this.#jobs.startedAt, databaseNow),
        attempts: increased(this.#jobs.attempts),
      })
      .where(
        inArray(
          this.#jobs.id,
          this.#db
            .select({ id: this.#jobs.id })
            .from(this.#jobs)
            .where(and(inArray(this.#jobs.id, ids), this.#isOpen, isFree(this.#tables)))
            .for('update', { skipLocked: true }),
        ),
      )
      .returning({
        ...columns,
        request: sql<Buffer | null>`case when ${isSmall} then ${request} end`,
      })
  }

  /** The packed request of a claimed job. Throws when the job was deleted. */
  async readRequest({ organizationId, id }: JobSummary): Promise<Buffer> {
    const found = this.#db.select({ request: this.#jobs.request }).from(this.#jobs)
    return defined((await found.where(this.#ownedBy(organizationId, id)))[0]).request
  }

  /** Renews the leases of a process; returns its cancelled jobs. */
  async renew(leaseId: string, seconds: number): Promise<readonly string[]> {
    const rows = await this.#db
      .update(this.#jobs)
      .set({ leaseUntil: secondsFromNow(seconds) })
      .where(and(eq(this.#jobs.leaseId, leaseId), eq(this.#jobs.state, 'in_progress')))
      .returning({ id: this.#jobs.id, cancelledAt: this.#jobs.cancelledAt })
    return rows.filter((row) => row.cancelledAt !== null).map(({ id }) => id)
  }

  /** Releases a job, to be run again after a while. */
  async release(id: string, leaseId: string, delayMs: number): Promise<void> {
    await this.#db
      .update(this.#jobs)
      .set({
        leaseId: null,
        leaseUntil: null,
        state: 'queued',
        notBefore: secondsFromNow(delayMs / 1000),
      })
      .where(this.#held(id, leaseId))
  }

  /** Releases the jobs of this process, so that others adopt them. */
  async releaseAll(leaseId: string): Promise<void> {
    await this.#db
      .update(this.#jobs)
      .set({ leaseUntil: databaseNow })
      .where(eq(this.#jobs.leaseId, leaseId))
  }

  #hasRoom(organizationId: string | SQL, bytes: number, db: Db = this.#db): Promise<boolean> {
    const bytesMax = this.#storedBytesMax
    return hasStorageFor(db, this.#tables, { organizationId, bytes, bytesMax })
  }

  /**
   * Ends a job, unless its lease was lost; returns whether it did. If the result does not fit into
   * the organization's storage, the job fails.
   */
  async finish(id: string, leaseId: string, ending: JobEnding): Promise<boolean> {
    const owner = sql`(select organization_id from ${this.#jobs} where id = ${id})`
    const bytes = ending.result?.length ?? 0
    const fits = bytes === 0 || (await this.#hasRoom(owner, bytes))
    const { state, error, status, headers, result } = fits ? ending : NO_ROOM
    const ended = await this.#end(this.#held(id, leaseId), {
      state,
      error: error ?? null,
      result: result ?? null,
      resultStatus: status ?? null,
      resultHeaders: headers ?? null,
    })
    return ended > 0
  }

  /** Ends jobs whose deadline has passed, or whose organization or user was deleted or banned. */
  async settle(): Promise<void> {
    const lateness: JobError = {
      code: 'deadline_exceeded',
      message: 'The job did not end before its deadline.',
    }
    const isIdle = and(this.#isOpen, isFree(this.#tables))
    await this.#end(and(isIdle, lt(this.#jobs.expiresAt, databaseNow)), {
      state: 'expired',
      error: lateness,
    })
    await this.#end(and(isIdle, isNotNull(this.#jobs.cancelledAt)), { state: 'cancelled' })
    await this.#db.execute(abandonQuery(this.#tables))
  }

  /** Deletes jobs whose retention is over, and those of deleted organizations and users. */
  async sweep(): Promise<void> {
    await this.#db
      .delete(this.#jobs)
      .where(or(lt(this.#jobs.deleteAt, databaseNow), isOrphan(this.#tables, 'jobs')))
  }
}

function isFree({ jobs }: JobTables): SQL | undefined {
  return or(isNull(jobs.leaseUntil), lt(jobs.leaseUntil, databaseNow))
}

/** Whether the organization or the user of a row is deleted. */
export function isOrphan(tables: JobTables, name: 'jobs' | 'answers' | 'conversations'): SQL {
  const { organizations, users } = tables
  const { organizationId, userId } = tables[name]
  return sql`(exists (select 1 from ${organizations} o
      where o.id = ${organizationId} and o.deleted_at is not null)
    or exists (select 1 from ${users} u where u.id = ${userId} and u.deleted_at is not null))`
}
