import { setImmediate } from 'node:timers/promises'

import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { QueueKind } from '#shared/contracts/queues.ts'
import { CancelledError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'

import type { JobEvent, SubmitRequest } from './job-events.ts'

/** How a job ended. `left` means that its client left before the result. */
export type JobEnd =
  | { readonly outcome: 'finished' | 'left' }
  | { readonly outcome: 'failed'; readonly error: unknown }

/** What an observer records about one job. */
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

/** Runs a job under its observers. It has the same id in all of them, and after an adoption. */
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
        // Lets what was recorded leave this process before the answer does: if the process is
        // killed after the answer, the usage row exists.
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
