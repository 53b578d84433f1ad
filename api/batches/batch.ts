import { presentUsage } from '#api/inference/responses/responses-answer.ts'
import type { Scope } from '#api/v1/scopes.ts'
import { unixSeconds } from '#shared/clock.ts'
import type { BatchRow } from '#shared/db/schema/batches.ts'

/**
 * The endpoints of lines, and the scope that each needs: a key that may not use an endpoint
 * directly may not use it in a batch either.
 */
export const BATCH_ENDPOINTS: Readonly<Record<string, Scope>> = {
  '/v1/chat/completions': 'chat',
  '/v1/responses': 'responses',
  '/v1/completions': 'completions',
  '/v1/embeddings': 'embeddings',
  '/v1/embed_sparse': 'embeddings',
  '/v1/multi-vector': 'embeddings',
  '/v1/rerank': 'search',
  '/v1/moderations': 'embeddings',
  '/v1/classify': 'embeddings',
  '/v1/images/generations': 'images',
  '/v1/messages': 'chat',
}

/** The id of one line of a batch, in its output files, its usage and its activity. */
export function lineIdOf(batchId: string, line: number): string {
  return `batch_req_${batchId.replace(/^batch_/, '')}_${line}`
}

/** The context under which the request and the answer of a line are encrypted. */
export function lineContextOf(batchId: string, line: number): string {
  return `batch line ${batchId} ${line}`
}

/** A batch as clients read it. */
export function presentBatch(row: BatchRow): object {
  return {
    id: row.id,
    object: 'batch',
    endpoint: row.endpoint,
    errors: row.errors === null ? null : { object: 'list', data: row.errors },
    input_file_id: row.inputFileId,
    completion_window: row.completionWindow,
    status: row.status,
    output_file_id: row.outputFileId,
    error_file_id: row.errorFileId,
    created_at: seconds(row.createdAt),
    in_progress_at: seconds(row.inProgressAt),
    expires_at: seconds(row.expiresAt),
    finalizing_at: seconds(row.finalizingAt),
    completed_at: seconds(row.completedAt),
    failed_at: seconds(row.failedAt),
    expired_at: seconds(row.expiredAt),
    cancelling_at: seconds(row.cancellingAt),
    cancelled_at: seconds(row.cancelledAt),
    request_counts: { total: row.total, completed: row.completed, failed: row.failed },
    model: row.modelId,
    usage: presentUsage(row, {}),
    metadata: row.metadata,
    output_expires_after:
      row.outputRetentionSeconds === null
        ? null
        : { anchor: 'created_at', seconds: row.outputRetentionSeconds },
  }
}

function seconds(moment: Date | null): number | null {
  return moment === null ? null : unixSeconds(moment.getTime())
}
