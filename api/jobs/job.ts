import { unixSeconds } from '#shared/clock.ts'
import { JOB_PRIORITIES, type JobRow } from '#shared/db/schema/jobs.ts'

import type { JobSummary } from './job-store.ts'

/** The context under which the request of a job is encrypted. */
export function contextOf(jobId: string): string {
  return `job request ${jobId}`
}

/** The context under which the result of a job is encrypted. */
export function resultContextOf(jobId: string): string {
  return `job result ${jobId}`
}

/** A background job as clients read it. */
export function presentJob(job: JobSummary): object {
  return {
    id: job.id,
    object: 'job',
    endpoint: job.endpoint,
    model: job.model,
    status: job.state,
    priority: JOB_PRIORITIES[job.priority],
    response_id: job.responseId,
    metadata: job.metadata,
    error: job.error,
    attempts: job.attempts,
    created_at: unixSeconds(job.createdAt.getTime()),
    not_before: unixSeconds(job.notBefore.getTime()),
    expires_at: unixSeconds(job.expiresAt.getTime()),
    started_at: seconds(job.startedAt),
    ended_at: seconds(job.endedAt),
    cancelled_at: seconds(job.cancelledAt),
    result_status: job.resultStatus,
  }
}

/** Whether the job is in a final state. */
export function hasEnded({ state }: Pick<JobRow, 'state'>): boolean {
  return state !== 'queued' && state !== 'in_progress'
}

function seconds(moment: Date | null): number | null {
  return moment === null ? null : unixSeconds(moment.getTime())
}
