import type { Scope } from '#api/v1/scopes.ts'
import { unixSeconds } from '#shared/clock.ts'

/**
 * The endpoints of lines, and the scope that each needs: a key that may not use an endpoint
 * directly may not use it in a batch either.
 */
export const BATCH_ENDPOINTS: Readonly<Record<string, Scope>> = {
  '/v1/chat/completions': 'chat',
  '/v1/responses': 'responses',
  '/v1/completions': 'completions',
  '/v1/embeddings': 'embeddings',
  '/v1/rerank': 'search',
  '/v1/images/generations': 'images',
  '/v1/messages': 'chat',
}

/** The state of a batch. */
type BatchStatus =
  | 'validating'
  | 'failed'
  | 'in_progress'
  | 'finalizing'
  | 'completed'
  | 'expired'
  | 'cancelling'
  | 'cancelled'

/** One fault of an input file. */
export interface InputFault {
  readonly code: string
  readonly message: string
  readonly param: string | null
  readonly line: number | null
}

/** The id of one line of a batch, in its output files, its usage and its activity. */
export function lineIdOf(batchId: string, line: number): string {
  return `batch_req_${batchId.replace(/^batch_/, '')}_${line}`
}

/** The context under which the request and the answer of a line are encrypted. */
export function lineContextOf(batchId: string, line: number): string {
  return `batch line ${batchId} ${line}`
}

/** A batch as its table holds it. */
export interface BatchRow {
  readonly id: string
  readonly organization_id: string
  readonly model_ids: readonly string[] | null
  readonly endpoint: string
  readonly input_file_id: string
  readonly input_object_key: string
  readonly completion_window: string
  readonly metadata: Readonly<Record<string, string>> | null
  /** How long its files are kept; without end where null. */
  readonly output_retention_seconds: number | null
  readonly status: BatchStatus
  readonly errors: readonly InputFault[] | null
  readonly output_file_id: string | null
  readonly error_file_id: string | null
  readonly total: number
  readonly completed: number
  readonly failed: number
  readonly created_at: Date
  readonly expires_at: Date
  readonly in_progress_at: Date | null
  readonly finalizing_at: Date | null
  readonly completed_at: Date | null
  readonly failed_at: Date | null
  readonly expired_at: Date | null
  readonly cancelling_at: Date | null
  readonly cancelled_at: Date | null
}

/** A batch as clients read it. */
export function presentBatch(row: BatchRow): object {
  return {
    id: row.id,
    object: 'batch',
    endpoint: row.endpoint,
    errors: row.errors === null ? null : { object: 'list', data: row.errors },
    input_file_id: row.input_file_id,
    completion_window: row.completion_window,
    status: row.status,
    output_file_id: row.output_file_id,
    error_file_id: row.error_file_id,
    created_at: seconds(row.created_at),
    in_progress_at: seconds(row.in_progress_at),
    expires_at: seconds(row.expires_at),
    finalizing_at: seconds(row.finalizing_at),
    completed_at: seconds(row.completed_at),
    failed_at: seconds(row.failed_at),
    expired_at: seconds(row.expired_at),
    cancelling_at: seconds(row.cancelling_at),
    cancelled_at: seconds(row.cancelled_at),
    request_counts: { total: row.total, completed: row.completed, failed: row.failed },
    metadata: row.metadata,
    output_expires_after:
      row.output_retention_seconds === null
        ? null
        : { anchor: 'created_at', seconds: row.output_retention_seconds },
  }
}

function seconds(moment: Date | null): number | null {
  return moment === null ? null : unixSeconds(moment.getTime())
}
