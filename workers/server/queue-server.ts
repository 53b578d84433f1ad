import type { Redis } from 'ioredis'

import type { Clock } from '#shared/clock.ts'
import { type QueueKind, queueName } from '#shared/contracts/job.ts'
import type { Logger } from '#shared/logger.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import type { QueueKeys } from '#shared/queue/keys.ts'

import { parseEnvelope } from './job-claims.ts'
import type { Execute, JobRunner } from './job-runner.ts'
import { JobSource } from './job-source.ts'

/** A queue with waiting jobs and free slots that delivered no job for this long is stuck. */
const STUCK_MS = 5000
const RATE_WINDOW_MS = 10_000
/** The number of jobs in the mean duration. */
const DURATIONS_MAX = 64

/** The queue to serve and its processor. */
interface ServeOptions {
  readonly kind: QueueKind
  readonly modelId: string
  readonly slots: number
  /** Jobs that the memory of the model currently holds; `slots` if absent. */
  readonly slotsNow?: () => number
  readonly redis: Redis
  readonly keys: QueueKeys
  readonly runner: JobRunner
  readonly execute: Execute
  readonly clock: Clock
  readonly log: Logger
  /** Decrypts job inputs. */
  readonly cipher?: ContentCipher | undefined
}

/**
 * Serves one queue: the source fetches, the runner runs, as many jobs at once as there are slots.
 */
export class QueueServer {
  readonly #options: ServeOptions
  #source: JobSource
  #active = 0
  #fetchedAtMs: number
  #endedAtMs: number[] = []
  readonly #durationsMs: number[] = []
  #isPaused = false

  constructor(options: ServeOptions) {
    this.#options = options
    this.#fetchedAtMs = options.clock.monotonic()
    this.#source = this.#open()
  }

  get active(): number {
    return this.#active
  }

  /** The mean duration of the last jobs; undefined before the first. */
  get jobMs(): number | undefined {
    const { length } = this.#durationsMs
    if (length === 0) return undefined
    return this.#durationsMs.reduce((sum, ms) => sum + ms, 0) / length
  }

  /** Jobs that ended per second, over the last ten seconds. */
  get jobsPerSecond(): number {
    const since = this.#options.clock.monotonic() - RATE_WINDOW_MS
    this.#endedAtMs = this.#endedAtMs.filter((at) => at >= since)
    return this.#endedAtMs.length / (RATE_WINDOW_MS / 1000)
  }

  /** Stops fetching; running jobs continue. */
  async pause(): Promise<void> {
    this.#isPaused = true
    await this.#source.stop()
  }

  /** Reopens the queue when it stopped fetching, which happens after failovers. */
  async rebuildIfStuck(): Promise<void> {
    const { redis, keys, kind, modelId, slots, clock, log } = this.#options
    const isBusy = this.#isPaused || this.#active >= slots
    if (isBusy || clock.monotonic() - this.#fetchedAtMs < STUCK_MS) return
    if ((await redis.zcard(keys.bull(kind, modelId, 'prioritized'))) === 0) {
      this.#fetchedAtMs = clock.monotonic()
      return
    }
    log.warn({ operation: 'queue.rebuild', kind, modelId }, 'fetching stopped, queue reopened')
    const stuck = this.#source
    this.#fetchedAtMs = clock.monotonic()
    this.#source = this.#open()
    // The source renews the locks of running jobs until they have ended.
    void stuck.retire()
  }

  /** Closes the connections; jobs that still run lose their locks. */
  async close(): Promise<void> {
    await this.#source.close()
  }

  /** Stops fetching, and closes once the last job has ended. */
  async retire(): Promise<void> {
    this.#isPaused = true
    await this.#source.retire()
  }

  #open(): JobSource {
    const { kind, modelId, slots, slotsNow = () => slots, redis, keys, log } = this.#options
    const name = queueName(kind, modelId)
    const prefix = keys.bullPrefix(kind, modelId)
    const run = (data: unknown) => this.#process(data)
    return new JobSource({ name, prefix, redis, slots, slotsNow, log, run })
  }

  /** Never throws: failures are replies, so BullMQ neither retries nor keeps the job. */
  async #process(data: unknown): Promise<void> {
    const { kind, modelId, cipher, clock, runner, execute, log } = this.#options
    const startedAtMs = clock.monotonic()
    this.#fetchedAtMs = startedAtMs
    this.#active += 1
    try {
      await runner.run(parseEnvelope(data, { kind, modelId, cipher }), execute)
    } catch (error) {
      // The owner finds the job missing and resubmits it, a bounded number of times.
      const reason = error instanceof Error ? error.message : String(error)
      log.error({ operation: 'job.parse', kind, modelId, reason }, 'unreadable job dropped')
    } finally {
      this.#active -= 1
      this.#fetchedAtMs = clock.monotonic()
      this.#endedAtMs.push(clock.monotonic())
      if (this.#endedAtMs.length > 10_000) this.#endedAtMs.shift()
      this.#durationsMs.push(clock.monotonic() - startedAtMs)
      if (this.#durationsMs.length > DURATIONS_MAX) this.#durationsMs.shift()
    }
  }
}
