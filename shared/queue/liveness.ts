import type { Redis } from 'ioredis'

import type { SamplingDefaults } from '#shared/contracts/completion.ts'
import type { QueueKind } from '#shared/contracts/job.ts'
import type { DependencyState } from '#shared/dependencies.ts'

import type { QueueKeys } from './keys.ts'
import { isCluster } from './redis-client.ts'

/** A worker is considered dead this long after its last heartbeat. */
const WORKER_TTL_MS = 1200
/** Four heartbeats fit into the time to live, so one lost heartbeat does not count as a death. */
export const WORKER_HEARTBEAT_MS = 300

/** The readiness reported for a model that repeatedly failed to load. */
export const CANNOT_BE_LOADED = 'cannot be loaded'

/** A download of a model's files. */
interface ModelPull {
  readonly file: string
  readonly doneBytes: number
  readonly totalBytes: number
}

/** One queue as a worker serves it. */
export interface ServedQueue {
  readonly kind: QueueKind
  readonly modelId: string
  readonly isReady: boolean
  /** The model repeatedly failed to load; absent otherwise. */
  readonly isFailing?: boolean
  /** Why the last attempt to load the model failed; absent otherwise. */
  readonly loadError?: string
  /** The progress of the download of the model's files; absent when none is in flight. */
  readonly pull?: ModelPull
  /** The memory of the loaded model. */
  readonly bytes?: number
  readonly slots: number
  readonly active: number
  /** Jobs that the engine accepted but that have no slot yet. */
  readonly waiting: number
  readonly jobsPerSecond: number
  /** How long a job takes in its slot; absent before the first job. */
  readonly jobMs?: number
  readonly tokensPerSecond: number
  /** The used share of the cache's slots, from 0 to 1. */
  readonly cacheUse: number
  /** In tokens; absent until the model is loaded, and for models that read no tokens. */
  readonly contextLength?: number
  /** The number of labels of a classifier. */
  readonly labelCount?: number
  /** Sampling defaults in the model's files; absent if there are none. */
  readonly samplingDefaults?: SamplingDefaults
  /** The names of the voices of a model that speaks. */
  readonly voices?: readonly string[]
}

/** The state of a worker, sent with every heartbeat. */
export interface WorkerHeartbeat {
  readonly workerId: string
  /**
   * The worker's connection as Redis numbers it: a process that dies loses it at once. Absent in a
   * cluster, where only the heartbeat shows that a process is alive.
   */
  readonly connectionId?: number
  readonly version: string
  readonly nodeVersion: string
  readonly pid: number
  readonly hostname: string
  readonly startedAtMs: number
  readonly isDraining: boolean
  /** The resident memory of the process. */
  readonly memoryBytes?: number
  /** The dependencies that the worker cannot use; absent before 0.2. */
  readonly failing?: readonly DependencyState[]
  readonly queues: readonly ServedQueue[]
}

/** Writes one heartbeat. */
export async function writeHeartbeat(
  redis: Redis,
  keys: QueueKeys,
  heartbeat: WorkerHeartbeat,
): Promise<void> {
  const pipeline = redis.pipeline()
  pipeline.set(keys.worker(heartbeat.workerId), JSON.stringify(heartbeat), 'PX', WORKER_TTL_MS)
  pipeline.zadd(keys.workers, `${Date.now()}`, heartbeat.workerId)
  // An hour covers every clock skew between the machines.
  pipeline.zremrangebyscore(keys.workers, '-inf', `${Date.now() - 3_600_000}`)
  pipeline.pexpire(keys.workers, 3_600_000)
  await pipeline.exec()
}

/** Announces the end of a worker, so that owners do not wait for the heartbeat to expire. */
export async function removeHeartbeat(
  redis: Redis,
  keys: QueueKeys,
  workerId: string,
): Promise<void> {
  await redis.pipeline().del(keys.worker(workerId)).zrem(keys.workers, workerId).exec()
}

/** The workers that are alive. */
export async function listWorkers(redis: Redis, keys: QueueKeys): Promise<WorkerHeartbeat[]> {
  const ids = await redis.zrange(keys.workers, '0', '999')
  if (ids.length === 0) return []
  const heartbeats = await redis.mget(ids.map((id) => keys.worker(id)))
  return heartbeats.flatMap((heartbeat) =>
    heartbeat === null ? [] : [JSON.parse(heartbeat) as WorkerHeartbeat],
  )
}

/**
 * The times of the last heartbeats of the workers of the last hour that ended without announcing
 * it, or that are frozen; in ascending order.
 */
export async function findLostWorkers(redis: Redis, keys: QueueKeys): Promise<number[]> {
  const entries = await redis.zrange(keys.workers, '0', '999', 'WITHSCORES')
  const ids = entries.filter((_entry, index) => index % 2 === 0)
  if (ids.length === 0) return []
  const heartbeats = await redis.mget(ids.map((id) => keys.worker(id)))
  return heartbeats.flatMap((heartbeat, index) =>
    heartbeat === null ? [Number(entries[2 * index + 1])] : [],
  )
}

/**
 * The connection of this process as Redis numbers it; undefined in a cluster, where each shard has
 * one.
 */
export async function findConnectionId(redis: Redis): Promise<number | undefined> {
  return isCluster(redis) ? undefined : redis.client('ID')
}

/** The given connections that Redis still holds; undefined where it does not answer that. */
export async function findConnections(
  redis: Redis,
  connectionIds: readonly number[],
): Promise<ReadonlySet<number> | undefined> {
  if (connectionIds.length === 0) return new Set()
  try {
    const list = (await redis.client('LIST', 'ID', ...connectionIds)) as string
    return new Set([...list.matchAll(/^id=(\d+) /gm)].map(([, id]) => Number(id)))
  } catch (error) {
    // When the server forbids the command, only the heartbeat shows that a process is alive. An
    // unreachable server is an error.
    if (error instanceof Error && error.name === 'ReplyError') return undefined
    throw error
  }
}
