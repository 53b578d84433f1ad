import { Queue } from 'bullmq'
import type { Redis } from 'ioredis'

import { type JobEnvelope, queuedJobId } from '../contracts/job.ts'
import { type QueueKind, queueName } from '../contracts/queues.ts'
import type { Logger } from '../logger.ts'
import { announceCancel } from './cancellation.ts'
import { defineScript, runScript } from './connection.ts'
import { type ContentCipher, encryptEnvelope } from './content-cipher.ts'
import type { QueueKeys } from './keys.ts'

/** Queues that one process may open; a catalogue is far smaller. */
const QUEUES_MAX = 1000
/** BullMQ's own event stream, which nothing of ours reads. */
const EVENTS_MAX = 100
const DEAD_JOBS_MAX = 1000

/**
 * Reads the states of queued jobs. KEYS: for each job its hash, lock; ARGV: `prioritized` set and
 * id for each. Returns one letter each: `w` waiting, `a` active, `o` active without a lock, `m`
 * missing.
 */
const STANDINGS = defineScript(`
local found = {}
for i = 1, #KEYS / 2 do
  if redis.call('EXISTS', KEYS[2 * i - 1]) == 0 then found[i] = 'm'
  elseif redis.call('EXISTS', KEYS[2 * i]) == 1 then found[i] = 'a'
  elseif redis.call('ZSCORE', ARGV[2 * i - 1], ARGV[2 * i]) then found[i] = 'w'
  else found[i] = 'o' end
end
return found
`)

/** The state of a queued job; `orphaned`: a worker took it and let its lock expire. */
type Standing = 'waiting' | 'active' | 'orphaned' | 'missing'

const STANDING_LETTERS: Record<string, Standing> = {
  w: 'waiting',
  a: 'active',
  o: 'orphaned',
  m: 'missing',
}

/** One epoch of a job in its queue. */
interface QueuedJob {
  readonly kind: QueueKind
  readonly modelId: string
  readonly jobId: string
  readonly epoch: number
}

/** Puts jobs into their queues. Everything fails fast while Redis is away. */
export class JobProducer {
  readonly #redis: Redis
  readonly #keys: QueueKeys
  readonly #log: Logger
  readonly #cipher: ContentCipher | undefined
  readonly #queues = new Map<string, Queue>()

  constructor(options: {
    readonly redis: Redis
    readonly keys: QueueKeys
    readonly log: Logger
    /** Encrypts inputs; without it they stay in clear text. */
    readonly cipher?: ContentCipher | undefined
  }) {
    const { redis, keys, log, cipher } = options
    this.#cipher = cipher
    this.#redis = redis
    this.#keys = keys
    this.#log = log
  }

  async enqueue(envelope: JobEnvelope, priority: number): Promise<void> {
    const queue = this.queue(envelope.kind, envelope.modelId)
    await queue.add(envelope.kind, encryptEnvelope(envelope, this.#cipher), {
      jobId: queuedJobId(envelope.jobId, envelope.epoch),
      priority,
      // The owner decides about another run; BullMQ never does.
      attempts: 1,
      // Prompts stay in Redis only as long as their job.
      removeOnComplete: true,
      removeOnFail: true,
    })
  }

  /** Stops one epoch of a job: taken out of the queue if it waits, announced to workers if not. */
  async cancel(job: QueuedJob): Promise<void> {
    const queuedId = queuedJobId(job.jobId, job.epoch)
    await Promise.all([
      announceCancel(this.#redis, this.#keys, queuedId),
      this.queue(job.kind, job.modelId).remove(queuedId),
    ])
  }

  /** The states of jobs, in the order of the request. */
  async standings(jobs: readonly QueuedJob[]): Promise<Standing[]> {
    // Queues may be on different shards, and a script runs on one.
    const queues = Map.groupBy(jobs, ({ kind, modelId }) => this.#keys.bull(kind, modelId, ''))
    const found = new Map<QueuedJob, Standing>()
    await Promise.all(
      [...queues.values()].map(async (ofQueue) => {
        for (const [index, standing] of (await this.#standingsOf(ofQueue)).entries()) {
          found.set(ofQueue[index] as QueuedJob, standing)
        }
      }),
    )
    return jobs.map((job) => found.get(job) ?? 'missing')
  }

  async #standingsOf(jobs: readonly QueuedJob[]): Promise<Standing[]> {
    const keys = jobs.flatMap(({ kind, modelId, jobId, epoch }) => {
      const key = this.#keys.bull(kind, modelId, queuedJobId(jobId, epoch))
      return [key, `${key}:lock`]
    })
    const args = jobs.flatMap(({ kind, modelId, jobId, epoch }) => [
      this.#keys.bull(kind, modelId, 'prioritized'),
      queuedJobId(jobId, epoch),
    ])
    const letters = (await runScript(this.#redis, STANDINGS, keys, args)) as string[]
    return letters.map((letter) => STANDING_LETTERS[letter] ?? 'missing')
  }

  /** Keeps the record of a job that kept killing its workers, without what it contained. */
  async recordDeadJob(envelope: JobEnvelope, reason: string): Promise<void> {
    const { jobId, kind, modelId, organizationId, epoch, enqueuedAtMs } = envelope
    const inputBytes = Buffer.byteLength(JSON.stringify(envelope.input))
    const record = { jobId, kind, modelId, organizationId, epoch, enqueuedAtMs, inputBytes, reason }
    await this.#redis
      .pipeline()
      .lpush(this.#keys.deadJobs, JSON.stringify(record))
      .ltrim(this.#keys.deadJobs, 0, DEAD_JOBS_MAX - 1)
      .exec()
  }

  /** The BullMQ queue of one kind and model, opened when first needed. */
  queue(kind: QueueKind, modelId: string): Queue {
    const name = queueName(kind, modelId)
    const known = this.#queues.get(name)
    if (known !== undefined) return known
    if (this.#queues.size >= QUEUES_MAX) throw new Error('too many queues')
    const queue = new Queue(name, {
      connection: this.#redis,
      prefix: this.#keys.bullPrefix(kind, modelId),
      skipWaitingForReady: true,
      streams: { events: { maxLen: EVENTS_MAX } },
    })
    queue.on('error', (error) =>
      this.#log.debug({ operation: 'queue.error', queue: name, reason: error.message }, 'queue'),
    )
    this.#queues.set(name, queue)
    return queue
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.#queues.values()].map((queue) => queue.close()))
    this.#queues.clear()
  }
}
