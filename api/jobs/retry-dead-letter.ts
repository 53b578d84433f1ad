import type { Catalogue } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import type { DeadLetters } from '#shared/queue/dead-letters.ts'

import type { Submitter } from './observers.ts'

const DEADLINE_MS = 600_000

interface RetryServices {
  readonly deadLetters: DeadLetters
  readonly catalogue: Pick<Catalogue, 'find'>
  readonly submitter: Submitter
  readonly clock: Clock
}

/**
 * Runs the job of a dead letter once more under a new id, without charging a user. Its client has
 * already received an error, so the answer is discarded, and the record is deleted on success.
 * `done` rejects with the failure of the run. Throws when the input is not kept.
 */
export async function retryDeadLetter(
  { deadLetters, catalogue, submitter, clock }: RetryServices,
  jobId: string,
): Promise<{ readonly done: Promise<void> }> {
  const { letter, input } = await deadLetters.find(jobId)
  if (letter === undefined) {
    throw failure.notFound(`No such dead letter: ${jobId.slice(0, 64)}`, { param: 'job' })
  }
  if (input === undefined) {
    throw failure.conflict(
      'The input of this job is not kept: it was too large or is older than a day, its organization stores nothing, or MILLRACE_ENCRYPTION_KEY is not set.',
      { param: 'job', code: 'input_not_kept' },
    )
  }
  const model = catalogue.find(letter.modelId)
  if (model === undefined) throw failure.notFound(`No such model: ${letter.modelId}`)
  const { kind, organizationId } = letter
  const run = async (): Promise<void> => {
    const deadlineAtMs = clock.now() + DEADLINE_MS
    const { signal } = new AbortController()
    const request = { kind, model: { ...model, kind }, input, organizationId, deadlineAtMs, signal }
    try {
      for await (const _event of submitter.submit({ ...request, priorityClass: 'batch' })) {
        // The answer belongs to a client that has left.
      }
    } catch (error) {
      // The new run has its own record.
      const isDeadAgain = error instanceof ServiceError && error.code === 'worker_crashed'
      if (isDeadAgain) await deadLetters.delete(jobId)
      throw error
    }
    await deadLetters.delete(jobId)
  }
  return { done: run() }
}
