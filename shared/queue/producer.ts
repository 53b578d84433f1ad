import { createRequire } from 'node:module'

import type { Queue } from 'bullmq'
import type { Redis } from 'ioredis'

import { type JobEnvelope, type QueueKind, queuedJobId, queueName } from '#shared/contracts/job.ts'
import type { Logger } from '#shared/logger.ts'

import { announceCancel } from './cancellation.ts'
import { defineScript, runScript } from './connection.ts'
import { type ContentCipher, encryptEnvelope } from './content-cipher.ts'
import type { QueueKeys } from './keys.ts'

// BullMQ and its packages are loaded with the first queue, because a process without jobs opens
// none.
const require = createRequire(import.meta.url)

/** Queues that one process may open; a catalogue is far smaller. */
const QUEUES_MAX = 1000
/** BullMQ's own event stream, which this installation does not read. */
const EVENTS_MAX = 100

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

/** The state of a queued job; `orphaned` means that a worker fetched it and let its lock expire. */
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

/** Puts jobs into their queues. Every method fails fast while Redis is unreachable. */
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

  /** Adds a job to its queue. `input` is the serialized input, if the caller has it. */
  async enqueue(envelope: JobEnvelope, priority: number, input?: string): Promise<void> {
    const queue = this.queue(envelope.kind, envelope.modelId)
    await queue.add(envelope.kind, encryptEnvelope(envelope, this.#cipher, input), {
      jobId: queuedJobId(envelope.jobId, envelope.epoch),
      priority,
      // The owner decides about another run; BullMQ never does.
      attempts: 1,
      // Prompts stay in Redis only as long as their job.
      removeOnComplete: true,
      removeOnFail: true,
    })
  }

  /**
   * Stops one epoch of a job: removes it from the queue if it waits, else announces the
   * cancellation to workers.
   */
  async cancel(job: QueuedJob): Promise<void> {
    const queuedId = queuedJobId(job.jobId, job.epoch)
    await Promise.all([
      announceCancel(this.#redis, this.#keys, queuedId),
      this.queue(job.kind, job.modelId).remove(queuedId),
    ])
  }

  /** The states of jobs, in the order of the request. */
  async standings(jobs: readonly QueuedJob[]): Promise<Standing[]> {
    // Queues may be on different shards, and a script runs on one shard.
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

  /** The BullMQ queue of one kind and model, opened when first needed. */
  queue(kind: QueueKind, modelId: string): Queue {
    const name = queueName(kind, modelId)
    const known = this.#queues.get(name)
    if (known !== undefined) return known
    if (this.#queues.size >= QUEUES_MAX) throw new Error('too many queues')
    const bullmq = require('bullmq') as typeof import('bullmq')
    const queue = new bullmq.Queue(name, {
      connection: this.#redis,
      prefix: this.#keys.bullPrefix(kind, modelId),
      skipWaitingForReady: true,
      // `checkRedis` checks it. A queue that is opened while Redis is away would fail for ever.
      skipVersionCheck: true,
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

/** How far a request may move ahead of others. */
export type PriorityClass = 'priority' | 'default' | 'flex' | 'batch'

/** The tickets that a class lets others pass: the wait of every class stays bounded. */
const CLASS_OFFSETS = { priority: 0, default: 16, flex: 64, batch: 512 } as const satisfies Record<
  PriorityClass,
  number
>

/** BullMQ's largest priority. */
const PRIORITY_MAX = 2_097_151
const TICKETS_TTL_MS = 3_600_000

/**
 * Assigns tickets. A queue has a current position: that of the job started last. An organization's
 * next job gets the position after its own last one, or after the current one when it has no job
 * waiting. So the tenth waiting job of one organization is placed behind the first of any other,
 * and jobs that arrive later never push it back further than one round. An empty queue starts
 * again. A full queue still admits the first waiting job of each organization, up to a quarter
 * beyond its limit, so that no organization can exclude others by filling it.
 *
 * KEYS: tickets hash, BullMQ's `prioritized` set
 * ARGV: organization, depth limit, generation and position of the newest start seen, time to live
 * Returns: admitted (1 or 0), depth, position, generation
 */
const ADMIT = defineScript(`
local depth = redis.call('ZCARD', KEYS[2])
local limit = tonumber(ARGV[2])
local field = 'last:' .. ARGV[1]
local kept = redis.call('HMGET', KEYS[1], 'generation', 'dealt', 'current', field)
local generation = kept[1]
local current = tonumber(kept[3] or '0')
local last = tonumber(kept[4] or '0')
local time = redis.call('TIME')
-- Jobs that got a ticket in the last second may still be on their way into the queue.
local idle = tonumber(time[1]) - tonumber(kept[2] or '0') > 1
local isNew = not generation or (depth == 0 and idle)
if isNew then
  generation = time[1] .. '.' .. time[2]
  current = 0
  last = 0
end
if generation == ARGV[3] and tonumber(ARGV[4]) > current then current = tonumber(ARGV[4]) end
-- A further quarter of the limit is reserved for organizations without a waiting job.
if last <= current then limit = limit + math.ceil(limit / 4) end
if depth >= limit then return {0, depth, 0, ''} end
if isNew then redis.call('DEL', KEYS[1]) end
local position = math.max(current, last) + 1
redis.call('HSET', KEYS[1], 'generation', generation, 'dealt', time[1], 'current', current, field, position)
if kept[2] ~= time[1] then redis.call('PEXPIRE', KEYS[1], ARGV[5]) end
return {1, depth, position, generation}
`)

/** A place in a queue. */
export interface Ticket {
  readonly generation: string
  readonly position: number
}

/** Whether a job was admitted. */
type Admission =
  | { readonly isAdmitted: true; readonly depth: number; readonly ticket: Ticket }
  | { readonly isAdmitted: false; readonly depth: number }

/** The queue and organization of a job. */
interface AdmissionRequest {
  readonly kind: QueueKind
  readonly modelId: string
  readonly organizationId: string
  readonly depthMax: number
  /** The newest ticket whose job was seen to start. */
  readonly newestStart: Ticket | undefined
}

/** Checks the depth of a queue and assigns a ticket in it, in one command. */
export async function assignTicket(
  redis: Redis,
  keys: QueueKeys,
  request: AdmissionRequest,
): Promise<Admission> {
  const { kind, modelId, organizationId, depthMax, newestStart } = request
  const answer = (await runScript(
    redis,
    ADMIT,
    [keys.tickets(kind, modelId), keys.bull(kind, modelId, 'prioritized')],
    [
      organizationId,
      depthMax,
      newestStart?.generation ?? '',
      newestStart?.position ?? 0,
      TICKETS_TTL_MS,
    ],
  )) as [number, number, number, string]
  const [admitted, depth, position, generation] = answer
  if (admitted === 0) return { isAdmitted: false, depth }
  return { isAdmitted: true, depth, ticket: { generation, position } }
}

/** The BullMQ priority of a ticket: never 0, which would outrank all others. */
export function priorityOf({ position }: Ticket, priorityClass: PriorityClass): number {
  return Math.min(position + CLASS_OFFSETS[priorityClass], PRIORITY_MAX)
}
