import type { CatalogueModel } from '#shared/catalogue.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { ServedQueue, WorkerBeat } from '#shared/queue/liveness.ts'

const RETRY_AFTER_SECONDS_MAX = 60

/** Capacity of one queue as the living workers report it. */
export interface Capacity {
  readonly freeSlots: number
  /** With every slot taken; 0 while nothing is known. */
  readonly jobsPerSecond: number
}

/** Sums up what the living workers offer for one model. */
export function capacityOf(workers: readonly WorkerBeat[], model: CatalogueModel): Capacity {
  const served = workers
    .filter(({ isDraining }) => !isDraining)
    .flatMap(({ queues }) => queues)
    .filter((queue) => queue.kind === model.kind && queue.modelId === model.id && queue.isReady)
  const sum = (count: (queue: ServedQueue) => number): number =>
    served.reduce((total, queue) => total + count(queue), 0)
  return {
    freeSlots: sum(({ slots, active }) => Math.max(slots - active, 0)),
    // What could be done, not what was: after a pause the pace of the last seconds says nothing.
    jobsPerSecond: sum(({ slots, jobMs }) =>
      jobMs === undefined ? 0 : (slots * 1000) / Math.max(jobMs, 1),
    ),
  }
}

/** How long a job behind `depth` others waits; undefined while nothing is known of the pace. */
export function projectedWaitMs(depth: number, capacity: Capacity): number | undefined {
  if (depth < capacity.freeSlots) return 0
  if (capacity.jobsPerSecond <= 0) return undefined
  return Math.ceil(((depth - capacity.freeSlots + 1) / capacity.jobsPerSecond) * 1000)
}

/** The refusal of a job for which there is no room now. */
export function overloaded(model: CatalogueModel, waitMs: number | undefined): ServiceError {
  const seconds = Math.ceil((waitMs ?? 1000) / 1000)
  return failure.overloaded(
    `The model \`${model.id}\` is overloaded with other requests at the moment. Please retry later.`,
    {
      code: 'server_is_overloaded',
      retryAfterSeconds: Math.min(Math.max(seconds, 1), RETRY_AFTER_SECONDS_MAX),
      shouldRetry: true,
    },
  )
}

/** The refusal of a job while the queues cannot be reached. */
export function unavailable(cause: unknown): ServiceError {
  return failure.overloaded('The service is not able to take requests at the moment.', {
    code: 'service_unavailable',
    retryAfterSeconds: 1,
    shouldRetry: true,
    cause,
  })
}

/** The end of a job that its process has no more time for. */
export function restarting(): ServiceError {
  return failure.overloaded('The service was restarted before the request was completed.', {
    code: 'service_unavailable',
    retryAfterSeconds: 1,
    shouldRetry: true,
  })
}
