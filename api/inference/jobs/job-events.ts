import type { JobAccount } from '#api/v1/caller.ts'
import type { DurableJob } from '#api/v1/durable.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { QueueKind, QueueTable } from '#shared/contracts/queues.ts'
import type { ReplyBody } from '#shared/contracts/reply.ts'

/** The events of a job that its route receives: failures are thrown, resubmissions are hidden. */
export type JobEvent<K extends QueueKind = QueueKind> = Exclude<
  ReplyBody<K>,
  { readonly type: 'entered' | 'failed' | 'yielded' }
>

/** How much a request may push before others of its organization. */
export type PriorityClass = 'default' | 'flex' | 'priority'

/** One job to be run for a caller. */
export interface SubmitRequest<K extends QueueKind> {
  readonly kind: K
  readonly model: CatalogueModel
  readonly input: QueueTable[K]['input']
  readonly organizationId: string
  /** The charged account; absent when the job is free. */
  readonly account?: JobAccount
  /** A fresh one is drawn when absent. */
  readonly jobId?: string
  readonly deadlineAtMs: number
  /** `batch` is the lowest: no client waits on a socket. */
  readonly priorityClass?: PriorityClass | 'batch'
  /** Set when the job is to outlive this process. */
  readonly durable?: DurableJob
  readonly trace?: NonNullable<JobEnvelope['trace']>
  /** Aborted when the client leaves. */
  readonly signal: AbortSignal
}

/** The way into the queues. */
export interface Submitter {
  /**
   * Runs a job and yields what its worker says, ending with one `result`. Failures are thrown as
   * `ServiceError`; a consumer that stops early cancels the job.
   */
  submit<K extends QueueKind>(request: SubmitRequest<K>): AsyncGenerator<JobEvent<K>>
  close(): Promise<void>
}
