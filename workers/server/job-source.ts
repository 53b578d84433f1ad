import { setImmediate, setTimeout as sleep } from 'node:timers/promises'

import { Job, RedisQueueBackend, UnrecoverableError, Worker } from 'bullmq'
import type { Redis } from 'ioredis'

import type { Logger } from '#shared/logger.ts'
import { defineScript, runScript } from '#shared/queue/connection.ts'

/** The lock of a fetched job; renewed from the event loop, which never computes. */
const LOCK_MS = 2000
const LOCK_RENEW_MS = 500
const STALLED_INTERVAL_MS = 5000
const RETRY_DELAY_MS = 200
/** Short, because BullMQ dates the start of the fetched job to the start of the wait. */
const WAIT_SECONDS = 1
const FETCHES_MAX = 32
/** Workers with free slots have this long to fetch a job for which this one has no slot. */
const YIELD_MS = 3

/**
 * Counts waiting jobs. When there are none, removes the marker that wakes workers, which would make
 * one of them fetch from an empty queue. BullMQ adds it again with the next job.
 *
 * KEYS: `prioritized` set, `wait` list, `marker` set
 */
const COUNT_WAITING = defineScript(`
local waiting = redis.call('ZCARD', KEYS[1]) + redis.call('LLEN', KEYS[2])
if waiting == 0 then redis.call('ZREM', KEYS[3], '0') end
return waiting
`)

/** The queue to serve, and its processor. */
interface JobSourceOptions {
  /** The name of the queue. */
  readonly name: string
  readonly prefix: string
  readonly redis: Redis
  readonly slots: number
  /** The number of jobs at which no other worker has a free slot. */
  readonly slotsNow: () => number
  readonly log: Logger
  /** Runs one job; never throws. */
  run(data: unknown): Promise<void>
}

/** A fetched job until its end. */
interface Held {
  readonly token: string
  renewedAtMs: number
}

/**
 * Fetches the jobs of one BullMQ queue and removes them when they have run. BullMQ's own loop
 * fetches one after another and starts none before the queue was found empty; this loop fetches as
 * many at once as there are waiting jobs and free slots.
 *
 * A job never runs twice here. With `maxStalledCount` 0 BullMQ's stalled check marks a job whose
 * lock expired as failed, and the next fetch removes it without a run: whether it runs again is
 * decided by its owner alone, which knows the delivered replies and raises the epoch. The check
 * only removes jobs whose worker and owner both died.
 */
export class JobSource {
  readonly #options: JobSourceOptions
  readonly #worker: Worker
  readonly #held = new Map<string, Held>()
  #numTaken = 0
  #numTokens = 0
  #isWaiting = false
  #isStopped = false
  #onFree: (() => void) | undefined
  readonly #renewer: NodeJS.Timeout

  constructor(options: JobSourceOptions) {
    const { name, prefix, redis, log } = options
    this.#options = options
    this.#worker = new Worker(name, null, {
      connection: redis,
      prefix,
      autorun: false,
      lockDuration: LOCK_MS,
      stalledInterval: STALLED_INTERVAL_MS,
      maxStalledCount: 0,
    })
    this.#worker.on('error', (error) => this.#note(error))
    this.#renewer = setInterval(() => void this.#renewLocks(), LOCK_RENEW_MS)
    void this.#worker.startStalledCheckTimer().catch((error: unknown) => this.#note(error))
    void this.#fetchAll().catch((error: unknown) => {
      log.error({ operation: 'queue.fetch', queue: name, err: error }, 'fetching ended')
    })
  }

  /** Stops fetching; running jobs continue. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#onFree?.()
    await this.#worker.pause(true)
  }

  /** Closes the connections; running jobs lose their locks. */
  async close(): Promise<void> {
    this.#isStopped = true
    this.#onFree?.()
    clearInterval(this.#renewer)
    await this.#worker.close(true)
  }

  /** Stops fetching, and closes once the last job has ended. */
  async retire(): Promise<void> {
    await this.stop()
    while (this.#numTaken > 0) await this.#whenFree()
    await this.close()
  }

  async #fetchAll(): Promise<void> {
    await this.#worker.waitUntilReady()
    const waiter = new Waiter(this.#worker, this.#options.name, () => this.#isStopped)
    let numWaiting = 0
    while (!this.#isStopped) {
      const room = this.#options.slots - this.#numTaken
      try {
        if (room > 0 && numWaiting > 0) numWaiting = await this.#fetch(Math.min(numWaiting, room))
        else if (room > 0) numWaiting = await this.#awaitJob(waiter)
        else if (this.#spareRoom <= 0) await this.#whenFree()
        else numWaiting = await this.#fetchSpare(waiter, numWaiting)
      } catch (error) {
        this.#note(error)
        numWaiting = 0
        await sleep(RETRY_DELAY_MS)
        await this.#reconnect(waiter)
      }
    }
  }

  /** BullMQ replaces a connection whose wait takes too long, and leaves it closed if that fails. */
  async #reconnect(waiter: RedisQueueBackend): Promise<void> {
    await waiter.reconnectBlocking().catch((error: unknown) => this.#note(error))
  }

  /**
   * Waits for BullMQ's marker or the time limit. The fetch is pipelined behind the blocking pop on
   * the same connection, so the marker's arrival runs it in the same round trip. Returns the number
   * of waiting jobs.
   */
  async #awaitJob(waiter: RedisQueueBackend): Promise<number> {
    const [marker, isFound] = await this.#awaitMarker(waiter)
    if (isFound) return this.#countWaiting()
    // After a reconnect the fetch may have come before the wait.
    return marker === null ? 0 : 1
  }

  /** Room for jobs beyond the slots. */
  get #spareRoom(): number {
    return this.#options.slotsNow() - this.#numTaken
  }

  /**
   * Fetches jobs beyond the slots when no worker with free slots has done so. Returns the number of
   * waiting jobs.
   */
  async #fetchSpare(waiter: RedisQueueBackend, numWaiting: number): Promise<number> {
    if (numWaiting === 0 && (await waiter.waitForJob(WAIT_SECONDS)) === null) return 0
    if (this.#numTaken < this.#options.slots) return this.#countWaiting()
    // The marker wakes one worker, and this one has taken it.
    await this.#options.redis.zadd(this.#worker.keys.marker as string, 0, '0')
    await sleep(YIELD_MS)
    const wanted = Math.min(await this.#countWaiting(), this.#spareRoom)
    return wanted > 0 ? await this.#fetch(wanted) : 0
  }

  async #awaitMarker(waiter: RedisQueueBackend): Promise<readonly [object | null, boolean]> {
    this.#isWaiting = true
    try {
      const marking = waiter.waitForJob(WAIT_SECONDS)
      // By then the wait has been sent.
      const fetching = setImmediate().then(() => this.#fetchOne(waiter))
      return await Promise.all([marking, fetching])
    } finally {
      this.#isWaiting = false
    }
  }

  /**
   * Fetches jobs concurrently and starts each on arrival; returns the number of waiting jobs. The
   * count is a later write: in the write of the fetches it would delay their answers.
   */
  async #fetch(wanted: number): Promise<number> {
    const { backend } = this.#worker
    const fetches = Array.from({ length: Math.min(wanted, FETCHES_MAX) }, () =>
      this.#fetchOne(backend),
    )
    const found = await Promise.all(fetches)
    // Waiting jobs that are not delivered, as in a paused queue, are not requested again at once.
    return found.includes(true) ? this.#countWaiting() : 0
  }

  async #countWaiting(): Promise<number> {
    const { prioritized, wait, marker } = this.#worker.keys
    const keys = [prioritized, wait, marker] as string[]
    return Number(await runScript(this.#options.redis, COUNT_WAITING, keys, []))
  }

  async #fetchOne(backend: RedisQueueBackend): Promise<boolean> {
    this.#numTaken += 1
    this.#numTokens += 1
    const token = `${this.#worker.id}:${this.#numTokens}`
    let job: Job | undefined
    try {
      job = this.#read(await backend.moveToActive(token))
    } finally {
      if (job === undefined) this.#release()
    }
    if (job === undefined) return false
    void this.#work(job, token)
    return true
  }

  #read(answer: readonly unknown[] | undefined): Job | undefined {
    const [data, id] = answer ?? []
    if (typeof data !== 'object' || data === null) return undefined
    return Job.fromJSON(this.#worker, data as Parameters<typeof Job.fromJSON>[1], String(id))
  }

  /** Runs a job, and the next ones that the queue returns for it. */
  async #work(first: Job, token: string): Promise<void> {
    for (let job: Job | undefined = first; job !== undefined; ) {
      const id = job.id ?? ''
      this.#held.set(id, { token, renewedAtMs: performance.now() })
      // A stalled one is not run again.
      if (job.deferredFailure === undefined) await this.#options.run(job.data)
      this.#held.delete(id)
      job = await this.#takeOut(job, token)
    }
    this.#release()
  }

  /** Removes a job from the queue; returns the next one while more wait than there are slots. */
  async #takeOut(job: Job, token: string): Promise<Job | undefined> {
    for (;;) {
      // While the loop waits for the marker there is none, and it has a slot of its own.
      const wantsNext = !this.#isWaiting && !this.#isStopped
      try {
        const { deferredFailure } = job
        const next: unknown =
          deferredFailure === undefined
            ? await job.moveToCompleted(null, token, wantsNext)
            : await job.moveToFailed(new UnrecoverableError(deferredFailure), token, wantsNext)
        return this.#read(Array.isArray(next) ? next : undefined)
      } catch (error) {
        this.#note(error)
        // Anything but a lost connection: the lock has expired and the job is gone.
        if (this.#worker.closing !== undefined || !isConnectionError(error)) return undefined
        await sleep(RETRY_DELAY_MS)
      }
    }
  }

  async #renewLocks(): Promise<void> {
    const nowMs = performance.now()
    const due = [...this.#held].filter(([, { renewedAtMs }]) => nowMs - renewedAtMs > LOCK_RENEW_MS)
    if (due.length === 0) return
    for (const [, held] of due) held.renewedAtMs = nowMs
    const ids = due.map(([id]) => id)
    const tokens = due.map(([, { token }]) => token)
    await this.#worker
      .extendJobLocks(ids, tokens, LOCK_MS)
      .catch((error: unknown) => this.#note(error))
  }

  #release(): void {
    this.#numTaken -= 1
    this.#onFree?.()
  }

  #whenFree(): Promise<void> {
    return new Promise((resolve) => {
      this.#onFree = () => {
        this.#onFree = undefined
        resolve()
      }
    })
  }

  #note(error: unknown): void {
    const { log, name } = this.#options
    const reason = error instanceof Error ? error.message : String(error)
    log.debug({ operation: 'queue.error', queue: name, reason }, 'queue')
  }
}

/**
 * Fetches on the connection on which it waits, as the worker's own backend does not. A connection
 * that BullMQ replaces while the source stops is not left open.
 */
class Waiter extends RedisQueueBackend {
  readonly #isStopped: () => boolean

  constructor({ backend, opts }: Worker, name: string, isStopped: () => boolean) {
    const connection = backend.blockingConnection ?? backend.connection
    const toKey = (type: string): string => backend.toKey(type)
    super(connection, name, backend.keys, toKey, opts, connection, false)
    this.#isStopped = isStopped
  }

  override async reconnectBlocking(): Promise<void> {
    if (this.#isStopped()) return
    await super.reconnectBlocking()
    if (this.#isStopped()) (await this.connection.client).disconnect()
  }
}

function isConnectionError(error: unknown): boolean {
  const { code, message = '' } = error as { readonly code?: unknown; readonly message?: string }
  const lost = /ECONNREFUSED|Connection is closed|ETIMEDOUT|Cluster|^CLUSTERDOWN|^TRYAGAIN/
  return code === 'ECONNREFUSED' || lost.test(message)
}
