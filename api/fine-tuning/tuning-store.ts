import { and, asc, desc, eq, gt, inArray, isNotNull, isNull, sql } from 'drizzle-orm'

import type { Db } from '#shared/db/client.ts'
import { databaseNow, hasFields, isBeyondRowWhere } from '#shared/db/expressions.ts'
import { readPage } from '#shared/db/replica.ts'
import type {
  CheckpointRow,
  TuningError,
  TuningEventRow,
  TuningJobRow,
  TuningTables,
} from '#shared/db/schema/fine-tuning.ts'
import { randomId } from '#shared/ids.ts'

import { findReachedLimit, isOver, type TuningLimits } from './tuning-limits.ts'
import { ENDED_STATES, type NewTuningEvent, OPEN_STATES, type Transition } from './tuning-states.ts'

/** A new job. */
type NewTuningJob = Pick<
  TuningJobRow,
  | 'id'
  | 'organizationId'
  | 'apiKeyId'
  | 'userId'
  | 'modelIds'
  | 'model'
  | 'trainingFile'
  | 'trainingObjectKey'
  | 'validationFile'
  | 'validationObjectKey'
  | 'suffix'
  | 'seed'
  | 'metadata'
  | 'hyperparameters'
>

interface TuningPage {
  readonly limit: number
  readonly after?: string
}

interface TuningStoreOptions {
  readonly db: Db
  /** Queries of lists, which may lag slightly behind. */
  readonly lists?: Db
  readonly tables: TuningTables
  /** Receives ended jobs, in the transaction that ends them. */
  readonly announce: (db: Db, job: TuningJobRow) => Promise<void>
}

/** The fine-tuning jobs of a database. */
export class TuningStore {
  readonly #db: Db
  readonly #lists: Db
  readonly #tables: TuningTables
  readonly #announce: TuningStoreOptions['announce']

  constructor({ db, lists = db, tables, announce }: TuningStoreOptions) {
    this.#lists = lists
    this.#db = db
    this.#tables = tables
    this.#announce = announce
  }

  /** Returns the limit that the organization has reached instead of a job. */
  create(
    job: NewTuningJob,
    limits: TuningLimits,
  ): Promise<TuningJobRow | keyof TuningLimits | 'keptMax'> {
    const { jobs } = this.#tables
    return this.#db.transaction(async (tx) => {
      const { organizationId } = job
      const reached = await findReachedLimit(tx, this.#tables, { ...limits, organizationId })
      if (reached !== undefined) return reached
      const [row] = await tx
        .insert(jobs)
        .values({ ...job, status: 'validating_files' })
        .returning()
      await this.#record(tx, job.id, [
        { name: 'created', message: `Created fine-tuning job: ${job.id}` },
        { name: 'validating', message: 'Validating training file: every line is checked.' },
      ])
      return row as TuningJobRow
    })
  }

  async find(organizationId: string, id: string): Promise<TuningJobRow | undefined> {
    const { jobs } = this.#tables
    const isMeant = and(eq(jobs.organizationId, organizationId), eq(jobs.id, id))
    return (await this.#db.select().from(jobs).where(isMeant))[0]
  }

  /** A page of jobs, the newest first. */
  async list(
    organizationId: string,
    filter: TuningPage & { readonly metadata?: Readonly<Record<string, string>> | null },
  ): Promise<{ rows: TuningJobRow[]; hasMore: boolean }> {
    const { limit, after, metadata } = filter
    const { jobs } = this.#tables
    const isOwn = eq(jobs.organizationId, organizationId)
    const isLast = and(isOwn, eq(jobs.id, after ?? ''))
    const isBehind = isBeyondRowWhere([jobs.createdAt, jobs.id], '<', isLast)
    const databases = { db: this.#db, lists: this.#lists }
    const rows = await readPage(databases, after, (db) =>
      db
        .select()
        .from(jobs)
        .where(
          and(
            isOwn,
            after === undefined ? undefined : isBehind,
            metadata === null ? isNull(jobs.metadata) : undefined,
            metadata === null || metadata === undefined
              ? undefined
              : hasFields(jobs.metadata, metadata),
          ),
        )
        .orderBy(desc(jobs.createdAt), desc(jobs.id))
        .limit(limit + 1),
    )
    return { rows: rows.slice(0, limit), hasMore: rows.length > limit }
  }

  /** Changes the status if it is one of `from`; undefined otherwise. */
  move(
    id: string,
    { from, to, event, changes = {} }: Transition,
    within: Db = this.#db,
  ): Promise<TuningJobRow | undefined> {
    const { jobs } = this.#tables
    return within.transaction(async (tx) => {
      const isEnd = ENDED_STATES.includes(to)
      const [row] = await tx
        .update(jobs)
        .set({
          status: to,
          updatedAt: databaseNow,
          ...changes,
          ...(isEnd && { finishedAt: databaseNow, estimatedFinishAt: null }),
        })
        .where(and(eq(jobs.id, id), inArray(jobs.status, [...from])))
        .returning()
      if (row === undefined) return undefined
      await this.#record(tx, id, [event])
      if (isEnd) await this.#announce(tx, row)
      return row
    })
  }

  /** Ends a job that has not ended. */
  fail(id: string, error: TuningError, within: Db = this.#db): Promise<TuningJobRow | undefined> {
    const event = { name: 'ended', level: 'error', message: `The job failed: ${error.message}` }
    return this.move(
      id,
      { from: OPEN_STATES, to: 'failed', event: event as NewTuningEvent, changes: { error } },
      within,
    )
  }

  /** The number of examples found in the training file. */
  async countedExamples(jobId: string): Promise<number> {
    const { events } = this.#tables
    const [row] = await this.#db
      .select({ data: events.data })
      .from(events)
      .where(and(eq(events.jobId, jobId), eq(events.name, 'validated')))
    return Number(row?.data?.examples ?? 0)
  }

  /** Records events; recorded events are unchanged. */
  record(id: string, events: readonly NewTuningEvent[]): Promise<void> {
    return this.#record(this.#db, id, events)
  }

  async #record(db: Db, jobId: string, events: readonly NewTuningEvent[]): Promise<void> {
    if (events.length === 0) return
    await db
      .insert(this.#tables.events)
      .values(
        events.map(({ name, message, level = 'info', type = 'message', data = null }) => ({
          jobId,
          name,
          level,
          type,
          message,
          data,
          id: randomId('ftevent-'),
        })),
      )
      .onConflictDoNothing()
  }

  /**
   * Records a step of a running job: its event, the tokens so far, and the estimated end. False
   * when the job no longer runs, so that no step is recorded after its end or pause.
   */
  progress(
    id: string,
    step: {
      readonly events: readonly NewTuningEvent[]
      readonly trainedTokens: number
      readonly estimatedFinishAt: Date | null
      /** Present once they are chosen. */
      readonly hyperparameters?: TuningJobRow['hyperparameters'] | undefined
    },
  ): Promise<boolean> {
    const { jobs } = this.#tables
    const { trainedTokens, estimatedFinishAt, hyperparameters } = step
    return this.#db.transaction(async (tx) => {
      const running = await tx
        .update(jobs)
        .set({ trainedTokens, estimatedFinishAt, ...(hyperparameters && { hyperparameters }) })
        .where(and(eq(jobs.id, id), eq(jobs.status, 'running')))
        .returning({ id: jobs.id })
      if (running.length === 0) return false
      await this.#record(tx, id, step.events)
      return true
    })
  }

  /** A page of events, the newest first. */
  async events(
    jobId: string,
    { limit, after }: TuningPage,
  ): Promise<{ rows: TuningEventRow[]; hasMore: boolean }> {
    const { events } = this.#tables
    const isLast = and(eq(events.jobId, jobId), eq(events.id, after ?? ''))
    const before = isBeyondRowWhere([events.position], '<', isLast)
    const isMeant = and(eq(events.jobId, jobId), after === undefined ? undefined : before)
    const found = this.#db.select().from(events).where(isMeant)
    const rows = await found.orderBy(desc(events.position)).limit(limit + 1)
    return { rows: rows.slice(0, limit), hasMore: rows.length > limit }
  }

  /** Events after a position, the oldest first. */
  eventsBehind(jobId: string, position: number, limit: number): Promise<TuningEventRow[]> {
    const { events } = this.#tables
    return this.#db
      .select()
      .from(events)
      .where(and(eq(events.jobId, jobId), gt(events.position, position)))
      .orderBy(asc(events.position))
      .limit(limit)
  }

  /** Records a checkpoint and its model. */
  async addCheckpoint(
    job: TuningJobRow,
    checkpoint: Pick<CheckpointRow, 'step' | 'metrics'> & {
      readonly model: string
      readonly prefix: string
    },
  ): Promise<void> {
    const { checkpoints, models } = this.#tables
    const { step, metrics, model: id, prefix } = checkpoint
    await this.#db.transaction(async (tx) => {
      await tx
        .insert(checkpoints)
        .values({ jobId: job.id, step, id: randomId('ftckpt_'), metrics })
        .onConflictDoUpdate({ target: [checkpoints.jobId, checkpoints.step], set: { metrics } })
      await tx
        .insert(models)
        .values({ ...modelOf(job), id, prefix, step })
        .onConflictDoNothing()
    })
  }

  /** A page of checkpoints, the newest first. */
  async checkpoints(
    jobId: string,
    { limit, after }: TuningPage,
  ): Promise<{ rows: CheckpointRow[]; hasMore: boolean }> {
    const { checkpoints } = this.#tables
    const isLast = and(eq(checkpoints.jobId, jobId), eq(checkpoints.id, after ?? ''))
    const before = isBeyondRowWhere([checkpoints.step], '<', isLast)
    const isMeant = and(eq(checkpoints.jobId, jobId), after === undefined ? undefined : before)
    const found = this.#db.select().from(checkpoints).where(isMeant)
    const rows = await found.orderBy(desc(checkpoints.step)).limit(limit + 1)
    return { rows: rows.slice(0, limit), hasMore: rows.length > limit }
  }

  /** Ends a job with its model, which can be used from then on. */
  async succeed(
    job: TuningJobRow,
    result: {
      readonly model: string
      readonly prefix: string
      readonly trainedTokens: number
    },
  ): Promise<void> {
    const { model: id, prefix, trainedTokens } = result
    await this.#db.transaction(async (tx) => {
      const ended = await this.move(
        job.id,
        {
          from: ['queued', 'running'],
          to: 'succeeded',
          event: { name: 'ended', message: 'The job has successfully completed' },
          changes: { trainedTokens, fineTunedModel: id },
        },
        tx,
      )
      if (ended === undefined) return
      await this.#record(tx, job.id, [
        { name: 'model', message: `New fine-tuned model created: ${id}` },
      ])
      await tx
        .insert(this.#tables.models)
        .values({ ...modelOf(job), id, prefix, step: null })
        .onConflictDoNothing()
    })
  }

  /** Ends a job whose run ended without ending it, unless another run has begun. */
  async settleRun(
    ended: { readonly id: string; readonly state: string; readonly error: TuningError | null },
    job: { readonly id: string; readonly runIdOf: (job: TuningJobRow) => string },
    within: Db,
  ): Promise<void> {
    const { jobs } = this.#tables
    const [row] = await within.select().from(jobs).where(eq(jobs.id, job.id))
    if (row === undefined || row.status === 'paused' || job.runIdOf(row) !== ended.id) return
    if (ended.state === 'cancelled') await this.cancel(row.id, within)
    else await this.fail(row.id, ended.error ?? LOST, within)
  }

  /**
   * Cancels jobs whose background job ended without them, such as those of banned users, and
   * deletes the jobs of deleted organizations.
   */
  async sweep(): Promise<void> {
    const { jobs, models, organizations, runs } = this.#tables
    const idle = sql`${jobs.status} in ('validating_files', 'queued', 'running')
      and ${jobs.updatedAt} < now() - interval '1 minute'
      and not exists (select 1 from ${runs} r
        where r.id = ${jobs.id} || '-' || ${jobs.run} and r.state in ('queued', 'in_progress'))`
    const lost = await this.#db.select({ id: jobs.id }).from(jobs).where(idle).limit(SWEPT_AT_ONCE)
    for (const { id } of lost) await this.cancel(id)
    await this.#db.delete(jobs).where(isOver(this.#db, this.#tables))
    const found = this.#db.select({ id: organizations.id }).from(organizations)
    const deleted = found.where(isNotNull(organizations.deletedAt))
    await this.#db.delete(models).where(inArray(models.organizationId, deleted))
    await this.#db.delete(jobs).where(inArray(jobs.organizationId, deleted))
  }

  /** Cancels a job that has not ended. */
  cancel(id: string, within: Db = this.#db): Promise<TuningJobRow | undefined> {
    return this.move(
      id,
      {
        from: OPEN_STATES,
        to: 'cancelled',
        event: { name: 'ended', message: 'Fine-tuning job cancelled' },
      },
      within,
    )
  }

  /**
   * Which objects of these jobs are still needed: all until the job ends, then those of its models.
   */
  async needed(ids: readonly string[]): Promise<ReadonlyMap<string, 'all' | 'models'>> {
    const { jobs, models } = this.#tables
    if (ids.length === 0) return new Map()
    const open = await this.#db
      .select({ id: jobs.id })
      .from(jobs)
      .where(and(inArray(jobs.id, [...ids]), inArray(jobs.status, OPEN_STATES)))
    const tuned = await this.#db
      .selectDistinct({ id: models.jobId })
      .from(models)
      .where(inArray(models.jobId, [...ids]))
    return new Map([
      ...tuned.map(({ id }) => [id, 'models'] as const),
      ...open.map(({ id }) => [id, 'all'] as const),
    ])
  }
}

const LOST: TuningError = {
  code: 'server_error',
  param: null,
  message: 'The training could not be completed because of an internal error.',
}
const SWEPT_AT_ONCE = 1000

function modelOf({ organizationId, id, model }: TuningJobRow) {
  return { organizationId, jobId: id, model }
}
