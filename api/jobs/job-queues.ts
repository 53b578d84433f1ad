import type { Redis } from 'ioredis'

import { servingIdOf } from '#shared/catalogue.ts'
import type { InfraConfig } from '#shared/config/infra.ts'
import { type QueueRedis, redisIndexOf } from '#shared/config/queue-redis.ts'
import type { JobEnvelope, QueueKind } from '#shared/contracts/job.ts'
import { connectQueueRedis, openRedis } from '#shared/queue/connection.ts'
import type { DeadLetters } from '#shared/queue/dead-letters.ts'
import { type QueueKeys, queueKeys } from '#shared/queue/keys.ts'
import { findLostWorkers, listWorkers, type WorkerHeartbeat } from '#shared/queue/liveness.ts'

import type { JobEvent, SubmitRequest, Submitter } from './observers.ts'
import { type OpenSubmitter, openSubmitter, type SubmitterOptions } from './submit.ts'

/** One Redis with queues, and the jobs of this process in them. */
export interface OpenQueueRedis extends OpenSubmitter {
  readonly redis: Redis
  readonly keys: QueueKeys
}

type Options = Omit<SubmitterOptions, 'redis' | 'reader' | 'keys' | 'main'>

/**
 * The queues of an installation, each on its Redis server: a job is submitted to the server of its
 * queue. While one of them is away, the queues of the others work.
 */
export class JobQueues implements Submitter {
  readonly #servers: readonly QueueRedis[]
  readonly #opened: readonly OpenQueueRedis[]

  private constructor(servers: readonly QueueRedis[], opened: readonly OpenQueueRedis[]) {
    this.#servers = servers
    this.#opened = opened
  }

  /**
   * Opens the submitters. `redis` is the connection to the first server, which must answer; the
   * others are used as soon as they do. Throws if one has the wrong version or settings.
   */
  static async open(
    { queueRedis }: Pick<InfraConfig, 'queueRedis'>,
    redis: Redis,
    options: Options,
  ): Promise<JobQueues> {
    const opened: OpenQueueRedis[] = []
    const servers = new JobQueues(queueRedis, opened)
    try {
      for (const server of queueRedis) {
        opened.push(await openServer(server, { redis, options, first: opened[0] }))
      }
      return servers
    } catch (error) {
      await servers.close()
      throw error
    }
  }

  submit<K extends QueueKind>(request: SubmitRequest<K>): AsyncGenerator<JobEvent<K>> {
    return this.of(request.kind, servingIdOf(request.model)).submit(request)
  }

  /** The server of a queue. */
  of(kind: QueueKind, modelId: string): OpenQueueRedis {
    return this.#opened[redisIndexOf(this.#servers, kind, modelId)] as OpenQueueRedis
  }

  /** Every server beside the first one, with its connection. */
  get further(): readonly (QueueRedis & OpenQueueRedis)[] {
    return this.#opened
      .map((opened, index) => ({ ...(this.#servers[index] as QueueRedis), ...opened }))
      .slice(1)
  }

  /** The workers that were alive at the last check. */
  get workersSeen(): readonly WorkerHeartbeat[] {
    return this.#opened.flatMap(({ ledger }) => ledger.workers)
  }

  get jobsInFlight(): number {
    return this.#opened.reduce((sum, { ledger }) => sum + ledger.size, 0)
  }

  /** The workers that are alive, of the servers that answer. */
  async workers(): Promise<WorkerHeartbeat[]> {
    return (await this.#read(listWorkers)).flat()
  }

  /** The last heartbeats of the workers of the last hour that ended without announcing it. */
  async workersLost(): Promise<number[]> {
    return (await this.#read(findLostWorkers)).flat()
  }

  /** Deletes the recorded replies of durable jobs whose request was answered. */
  async deleteReplies(jobs: readonly JobEnvelope[]): Promise<void> {
    await Promise.all(
      jobs.map(({ kind, modelId, replyTo }) => this.of(kind, modelId).redis.del(replyTo)),
    )
  }

  get deadLetters(): DeadLetters {
    return (this.#opened[0] as OpenQueueRedis).deadLetters
  }

  /** Fails every open job with a retryable error; durable jobs are left to other processes. */
  failPending(): void {
    for (const server of this.#opened) server.failPending()
  }

  async close(): Promise<void> {
    await Promise.all(this.#opened.map((server) => server.close()))
    for (const { redis } of this.#opened.slice(1)) redis.disconnect()
  }

  /** Reads from every server that answers; rejects if the first does not. */
  async #read<T>(read: (redis: Redis, keys: QueueKeys) => Promise<T>): Promise<readonly T[]> {
    const answers = this.#opened.map(async ({ redis, keys }, index) => {
      const answer = read(redis, keys)
      return index === 0 ? [await answer] : answer.then((value) => [value]).catch(() => [])
    })
    return (await Promise.all(answers)).flat()
  }
}

interface OpenTools {
  /** Undefined while the first server is opened. */
  readonly first: OpenQueueRedis | undefined
  /** The connection to the first server. */
  readonly redis: Redis
  readonly options: Options
}

/** Opens the first server, or a further one, which may be away. */
async function openServer(
  { redisUrl, redisPrefix }: QueueRedis,
  { first, redis, options }: OpenTools,
): Promise<OpenQueueRedis> {
  const { log } = options
  const keys = queueKeys(redisPrefix)
  if (first === undefined) {
    const reader = await openRedis(redisUrl, 'reader', log)
    return { redis, keys, ...(await openSubmitter({ ...options, redis, reader, keys })) }
  }
  const [own, reader] = await connectQueueRedis(redisUrl, ['producer', 'reader'], log)
  try {
    const main = { redis, keys: first.keys }
    const submitter = await openSubmitter({ ...options, redis: own, reader, keys, main })
    return { redis: own, keys, ...submitter }
  } catch (error) {
    own.disconnect()
    reader.disconnect()
    throw error
  }
}
