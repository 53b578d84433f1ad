import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'

import type { Redis } from 'ioredis'

import type { CatalogueModel } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import { queueName } from '#shared/contracts/job.ts'
import type { DependencyState } from '#shared/dependencies.ts'
import type { Logger } from '#shared/logger.ts'
import { listenForCancels } from '#shared/queue/cancellation.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import type { QueueKeys } from '#shared/queue/keys.ts'
import {
  CANNOT_BE_LOADED,
  findConnectionId,
  removeHeartbeat,
  type ServedQueue,
  WORKER_HEARTBEAT_MS,
  type WorkerHeartbeat,
  writeHeartbeat,
} from '#shared/queue/liveness.ts'
import { RedisClock } from '#shared/queue/redis-clock.ts'
import { ReplyWriter } from '#shared/queue/reply-writer.ts'
import type { Residency } from '#workers/models/residency.ts'
import type { OpenModel } from '#workers/processors/index.ts'
import type { RunObserver } from '#workers/telemetry/run-observer.ts'

import { JobRunner } from './job-runner.ts'
import { QueueServer } from './queue-server.ts'

const RELOAD_DELAY_MS = 5000
/** One failure may be temporary; after this many, requests are refused instead of waiting. */
const LOAD_FAILURES_MAX = 2
const REBUILD_CHECK_MS = 1000
const LOAD_ERROR_LENGTH_MAX = 300
/** After a drain of one second, the rest of two: runs end within a step and replies are sent. */
const YIELD_GRACE_MS = 600
const CLOSE_GRACE_MS = 200

/** A model with the number of its jobs at a time. */
export interface ServedModel {
  readonly model: CatalogueModel
  readonly slots: number
}

/** The dependencies of a worker process. */
export interface WorkerHostOptions {
  /** BullMQ's commands and ours; its commands wait while Redis is away. */
  readonly redis: Redis
  readonly subscriber: Redis
  /** Used only for replies: a token does not wait behind the fetch of the next job. */
  readonly replies?: Redis
  readonly keys: QueueKeys
  /** The models at the start; `follow` changes them. */
  readonly served: readonly ServedModel[]
  readonly residency: Residency<OpenModel>
  /** The download of a model's files, while one is in flight. */
  readonly pullOf?: (modelId: string) => ServedQueue['pull']
  /** The services that failed their last check. */
  readonly failing?: () => readonly DependencyState[]
  readonly version: string
  readonly clock: Clock
  readonly log: Logger
  /** Decrypts job inputs and encrypts replies. */
  readonly cipher?: ContentCipher | undefined
  /** Measures and traces every run. */
  readonly observer?: RunObserver
  /** Called when the models of the start, or others later, are loaded or have failed. */
  readonly onLoaded?: () => void
}

/** One worker process: its queues, its heartbeat, its end. */
export class WorkerHost {
  readonly workerId = randomUUID()
  readonly #options: WorkerHostOptions
  #served: readonly ServedModel[]
  readonly #clock: RedisClock
  readonly #writer: ReplyWriter
  readonly #runner: JobRunner
  /** By the name of the queue, like the maps below. */
  readonly #servers = new Map<string, QueueServer>()
  /** Kept when the model is evicted. */
  readonly #facts = new Map<
    string,
    Pick<ServedQueue, 'contextLength' | 'labelCount' | 'samplingDefaults' | 'voices'>
  >()
  /** Services that are ending; one with the same name starts after its end. */
  readonly #retiring = new Map<string, Promise<void>>()
  /** Consecutive failures to load each model. */
  readonly #loadFailures = new Map<string, number>()
  readonly #loadErrors = new Map<string, string>()
  readonly #tokenCounts = new Map<string, { tokens: number; atMs: number; perSecond: number }>()
  readonly #startedAtMs: number
  readonly #timers: NodeJS.Timeout[] = []
  readonly #stopping = new AbortController()

  constructor(options: WorkerHostOptions) {
    const { redis, keys, log, observer } = options
    this.#served = options.served
    const clock = new RedisClock(options.clock)
    this.#clock = clock
    this.#options = { ...options, clock }
    this.#startedAtMs = clock.now()
    const { replies = redis, cipher } = options
    const onOverflow = (replyTo: string): void => this.#runner.cancelOwner(replyTo)
    this.#writer = new ReplyWriter(replies, log, onOverflow, cipher)
    const { workerId } = this
    const tools = { redis, keys, clock, log, observer }
    this.#runner = new JobRunner({ ...tools, writer: this.#writer, workerId })
  }

  /** Its queues as the heartbeat lists them. */
  get queues(): readonly ServedQueue[] {
    return this.#served.map((entry) => this.#present(entry))
  }

  /** Why models are not served, by id; without any, the worker is ready. */
  get unserved(): Readonly<Record<string, string>> {
    const waiting = this.#served.filter(({ model }) => !this.#servers.has(nameOf(model)))
    return Object.fromEntries(
      waiting.map(({ model }) => [
        model.id,
        this.#isFailing(model) ? CANNOT_BE_LOADED : 'not loaded',
      ]),
    )
  }

  /**
   * Sends a heartbeat at once; models load one after another, each serving as soon as it is loaded.
   */
  async start(): Promise<void> {
    const { subscriber, keys, log } = this.#options
    await listenForCancels(subscriber, keys, {
      onCancel: (queuedId) => this.#runner.cancel(queuedId),
      log,
    })
    await this.#sendHeartbeat()
    this.#options.redis.on('ready', this.#onReady)
    this.#every(WORKER_HEARTBEAT_MS, () => this.#sendHeartbeat())
    this.#every(WORKER_HEARTBEAT_MS, () => this.#runner.sweep())
    this.#every(REBUILD_CHECK_MS, async () => {
      for (const server of this.#servers.values()) await server.rebuildIfStuck()
    })
    void this.#loadAll(this.#served)
  }

  /**
   * Stops fetching, lets jobs end until the time limit, then hands the others back to their owners.
   */
  async drain(timeoutMs: number): Promise<void> {
    this.#stopping.abort()
    await within(CLOSE_GRACE_MS, this.#sendHeartbeat())
    await within(
      CLOSE_GRACE_MS,
      Promise.all([...this.#servers.values()].map((server) => server.pause())),
    )
    await within(timeoutMs, this.#whenIdle())
    this.#runner.yieldAll()
    await within(YIELD_GRACE_MS, this.#whenIdle())
    for (const timer of this.#timers) clearInterval(timer)
    const { redis, keys } = this.#options
    redis.off('ready', this.#onReady)
    await within(CLOSE_GRACE_MS, removeHeartbeat(redis, keys, this.workerId))
    await within(
      CLOSE_GRACE_MS,
      Promise.all([...this.#servers.values()].map((server) => server.close())),
    )
    this.#writer.close()
  }

  /** Serves these models from now on: loads new ones, and ends the service of all others. */
  follow(wanted: readonly ServedModel[]): void {
    const before = this.#served
    const isSame = (a: ServedModel) => (b: ServedModel) =>
      nameOf(a.model) === nameOf(b.model) && a.model.source === b.model.source
    this.#served = wanted.map((each) => before.find(isSame(each)) ?? each)
    for (const each of before) {
      if (!this.#isServed(each)) this.#retiring.set(nameOf(each.model), this.#retire(each.model))
    }
    void this.#loadAll(this.#served.filter((each) => !before.includes(each)))
  }

  #isServed(served: ServedModel): boolean {
    return !this.#stopping.signal.aborted && this.#served.includes(served)
  }

  async #retire(model: CatalogueModel): Promise<void> {
    const queue = nameOf(model)
    const server = this.#servers.get(queue)
    for (const map of [this.#servers, this.#facts, this.#loadFailures, this.#loadErrors]) {
      map.delete(queue)
    }
    await server?.retire().catch(() => {
      // Redis is unreachable; the connection closes with the process.
    })
    await this.#options.residency.evict(model)
    this.#options.log.info({ operation: 'model.retire', modelId: model.id }, 'model not served')
  }

  /** Loads local models first, so that a download does not delay them. */
  async #loadAll(models: readonly ServedModel[]): Promise<void> {
    const isFetched = ({ model }: ServedModel): number => Number(/^(hub|s3):/.test(model.source))
    const order = models.toSorted((a, b) => isFetched(a) - isFetched(b))
    for (const served of order) await this.#load(served)
    this.#options.onLoaded?.()
  }

  async #load(served: ServedModel): Promise<void> {
    const { residency, log } = this.#options
    if (!this.#isServed(served)) return
    const queue = nameOf(served.model)
    try {
      await this.#retiring.get(queue)
      const lease = await residency.lease(served.model)
      lease.release()
      if (!this.#isServed(served)) return
      this.#loadFailures.delete(queue)
      this.#loadErrors.delete(queue)
      const { contextLength, labelCount, samplingDefaults, voices } = lease.model
      this.#facts.set(queue, {
        ...(contextLength !== undefined && { contextLength }),
        ...(labelCount !== undefined && { labelCount }),
        ...(samplingDefaults !== undefined && { samplingDefaults }),
        ...(voices !== undefined && { voices }),
      })
      this.#serve(served)
    } catch (error) {
      if (!this.#isServed(served)) return
      this.#loadFailures.set(queue, this.#failuresOf(served.model) + 1)
      this.#loadErrors.set(queue, reasonOf(error))
      log.error(
        { operation: 'model.load', modelId: served.model.id, err: error },
        'model could not be loaded and is tried again',
      )
      const timer = setTimeout(() => void this.#load(served), RELOAD_DELAY_MS)
      timer.unref()
    }
  }

  #failuresOf(model: CatalogueModel): number {
    return this.#loadFailures.get(nameOf(model)) ?? 0
  }

  #isFailing(model: CatalogueModel): boolean {
    return this.#failuresOf(model) >= LOAD_FAILURES_MAX
  }

  #serve({ model, slots }: ServedModel): void {
    const { redis, keys, residency, cipher, clock, log } = this.#options
    const server = new QueueServer({
      kind: model.kind,
      modelId: model.id,
      slots,
      slotsNow: () => residency.find(model)?.stats().slots ?? slots,
      redis,
      keys,
      runner: this.#runner,
      execute: async (envelope, tools) => {
        const lease = await residency.lease(model)
        try {
          await lease.model.process(envelope, { ...tools, clock })
        } finally {
          lease.release()
        }
      },
      clock,
      log,
      cipher,
    })
    this.#servers.set(nameOf(model), server)
  }

  /**
   * Sends the id of a new connection at once: owners check the connection of the last heartbeat.
   */
  readonly #onReady = (): void => {
    void this.#sendHeartbeat().catch(() => {})
  }

  async #sendHeartbeat(): Promise<void> {
    const { redis, keys, version, failing } = this.#options
    await this.#clock.sync(redis)
    const connectionId = await findConnectionId(redis)
    const heartbeat: WorkerHeartbeat = {
      workerId: this.workerId,
      ...(connectionId !== undefined && { connectionId }),
      version,
      nodeVersion: process.version,
      pid: process.pid,
      hostname: hostname(),
      startedAtMs: this.#startedAtMs,
      isDraining: this.#stopping.signal.aborted,
      memoryBytes: process.memoryUsage.rss(),
      failing: failing?.() ?? [],
      queues: this.queues,
    }
    await writeHeartbeat(redis, keys, heartbeat)
  }

  #present({ model, slots }: ServedModel): ServedQueue {
    const queue = nameOf(model)
    const server = this.#servers.get(queue)
    const resident = this.#options.residency.find(model)
    const stats = resident?.stats()
    const loadError = this.#loadErrors.get(queue)
    const pull = this.#options.pullOf?.(model.id)
    return {
      kind: model.kind,
      modelId: model.id,
      isReady: server !== undefined,
      ...(this.#isFailing(model) && { isFailing: true }),
      ...(loadError !== undefined && { loadError }),
      ...(pull !== undefined && { pull }),
      ...(resident !== undefined && { bytes: resident.bytes }),
      slots,
      active: server?.active ?? 0,
      waiting: stats?.waiting ?? 0,
      jobsPerSecond: server?.jobsPerSecond ?? 0,
      ...(server?.jobMs !== undefined && { jobMs: server.jobMs }),
      tokensPerSecond: this.#tokensPerSecond(queue, stats?.tokens ?? 0),
      cacheUse: stats?.cacheUse ?? 0,
      ...this.#facts.get(queue),
    }
  }

  #tokensPerSecond(queue: string, tokens: number): number {
    const nowMs = this.#options.clock.monotonic()
    const last = this.#tokenCounts.get(queue) ?? { tokens, atMs: nowMs, perSecond: 0 }
    const elapsedMs = nowMs - last.atMs
    // Averaged over a second, because no token may fall between two heartbeats.
    const perSecond =
      elapsedMs < 1000 ? last.perSecond : Math.max(tokens - last.tokens, 0) / (elapsedMs / 1000)
    if (elapsedMs >= 1000 || !this.#tokenCounts.has(queue)) {
      this.#tokenCounts.set(queue, { tokens, atMs: nowMs, perSecond })
    }
    return Math.round(perSecond * 10) / 10
  }

  async #whenIdle(): Promise<void> {
    while (this.#runner.numRunning > 0) await new Promise((resolve) => setTimeout(resolve, 20))
  }

  /**
   * Repeats work that may fail while Redis is unavailable; skips an interval while the last call
   * runs.
   */
  #every(intervalMs: number, work: () => Promise<void>): void {
    let isBusy = false
    const timer = setInterval(() => {
      if (isBusy) return
      isBusy = true
      work()
        .catch((error: unknown) => {
          const reason = error instanceof Error ? error.message : String(error)
          this.#options.log.debug({ operation: 'worker.tick', reason }, 'redis is away')
        })
        .finally(() => {
          isBusy = false
        })
    }, intervalMs)
    this.#timers.push(timer)
  }
}

function nameOf({ kind, id }: CatalogueModel): string {
  return queueName(kind, id)
}

/** A load error in one line, short enough for every heartbeat. */
function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error)
  return text.split('\n', 1).join('').slice(0, LOAD_ERROR_LENGTH_MAX)
}

/** Waits for work until the time limit. Errors of the work are ignored. */
async function within(timeoutMs: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, timeoutMs)
  })
  await Promise.race([work.catch(() => undefined), timeout])
  clearTimeout(timer)
}
