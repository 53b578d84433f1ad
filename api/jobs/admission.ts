import { setImmediate } from 'node:timers/promises'

import type { Redis } from 'ioredis'

import type { CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import { type QueueKind, queueName } from '#shared/contracts/job.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { QueueKeys } from '#shared/queue/keys.ts'
import type { ServedQueue, WorkerHeartbeat } from '#shared/queue/liveness.ts'
import { assignTicket, type Ticket } from '#shared/queue/producer.ts'

import type { SubmitRequest } from './observers.ts'

const RETRY_AFTER_SECONDS_MAX = 60
/** Workers retry to load a model at this interval. */
const LOAD_RETRY_SECONDS = 5

type Job = Pick<SubmitRequest<QueueKind>, 'kind' | 'model' | 'organizationId' | 'deadlineAtMs'>

/** A job on its way into its queue. Other jobs count it until it leaves. */
export interface Entry {
  /** Resolves with the job's position in the queue; rejects with the refusal. */
  readonly admitted: Promise<Ticket>
  /** Called once the job is in its queue or refused. */
  leave(): void
  /** Records that the job was seen to start. */
  noteStart(ticket: Ticket): void
}

interface AdmissionOptions {
  readonly redis: Redis
  readonly keys: QueueKeys
  readonly clock: Pick<Clock, 'now'>
  /** The depth limit of a queue whose model sets none. */
  readonly queueDepthMax: number
  /** The state of the workers, from their heartbeats. */
  readonly ledger: {
    readonly workers: readonly WorkerHeartbeat[]
    /** The names of queues whose model cannot be loaded, with the reason. */
    readonly unavailable: ReadonlyMap<string, string>
    /** Ids of models that operators have disabled. */
    readonly disabled: ReadonlySet<string>
  }
}

/**
 * Decides whether a job may enter its queue, and at which position. A queue admits a job while it
 * is not full and the projected wait is within the deadline. Redis counts the queue and assigns the
 * fair-queue ticket in one command.
 */
export class Admission {
  readonly #options: AdmissionOptions
  /** One per queue; bounded by the catalogue. */
  readonly #windows = new Map<string, AdmissionWindow>()

  constructor(options: AdmissionOptions) {
    this.#options = options
  }

  /** Begins the admission of a job; the caller ends it with `leave`. */
  enter(job: Job): Entry {
    const window = this.#windowOf(job)
    const earlier = window.entering
    window.entering += 1
    return {
      admitted: this.#admit(job, window, earlier),
      leave: () => {
        window.entering -= 1
      },
      noteStart: (ticket) => window.noteStart(ticket),
    }
  }

  /** Throws when the queue is too full or too slow, or when the model cannot be loaded. */
  async #admit(job: Job, window: AdmissionWindow, earlier: number): Promise<Ticket> {
    // Jobs that enter together are counted once all of them have entered.
    if (window.entering > 1) await setImmediate()
    const { redis, keys, clock, ledger } = this.#options
    const { kind, model, organizationId, deadlineAtMs } = job
    if (ledger.disabled.has(model.id)) throw modelDisabled(model.id)
    const loadError = ledger.unavailable.get(queueName(kind, model.id))
    if (loadError !== undefined) throw modelUnavailable(model.id, loadError)
    // Later jobs count this one; earlier ones may already have been enqueued or refused.
    const others = Math.min(earlier, window.entering - 1)
    const admission = await assignTicket(redis, keys, {
      kind,
      modelId: model.id,
      organizationId,
      depthMax: this.#depthMaxOf(job) - others,
      newestStart: window.newestStart,
    }).catch((cause: unknown) => {
      throw unavailable(cause)
    })
    const waitMs = projectedWaitMs(admission.depth + others, capacityOf(ledger.workers, model))
    if (!admission.isAdmitted || (waitMs !== undefined && clock.now() + waitMs > deadlineAtMs)) {
      throw overloaded(model, waitMs)
    }
    return admission.ticket
  }

  #depthMaxOf({ model }: Pick<Job, 'model'>): number {
    return model.options.maxQueueDepth ?? this.#options.queueDepthMax
  }

  #windowOf({ kind, model }: Job): AdmissionWindow {
    const name = queueName(kind, model.id)
    let window = this.#windows.get(name)
    if (window === undefined) {
      window = new AdmissionWindow()
      this.#windows.set(name, window)
    }
    return window
  }
}

/** The admission window of one queue, as this process sees it. */
export class AdmissionWindow {
  /** Jobs that entered and are not yet counted in the queue's depth. */
  entering = 0
  #newestStart: Ticket | undefined

  /** The newest ticket whose job was seen to start. */
  get newestStart(): Ticket | undefined {
    return this.#newestStart
  }

  /** Records the ticket of a job that was seen to start. */
  noteStart(start: Ticket): void {
    const newest = this.#newestStart
    const isOlder = newest?.generation === start.generation && newest.position >= start.position
    if (!isOlder) this.#newestStart = start
  }
}

/** Capacity of one queue as the living workers report it. */
interface Capacity {
  readonly freeSlots: number
  /** Jobs per second while every slot is taken; 0 while the rate is unknown. */
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
    // The capacity and not the recent rate, which is meaningless after a pause. A worker with free
    // memory runs more jobs than it has slots.
    jobsPerSecond: sum(({ slots, active, jobMs }) =>
      jobMs === undefined ? 0 : (Math.max(slots, active) * 1000) / Math.max(jobMs, 1),
    ),
  }
}

/** The wait of a job behind `depth` others; undefined while the rate of the workers is unknown. */
export function projectedWaitMs(depth: number, capacity: Capacity): number | undefined {
  if (depth < capacity.freeSlots) return 0
  if (capacity.jobsPerSecond <= 0) return undefined
  return Math.ceil(((depth - capacity.freeSlots + 1) / capacity.jobsPerSecond) * 1000)
}

/**
 * The names of the queues whose model is served by live workers, none of which can load it, with
 * the reason of one of them.
 */
export function unavailableQueues(
  workers: readonly WorkerHeartbeat[],
): ReadonlyMap<string, string> {
  const queues = workers
    .filter(({ isDraining }) => !isDraining)
    .flatMap((heartbeat) => heartbeat.queues)
  const isHopeful = (queue: ServedQueue): boolean => queue.isReady || queue.isFailing !== true
  const hopeful = new Set(queues.filter(isHopeful).map(nameOf))
  const failing = queues.filter((queue) => !hopeful.has(nameOf(queue)))
  return new Map(failing.map((queue) => [nameOf(queue), queue.loadError ?? '']))
}

/** The queues whose model is ready on a worker. */
export function readyQueues(workers: readonly WorkerHeartbeat[]): ReadonlySet<string> {
  const queues = workers.flatMap((heartbeat) => heartbeat.queues)
  return new Set(queues.filter(({ isReady }) => isReady).map(nameOf))
}

function nameOf({ kind, modelId }: Pick<ServedQueue, 'kind' | 'modelId'>): string {
  return queueName(kind, modelId)
}

/** The folders before a file name, which are not shown to clients. */
const FOLDERS = /(?:\/[^\s/:'"`]+)+\/(?=[^\s/])/g

/** The refusal of a job whose model cannot be loaded. */
export function modelUnavailable(modelId: string, loadError: string): ServiceError {
  const reason = loadError === '' ? '' : ` (${loadError.replaceAll(FOLDERS, '')})`
  return failure.overloaded(
    `The model \`${modelId}\` could not be loaded and is not available at the moment${reason}. Please retry later.`,
    { code: 'model_unavailable', retryAfterSeconds: LOAD_RETRY_SECONDS, shouldRetry: true },
  )
}

/** The refusal of a job whose model an operator has disabled. */
function modelDisabled(modelId: string): ServiceError {
  return failure.overloaded(
    `The model \`${modelId}\` is disabled by the operator of this service.`,
    { code: 'model_disabled', shouldRetry: false },
  )
}

/** The refusal of a job that has no room at the moment. */
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

/** The error of a job that is still open when its process stops. */
export function restarting(): ServiceError {
  return failure.overloaded('The service was restarted before the request was completed.', {
    code: 'service_unavailable',
    retryAfterSeconds: 1,
    shouldRetry: true,
  })
}
