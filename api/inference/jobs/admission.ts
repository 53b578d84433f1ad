import type { CatalogueModel } from '#shared/catalogue.ts'
import { queueName } from '#shared/contracts/queues.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { ServedQueue, WorkerHeartbeat } from '#shared/queue/liveness.ts'

const RETRY_AFTER_SECONDS_MAX = 60
/** Workers try to load a model as often. */
const LOAD_RETRY_SECONDS = 5

/** Capacity of one queue as the living workers report it. */
interface Capacity {
  readonly freeSlots: number
  /** With every slot taken; 0 while nothing is known. */
  readonly jobsPerSecond: number
}

/** Sums up what the living workers offer for one model. */
export function capacityOf(workers: readonly WorkerHeartbeat[], model: CatalogueModel): Capacity {
  const served = workers
    .filter(({ isDraining }) => !isDraining)
    .flatMap(({ queues }) => queues)
    .filter((queue) => queue.kind === model.kind && queue.modelId === model.id && queue.isReady)
  const sum = (count: (queue: ServedQueue) => number): number =>
    served.reduce((total, queue) => total + count(queue), 0)
  return {
    freeSlots: sum(({ slots, active }) => Math.max(slots - active, 0)),
    // The capacity, not the recent rate, which is meaningless after a pause.
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

/** The queues, by name, whose model none of the living workers that are meant to serve it can load. */
export function unavailableQueues(workers: readonly WorkerHeartbeat[]): ReadonlySet<string> {
  const queues = workers
    .filter(({ isDraining }) => !isDraining)
    .flatMap((heartbeat) => heartbeat.queues)
  const isHopeful = (queue: ServedQueue): boolean => queue.isReady || queue.isFailing !== true
  const hopeful = new Set(queues.filter(isHopeful).map(nameOf))
  return new Set(queues.map(nameOf).filter((name) => !hopeful.has(name)))
}

function nameOf({ kind, modelId }: Pick<ServedQueue, 'kind' | 'modelId'>): string {
  return queueName(kind, modelId)
}

/** The refusal of a job whose model cannot be loaded. */
export function modelUnavailable(modelId: string): ServiceError {
  return failure.overloaded(
    `The model \`${modelId}\` could not be loaded and is not available at the moment. Please retry later.`,
    { code: 'model_unavailable', retryAfterSeconds: LOAD_RETRY_SECONDS, shouldRetry: true },
  )
}

/** The refusal of a job whose model an operator has disabled. */
export function modelDisabled(modelId: string): ServiceError {
  return failure.overloaded(
    `The model \`${modelId}\` is disabled by the operator of this service.`,
    {
      ...{ code: 'model_disabled', shouldRetry: false },
    },
  )
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
