import type { Redis } from 'ioredis'

import { queueName } from '#shared/contracts/job.ts'
import type { Logger } from '#shared/logger.ts'
import type { QueueKeys } from '#shared/queue/keys.ts'
import { findConnections, listWorkers, type WorkerHeartbeat } from '#shared/queue/liveness.ts'
import type { JobProducer } from '#shared/queue/producer.ts'
import type { RedisClock } from '#shared/queue/redis-clock.ts'

import { modelUnavailable, readyQueues, unavailableQueues } from './admission.ts'
import type { OwnedJob } from './inference-job.ts'

const LOOK_INTERVAL_MS = 150
/** A worker whose heartbeat or connection is missing for this long is lost; a late one is not. */
const MISSING_MS = 300
/** After a Redis outage, workers get this long to send a heartbeat again. */
const SETTLE_MS = 1500
/** A job without a reply for this long is looked up in its queue. */
const SILENT_MS = 400
const JOBS_PER_LOOK = 500

interface JobLedgerOptions {
  readonly redis: Redis
  readonly keys: QueueKeys
  /** The server that knows which models are disabled. */
  readonly main: { readonly redis: Redis; readonly keys: Pick<QueueKeys, 'disabledModels'> }
  readonly producer: JobProducer
  readonly clock: RedisClock
  readonly log: Logger
}

/**
 * The jobs that this process owns, and their supervision: a worker whose heartbeat vanished, a job
 * that vanished from Redis, and a deadline that passed become events in a job's life.
 */
export class JobLedger {
  readonly #options: JobLedgerOptions
  readonly #jobs = new Map<string, OwnedJob>()
  readonly #missingSince = new Map<string, number>()
  #workers: readonly WorkerHeartbeat[] = []
  readonly #servedAtMs = new Map<string, number>()
  #unavailable: ReadonlyMap<string, string> = new Map()
  #disabled: ReadonlySet<string> = new Set()
  #reachableSince: number | undefined
  #timer: NodeJS.Timeout | undefined
  #isLooking = false

  constructor(options: JobLedgerOptions) {
    this.#options = options
  }

  /** The workers that were alive at the last check. */
  get workers(): readonly WorkerHeartbeat[] {
    return this.#workers
  }

  /** The queues whose model could not be loaded at the last check, with the reason. */
  get unavailable(): ReadonlyMap<string, string> {
    return this.#unavailable
  }

  /** The ids of the models that were disabled at the last check. */
  get disabled(): ReadonlySet<string> {
    return this.#disabled
  }

  /** When a worker with the model of a queue was last seen; undefined if never. */
  servedAtMs(queue: string): number | undefined {
    return this.#servedAtMs.get(queue)
  }

  get size(): number {
    return this.#jobs.size
  }

  get jobs(): Iterable<OwnedJob> {
    return this.#jobs.values()
  }

  start(): void {
    this.#timer = setInterval(() => void this.#look(), LOOK_INTERVAL_MS)
  }

  add(job: OwnedJob): void {
    this.#jobs.set(job.envelope.jobId, job)
  }

  remove(jobId: string): void {
    this.#jobs.delete(jobId)
  }

  close(): void {
    clearInterval(this.#timer)
  }

  async #look(): Promise<void> {
    this.#expireJobs()
    if (this.#isLooking) return
    this.#isLooking = true
    const { redis, keys, main, clock, log } = this.#options
    try {
      await clock.sync(redis)
      const [workers, disabled] = await Promise.all([
        listWorkers(redis, keys),
        main.redis.hkeys(main.keys.disabledModels).catch(() => this.#disabled),
      ])
      this.#workers = workers
      this.#unavailable = unavailableQueues(workers)
      for (const name of readyQueues(workers)) this.#servedAtMs.set(name, Date.now())
      this.#disabled = new Set(disabled)
      this.#refuseHopeless()
      const nowMs = clock.monotonic()
      this.#reachableSince ??= nowMs
      // Right after an outage a missing heartbeat only shows that the worker could not reach Redis
      // either.
      if (nowMs - this.#reachableSince >= SETTLE_MS) {
        await this.#missWorkers(nowMs)
        await this.#findSilentJobs(nowMs)
      }
    } catch (error) {
      this.#reachableSince = undefined
      this.#missingSince.clear()
      const reason = error instanceof Error ? error.message : String(error)
      log.debug({ operation: 'ledger.look', reason }, 'redis could not be asked')
    } finally {
      this.#isLooking = false
    }
  }

  #expireJobs(): void {
    const nowMs = this.#options.clock.now()
    for (const job of this.#jobs.values()) {
      if (nowMs >= job.envelope.deadlineAtMs) job.apply({ type: 'deadline' })
    }
  }

  /** Fails jobs of unavailable models, which would wait until their deadline. */
  #refuseHopeless(): void {
    if (this.#unavailable.size === 0) return
    for (const job of this.#jobs.values()) {
      const { kind, modelId } = job.envelope
      const loadError = this.#unavailable.get(queueName(kind, modelId))
      if (loadError === undefined || job.life.phase !== 'waiting') continue
      job.buffer.fail(modelUnavailable(modelId, loadError))
    }
  }

  async #missWorkers(nowMs: number): Promise<void> {
    const alive = await this.#findAlive()
    const needed = new Set<string>()
    for (const job of this.#jobs.values()) {
      if (job.workerId === undefined || job.life.phase !== 'running') continue
      needed.add(job.workerId)
      if (alive.has(job.workerId)) continue
      const since = this.#missingSince.get(job.workerId) ?? nowMs
      this.#missingSince.set(job.workerId, since)
      if (nowMs - since < MISSING_MS) continue
      this.#options.log.warn(
        { operation: 'job.workerLost', jobId: job.envelope.jobId, epoch: job.life.epoch },
        'worker lost, job goes on elsewhere',
      )
      job.apply({ type: 'workerLost', epoch: job.life.epoch })
    }
    for (const workerId of this.#missingSince.keys()) {
      if (alive.has(workerId) || !needed.has(workerId)) this.#missingSince.delete(workerId)
    }
  }

  /** The workers with a heartbeat and, as far as Redis reports, a connection. */
  async #findAlive(): Promise<ReadonlySet<string>> {
    const jobs = [...this.#jobs.values()]
    const needed = new Set(jobs.map(({ workerId }) => workerId))
    const asked = this.#workers.flatMap(({ workerId, connectionId }) =>
      needed.has(workerId) && connectionId !== undefined ? [connectionId] : [],
    )
    const connected = await findConnections(this.#options.redis, asked)
    const isConnected = ({ workerId, connectionId }: WorkerHeartbeat): boolean =>
      connectionId === undefined || !needed.has(workerId) || connected?.has(connectionId) !== false
    return new Set(this.#workers.filter(isConnected).map(({ workerId }) => workerId))
  }

  /**
   * Checks the state of silent jobs. The last reply of a job is in the stream before the job leaves
   * its queue, so a job that is missing at two checks, with a read of the inbox in between, is
   * lost.
   */
  async #findSilentJobs(nowMs: number): Promise<void> {
    const silent: { readonly job: OwnedJob; readonly epoch: number }[] = []
    for (const job of this.#jobs.values()) {
      if (nowMs - job.lastReplyAtMs < SILENT_MS) continue
      if (job.life.phase !== 'waiting' && job.life.phase !== 'running') continue
      silent.push({ job, epoch: job.life.epoch })
      if (silent.length === JOBS_PER_LOOK) break
    }
    const standings = await this.#options.producer.standings(
      silent.map(({ job }) => ({ ...job.envelope, epoch: job.life.epoch })),
    )
    for (const [index, { job, epoch }] of silent.entries()) {
      const standing = standings[index]
      // A running job may lack its lock for a moment; its worker's heartbeat decides.
      const isOrphan = standing === 'orphaned' && job.life.phase === 'waiting'
      if (standing !== 'missing' && !isOrphan) {
        job.isSuspectedLost = false
        // Round robin: a checked job moves to the end of the silent jobs.
        job.lastReplyAtMs = nowMs
        continue
      }
      if (!job.isSuspectedLost) {
        job.isSuspectedLost = true
        continue
      }
      job.apply({ type: isOrphan ? 'workerLost' : 'jobLost', epoch })
    }
  }
}
