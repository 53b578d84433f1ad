import type { PgUpdateSetSource } from 'drizzle-orm/pg-core'

import type { TuningEventRow, TuningJobRow, TuningTables } from '#shared/db/schema/fine-tuning.ts'

/** An event of a job. Its `name` is unique within the job, so that it is recorded once. */
export type NewTuningEvent = Pick<TuningEventRow, 'name' | 'message'> &
  Partial<Pick<TuningEventRow, 'level' | 'type' | 'data'>>

type Status = TuningJobRow['status']

/** A change of a job's status, with the event that records it. */
export interface Transition {
  readonly from: readonly Status[]
  readonly to: Status
  readonly event: NewTuningEvent
  readonly changes?: PgUpdateSetSource<TuningTables['jobs']>
}

/** The states of jobs that have not ended. */
export const OPEN_STATES = ['validating_files', 'queued', 'running', 'paused'] as const
export const ENDED_STATES: readonly Status[] = ['succeeded', 'failed', 'cancelled']
