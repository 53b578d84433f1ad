import type { JobQueues } from '#api/jobs/job-queues.ts'
import { type Catalogue, type CatalogueModel, queuesOf } from '#shared/catalogue.ts'
import { type QueueKind, queueName } from '#shared/contracts/job.ts'
import type { DependencyState } from '#shared/dependencies.ts'
import { ERROR_KINDS } from '#shared/errors.ts'
import { readDepth, readOldestWaitMs, waitingOf } from '#shared/queue/depth.ts'
import type { ServedQueue, WorkerHeartbeat } from '#shared/queue/liveness.ts'

import type { Incidents } from './incident-log.ts'
import type { SeriesSample } from './series-log.ts'

/** The state of one queue. */
export interface QueueOverview {
  readonly kind: QueueKind
  readonly modelId: string
  /** Undefined while the Redis of the queue is away, like the two below. */
  readonly waiting: number | undefined
  readonly running: number | undefined
  readonly oldestWaitMs: number | undefined
  /** Requests of the last hour that failed on the server side. */
  readonly failedLastHour: number
  readonly jobsPerSecond: number
  readonly tokensPerSecond: number
  readonly slotsUsed: number
  readonly slots: number
  /** Workers that have loaded the model. */
  readonly workersReady: number
  readonly workers: number
  /** When this process last saw a ready worker; undefined if it has not seen one. */
  readonly servedAtMs: number | undefined
}

/** A snapshot of queues, workers, errors and slow requests. */
export interface Overview {
  readonly version: string
  readonly atMs: number
  readonly slowAfterMs: number
  readonly dependencies: readonly DependencyState[]
  /** False while Redis is away: queues, workers and incidents are unknown, and empty here. */
  readonly isRedisReachable: boolean
  readonly queues: readonly QueueOverview[]
  readonly workers: readonly WorkerHeartbeat[]
  /** The last heartbeats of the workers of the last hour that ended without announcing it. */
  readonly workersLostAtMs: readonly number[]
  readonly incidents: Incidents
  /**
   * Mails and text messages that wait for delivery; undefined while the database is unavailable.
   */
  readonly outbox: Outbox | undefined
}

interface Outbox {
  readonly waiting: number
  /** Messages that failed at least once. */
  readonly failing: number
  /** When the oldest of them was written. */
  readonly failingSince?: Date | undefined
  /** Codes of a recent failure. */
  readonly lastError?: string | undefined
}

export interface OverviewServices {
  readonly catalogue: Catalogue
  readonly version: string
  readonly slowAfterMs: number
  readonly dependencies: { states(): Promise<readonly DependencyState[]> }
  readonly queues: Pick<JobQueues, 'of' | 'workers' | 'workersLost'>
  incidents(): Promise<Incidents>
  outbox(): Promise<Outbox>
}

/** Redis is read once per interval, however many pages are open. */
const KEPT_MS = 900

/** Reads the overview; calls within a short interval share one answer. */
export function createOverview(services: OverviewServices): () => Promise<Overview> {
  let kept: { readonly atMs: number; readonly overview: Promise<Overview> } | undefined
  return () => {
    const nowMs = performance.now()
    if (kept === undefined || nowMs - kept.atMs > KEPT_MS) {
      const overview = readOverview(services)
      kept = { atMs: nowMs, overview }
      overview.catch(() => {
        kept = undefined
      })
    }
    return kept.overview
  }
}

/** The values of an overview that the time series store. */
export function sampleOf({ queues }: Overview): SeriesSample {
  const sum = (amount: (queue: QueueOverview) => number): number =>
    Math.round(queues.reduce((total, queue) => total + amount(queue), 0))
  return {
    slots: sum(({ slots }) => slots),
    slotsUsed: sum(({ slotsUsed }) => slotsUsed),
    waiting: sum(({ waiting = 0 }) => waiting),
    oldestWaitMs: Math.max(0, ...queues.map(({ oldestWaitMs = 0 }) => oldestWaitMs)),
  }
}

async function readOverview(services: OverviewServices): Promise<Overview> {
  const { catalogue, version, slowAfterMs } = services
  const [dependencies, outbox] = await Promise.all([
    services.dependencies.states(),
    services.outbox().catch(() => undefined),
  ])
  const base = { version, slowAfterMs, atMs: Date.now(), dependencies, outbox }
  const isRedisReachable = dependencies.every(({ name, isOk }) => name !== 'redis' || isOk)
  if (!isRedisReachable) {
    const incidents = { errors: [], failed: [], slow: [] }
    return { ...base, isRedisReachable, queues: [], workers: [], workersLostAtMs: [], incidents }
  }
  const [workers, workersLostAtMs, incidents] = await Promise.all([
    services.queues.workers(),
    services.queues.workersLost(),
    services.incidents(),
  ])
  const queues = await Promise.all(
    queuesOf(catalogue).map((model) => readQueue(services, model, { workers, incidents })),
  )
  return { ...base, isRedisReachable, queues, workers, workersLostAtMs, incidents }
}

async function readQueue(
  services: OverviewServices,
  model: CatalogueModel,
  known: { readonly workers: readonly WorkerHeartbeat[]; readonly incidents: Incidents },
): Promise<QueueOverview> {
  const { kind, id } = model
  const queue = { kind, modelId: id }
  const server = services.queues.of(kind, id)
  // Nothing is known while the Redis of the queue is away.
  const [counts, oldestWaitMs] = await Promise.all([
    readDepth(server, queue).catch(() => undefined),
    readOldestWaitMs(server, queue).catch(() => undefined),
  ])
  const served = known.workers.flatMap(({ queues }) =>
    queues.filter((queue) => queue.kind === kind && queue.modelId === id),
  )
  const sum = (amount: (queue: ServedQueue) => number): number =>
    Math.round(served.reduce((total, one) => total + amount(one), 0) * 10) / 10
  return {
    kind,
    modelId: id,
    oldestWaitMs,
    waiting: counts && waitingOf(counts),
    running: counts?.active,
    failedLastHour: known.incidents.errors
      .filter(({ modelId, kind: error }) => modelId === id && ERROR_KINDS[error].status >= 500)
      .reduce((total, { count }) => total + count, 0),
    jobsPerSecond: sum(({ jobsPerSecond }) => jobsPerSecond),
    tokensPerSecond: sum(({ tokensPerSecond }) => tokensPerSecond),
    slotsUsed: sum(({ active }) => active),
    slots: sum(({ slots }) => slots),
    workersReady: served.filter(({ isReady }) => isReady).length,
    workers: served.length,
    servedAtMs: server.ledger.servedAtMs(queueName(kind, id)),
  }
}
