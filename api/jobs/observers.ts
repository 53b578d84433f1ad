import { setImmediate } from 'node:timers/promises'

import type { DurableJob, JobAccount } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { JobEnvelope, QueueKind, QueueTable } from '#shared/contracts/job.ts'
import type { ReplyBody } from '#shared/contracts/reply.ts'
import { CancelledError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'

/** The events of a job that its route receives: failures are thrown, resubmissions are hidden. */
export type JobEvent<K extends QueueKind = QueueKind> = Exclude<
  ReplyBody<K>,
  { readonly type: 'entered' | 'failed' | 'yielded' }
>

/** How far a request may move ahead of others of its organization. */
export type PriorityClass = 'default' | 'flex' | 'priority'

/** One job to be run for a caller. */
export interface SubmitRequest<K extends QueueKind> {
  readonly kind: K
  readonly model: CatalogueModel
  readonly input: QueueTable[K]['input']
  readonly organizationId: string
  /** The charged account; absent when the job is free. */
  readonly account?: JobAccount
  /** A new id is generated when absent. */
  readonly jobId?: string
  readonly deadlineAtMs: number
  /** `batch` is the lowest class: no client waits on a socket. */
  readonly priorityClass?: PriorityClass | 'batch'
  /** Set when the job must outlive this process. */
  readonly durable?: DurableJob
  readonly trace?: NonNullable<JobEnvelope['trace']>
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal
}

/** The entry to the queues. */
export interface Submitter {
  /**
   * Runs a job and yields the replies of its worker, of which the last is `result`. Failures are
   * thrown as `ServiceError`; a consumer that stops early cancels the job.
   */
  submit<K extends QueueKind>(request: SubmitRequest<K>): AsyncGenerator<JobEvent<K>>
  close(): Promise<void>
}

/** How a job ended. `left` means that its client left before the result. */
export type JobEnd =
  | { readonly outcome: 'finished' | 'left' }
  | { readonly outcome: 'failed'; readonly error: unknown }

/** The observer's record of one job. */
interface JobRecord {
  /** The trace context that the worker continues. */
  readonly trace?: JobEnvelope['trace'] | undefined
  /** Sees every event before the client does. */
  onEvent?(event: JobEvent): void
  /** Called once, however the job ends. */
  onEnd(end: JobEnd): void
}

/** Records what happens to the jobs of a process: usage, incidents, metrics or traces. */
export interface JobObserver {
  /** Called before a job is submitted; undefined when this job is not recorded. */
  begin(request: SubmitRequest<QueueKind> & { readonly jobId: string }): JobRecord | undefined
  /** Called when a run was lost and its job was submitted again. */
  onResubmit?(envelope: JobEnvelope): void
}

/** Runs a job under its observers. All of them see the same job id, also after an adoption. */
export async function* observeJob(
  observers: readonly JobObserver[],
  request: SubmitRequest<QueueKind>,
  run: (request: SubmitRequest<QueueKind>) => AsyncGenerator<JobEvent>,
): AsyncGenerator<JobEvent> {
  const jobId = request.durable?.adopted?.envelope.jobId ?? request.jobId ?? randomId('job_')
  const identified = { ...request, jobId }
  const records = observers.flatMap((observer) => observer.begin(identified) ?? [])
  const trace = records.find((record) => record.trace !== undefined)?.trace ?? request.trace
  let end: JobEnd = { outcome: 'left' }
  try {
    for await (const event of run({ ...identified, ...(trace !== undefined && { trace }) })) {
      for (const record of records) record.onEvent?.(event)
      if (event.type === 'result') {
        end = { outcome: 'finished' }
        // Lets the records leave this process before the answer does: if the process is killed
        // after the answer, the usage row exists.
        await setImmediate()
      }
      yield event
    }
  } catch (error) {
    const hasLeft = request.signal.aborted || error instanceof CancelledError
    end = hasLeft ? { outcome: 'left' } : { outcome: 'failed', error }
    throw error
  } finally {
    for (const record of records) record.onEnd(end)
  }
}
