import { setImmediate } from 'node:timers/promises'

import type { JobEvent, SubmitRequest, Submitter } from '#api/inference/jobs/job-events.ts'
import type { Clock } from '#shared/clock.ts'
import type { QueueKind } from '#shared/contracts/queues.ts'
import type { UsageRow } from '#shared/db/schema/usage.ts'
import { randomId } from '#shared/ids.ts'

interface Meter {
  readonly writer: { write(row: UsageRow): void }
  readonly clock: Clock
}

/**
 * Wraps a submitter and records the usage of each job once, however it ends. Another run for the
 * same answer, after a process died, is the same usage.
 */
export function meterJobs<S extends Submitter>(submitter: S, meter: Meter): S {
  return {
    ...submitter,
    submit: <K extends QueueKind>(request: SubmitRequest<K>) => metered(submitter, meter, request),
  }
}

async function* metered<K extends QueueKind>(
  submitter: Submitter,
  meter: Meter,
  request: SubmitRequest<K>,
): AsyncGenerator<JobEvent<K>> {
  const adopted = request.durable?.adopted?.envelope.jobId
  const jobId = adopted ?? request.jobId ?? randomId('job_')
  const used = { promptTokens: 0, completionTokens: 0, cachedTokens: 0 }
  let hasStarted = false
  let isRecorded = false
  let hasFailed = false
  const note = (outcome: UsageRow['outcome']): void => {
    // A job that has not started used nothing, and a failure without a token is not charged.
    if (isRecorded || !hasStarted || (outcome === 'failed' && used.completionTokens === 0)) return
    isRecorded = true
    const usageId = request.account?.usageId ?? jobId
    meter.writer.write(rowOf(request, { jobId: usageId, outcome, ...used }, meter.clock))
    request.account?.noteTokens(used.promptTokens + used.completionTokens)
  }
  try {
    for await (const event of submitter.submit<K>({ ...request, jobId })) {
      if (event.type === 'started') {
        hasStarted = true
        used.promptTokens = event.promptTokens
      } else if (event.type === 'delta') {
        for (const { tokenIds } of event.deltas) used.completionTokens += tokenIds.length
      } else if (event.type === 'result') {
        hasStarted = true
        Object.assign(used, event.usage)
        // Recorded before the client receives the answer, so that every answered job is in the
        // journal.
        note('finished')
        // Lets the journal's command leave before the answer: if this process is killed after the
        // answer, the row exists.
        await setImmediate()
      }
      yield event
    }
  } catch (error) {
    hasFailed = !request.signal.aborted
    throw error
  } finally {
    note(hasFailed ? 'failed' : 'abandoned')
  }
}

function rowOf(
  { account, kind, model, organizationId }: SubmitRequest<QueueKind>,
  used: Pick<UsageRow, 'jobId' | 'outcome' | 'promptTokens' | 'completionTokens' | 'cachedTokens'>,
  clock: Clock,
): UsageRow {
  return {
    ...used,
    ...{ kind, organizationId },
    modelId: model.id,
    apiKeyId: account?.apiKeyId ?? null,
    userId: account?.userId ?? null,
    requestId: account?.requestId ?? null,
    createdAt: new Date(clock.now()),
  }
}
