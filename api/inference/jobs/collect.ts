import type { QueueKind, QueueTable } from '#shared/contracts/queues.ts'
import type { JobTimings, TokenUsage } from '#shared/contracts/reply.ts'

import type { JobEvent } from './job-events.ts'

/** The outcome of a complete job. */
export interface JobOutcome<K extends QueueKind> {
  readonly result: QueueTable[K]['result']
  readonly usage: TokenUsage
  readonly timings: JobTimings
}

/** Waits for the result of a job whose answer is no stream. */
export async function collectResult<K extends QueueKind>(
  events: AsyncIterable<JobEvent<K>>,
): Promise<JobOutcome<K>> {
  for await (const event of events) {
    if (event.type === 'result') {
      const { result, usage, timings } = event
      return { result: result as QueueTable[K]['result'], usage, timings }
    }
  }
  throw new Error('the job ended without a result')
}
