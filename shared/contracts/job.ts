import type { QueueKind, QueueTable } from './queues.ts'

/** The version of the envelope; a worker refuses any other. */
export const ENVELOPE_VERSION = 1

/** One job as it lies in a queue. Everything in it is plain JSON. */
export interface JobEnvelope<K extends QueueKind = QueueKind> {
  readonly version: typeof ENVELOPE_VERSION
  /** The id that every reply carries; the same across resubmissions. */
  readonly jobId: string
  /** Grows with every resubmission; replies of an older epoch are dropped by the owner. */
  readonly epoch: number
  readonly kind: K
  readonly modelId: string
  readonly organizationId: string
  /** The reply stream of the API process that owns the job. */
  readonly replyTo: string
  readonly enqueuedAtMs: number
  /** After this moment nobody waits for the answer any more. */
  readonly deadlineAtMs: number
  /** W3C trace context of the request. */
  readonly trace?: { readonly traceparent: string; readonly tracestate?: string }
  /** Its process died with this job aboard and nothing delivered: it starts alone. */
  readonly isSuspect?: boolean
  /** Runs even when the process that enqueued it is gone. */
  readonly isOwnerless?: boolean
  readonly input: QueueTable[K]['input']
}

/** What lies in a BullMQ queue under which id: one entry per epoch of a job. BullMQ forbids colons. */
export function queuedJobId(jobId: string, epoch: number): string {
  return `${jobId}-${epoch}`
}
