import type { Redis } from 'ioredis'

import { type QueueKind, queueName } from '#shared/contracts/job.ts'

import type { QueueKeys } from './keys.ts'

/** A queue of one kind and model. */
export interface QueueRef {
  readonly kind: QueueKind
  readonly modelId: string
}

/** The number of jobs of a queue in each state. */
export type QueueStates = Readonly<Record<QueueState, number>>

/** A state that a job of a queue may be in. */
type QueueState = (typeof QUEUE_STATES)[number]

/**
 * BullMQ's states and the state that each counts as. Ended jobs are removed at once, except after a
 * crash.
 */
const COUNTERS = {
  waiting: ['llen', 'wait'],
  prioritized: ['zcard', 'prioritized'],
  active: ['llen', 'active'],
  delayed: ['zcard', 'delayed'],
  paused: ['llen', 'paused'],
  failed: ['zcard', 'failed'],
} as const

/** Every state that is counted. */
export const QUEUE_STATES = [
  'waiting',
  'prioritized',
  'active',
  'delayed',
  'paused',
  'failed',
] as const satisfies readonly (keyof typeof COUNTERS)[]

/** The server of a queue. */
interface Server {
  readonly redis: Redis
  readonly keys: QueueKeys
}

/** The jobs of a queue by state, in one round trip. */
export async function readDepth(
  { redis, keys }: Server,
  { kind, modelId }: QueueRef,
): Promise<QueueStates> {
  const pipeline = redis.pipeline()
  for (const state of QUEUE_STATES) {
    const [command, part] = COUNTERS[state]
    pipeline[command](keys.bull(kind, modelId, part))
  }
  const answers = (await pipeline.exec()) ?? []
  const counts = QUEUE_STATES.map((state, index) => {
    const [error, count] = answers[index] ?? []
    if (error) throw error
    return [state, Number(count ?? 0)]
  })
  return Object.fromEntries(counts) as QueueStates
}

/**
 * The number of jobs whose age is read. The queue is sorted by ticket, so the oldest jobs are in
 * front.
 */
const AGED_JOBS_MAX = 200

/** The age of the oldest of the first waiting jobs; only timestamps are read, never inputs. */
export async function readOldestWaitMs(
  { redis, keys }: Server,
  { kind, modelId }: QueueRef,
): Promise<number | undefined> {
  const [prioritized, plain] = await Promise.all([
    redis.zrange(keys.bull(kind, modelId, 'prioritized'), '0', `${AGED_JOBS_MAX - 1}`),
    redis.lrange(keys.bull(kind, modelId, 'wait'), -AGED_JOBS_MAX, -1),
  ])
  const ids = [...prioritized, ...plain]
  if (ids.length === 0) return undefined
  const times = await Promise.all(
    ids.map((jobId) => redis.hget(keys.bull(kind, modelId, jobId), 'timestamp')),
  )
  const oldestMs = Math.min(...times.map((time) => Number(time ?? 0) || Number.POSITIVE_INFINITY))
  return Number.isFinite(oldestMs) ? Math.max(0, Date.now() - oldestMs) : undefined
}

/**
 * The backlog of a queue: waiting jobs, with or without priority, and active ones. Active jobs
 * count so that a worker that is busy with the last job is not scaled down.
 */
export function backlogOf({ waiting, prioritized, active }: QueueStates): number {
  return waiting + prioritized + active
}

/** The jobs that have not started. */
export function waitingOf({ waiting, prioritized, delayed }: QueueStates): number {
  return waiting + prioritized + delayed
}

/** The name of a queue as BullMQ and the metrics know it. */
export function nameOf({ kind, modelId }: QueueRef): string {
  return queueName(kind, modelId)
}
