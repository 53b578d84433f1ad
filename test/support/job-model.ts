import type { JobRow } from '#shared/db/schema/jobs.ts'

/** A process of the model that runs jobs. */
export type Runner = 'a' | 'b'

/** The row of one background job, reduced to what decides its transitions. */
export interface ModelRow {
  readonly state: JobRow['state']
  readonly lease: Runner | null
  readonly isLeaseLive: boolean
  readonly isCancelled: boolean
  readonly isLate: boolean
  /** Events that webhooks were sent about the end. */
  readonly announced: number
}

/** An event of a row. */
export type RowEvent =
  | { readonly type: 'claim' | 'renew' | 'release'; readonly by: Runner }
  | {
      readonly type: 'finish'
      readonly by: Runner
      readonly as: 'completed' | 'failed' | 'cancelled'
    }
  | { readonly type: 'cancel' | 'settle' | 'leaseExpires' | 'deadline' }

/** A job when it was made. */
export const NEW_ROW: ModelRow = {
  state: 'queued',
  lease: null,
  isLeaseLive: false,
  isCancelled: false,
  isLate: false,
  announced: 0,
}

/** Whether the job may still end. */
export const isOpen = ({ state }: ModelRow): boolean =>
  state === 'queued' || state === 'in_progress'

/**
 * The next row, as `JobStore` makes it: `job-store-model.test.ts` compares the two.
 *
 *   queued ──claim──► in_progress ──finish──► completed, failed or cancelled
 *      ▲                  │  │
 *      └─────release──────┘  └─ lease expires ─► claimed by another process
 *   open and without a live lease: cancel ─► cancelled, settle after the deadline ─► expired
 */
export function stepRow(row: ModelRow, event: RowEvent): ModelRow {
  const isIdle = isOpen(row) && !row.isLeaseLive
  const isHeld = 'by' in event && row.state === 'in_progress' && row.lease === event.by
  switch (event.type) {
    case 'claim':
      if (!isIdle || row.isCancelled) return row
      return { ...row, state: 'in_progress', lease: event.by, isLeaseLive: true }
    case 'renew':
      return isHeld ? { ...row, isLeaseLive: true } : row
    case 'release':
      return isHeld ? { ...row, state: 'queued', lease: null, isLeaseLive: false } : row
    case 'finish':
      return isHeld ? end(row, event.as) : row
    case 'cancel':
      if (isIdle) return { ...end(row, 'cancelled'), isCancelled: true }
      return isOpen(row) ? { ...row, isCancelled: true } : row
    case 'settle':
      if (isIdle && row.isLate) return end(row, 'expired')
      return isIdle && row.isCancelled ? end(row, 'cancelled') : row
    case 'leaseExpires':
      return { ...row, isLeaseLive: false }
    case 'deadline':
      return { ...row, isLate: true }
  }
}

function end(row: ModelRow, state: ModelRow['state']): ModelRow {
  return { ...row, state, lease: null, isLeaseLive: false, announced: row.announced + 1 }
}
