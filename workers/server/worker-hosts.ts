import type { Redis } from 'ioredis'

import type { InfraConfig } from '#shared/config/infra.ts'
import { type QueueRedis, redisIndexOf } from '#shared/config/queue-redis.ts'
import type { Logger } from '#shared/logger.ts'
import { connectQueueRedis, openRedis } from '#shared/queue/connection.ts'
import { type QueueKeys, queueKeys } from '#shared/queue/keys.ts'
import type { ServedQueue } from '#shared/queue/liveness.ts'

import type { ServedModel, WorkerHost } from './worker-host.ts'

/** A Redis with queues of this worker, with its connections. */
export interface HostPlace {
  readonly keys: QueueKeys
  readonly redis: Redis
  readonly subscriber: Redis
  readonly replies: Redis
  readonly served: readonly ServedModel[]
}

interface HostsOptions {
  readonly infra: Pick<InfraConfig, 'queueRedis'>
  /** The connection to the first Redis. */
  readonly redis: Redis
  readonly served: readonly ServedModel[]
  /** The kinds and models that the worker may serve; empty lists are no limits. */
  readonly limits: { readonly kinds: readonly string[]; readonly modelIds: readonly string[] }
  openHost(place: HostPlace): WorkerHost
  readonly log: Logger
}

interface OpenPlace {
  readonly place: HostPlace
  readonly host: WorkerHost
}

/**
 * The hosts of one worker process, one for each Redis with queues that it serves: each Redis knows
 * the process as one worker. While one of them is away, the queues of the others are served.
 */
export class WorkerHosts {
  readonly #queueRedis: readonly QueueRedis[]
  /** By the position of their Redis. */
  readonly #places: ReadonlyMap<number, OpenPlace>

  private constructor(queueRedis: readonly QueueRedis[], places: ReadonlyMap<number, OpenPlace>) {
    this.#queueRedis = queueRedis
    this.#places = places
  }

  /** Connects to every Redis that has queues of this worker or may get some later. */
  static async open(options: HostsOptions): Promise<WorkerHosts> {
    const { queueRedis } = options.infra
    const served = modelsByRedis(queueRedis, options.served)
    const places = new Map<number, OpenPlace>()
    for (const [index, each] of queueRedis.entries()) {
      const models = served.get(index) ?? []
      if (models.length === 0 && !mayGetModels(each, options.limits)) continue
      const connections = await (index === 0 ? connectFirst : connectFurther)(each, options)
      const place = { ...connections, keys: queueKeys(each.redisPrefix), served: models }
      places.set(index, { place, host: options.openHost(place) })
    }
    return new WorkerHosts(queueRedis, places)
  }

  /** Every Redis beside the first one, with its connection. */
  get further(): readonly (QueueRedis & Pick<HostPlace, 'redis'>)[] {
    return [...this.#places].flatMap(([index, { place }]) => {
      const each = this.#queueRedis[index]
      return index === 0 || each === undefined ? [] : [{ ...each, redis: place.redis }]
    })
  }

  /** The queues as the heartbeats list them. */
  get queues(): readonly ServedQueue[] {
    return this.#hosts.flatMap(({ queues }) => queues)
  }

  /** Why models are not served, by id; without any, the process is ready. */
  get unserved(): Readonly<Record<string, string>> {
    return Object.assign({}, ...this.#hosts.map(({ unserved }) => unserved))
  }

  get workerIds(): readonly string[] {
    return this.#hosts.map(({ workerId }) => workerId)
  }

  /** Starts to serve. The queues of a further Redis that is away are served once it answers. */
  async start(): Promise<void> {
    for (const [index, { host }] of this.#places) {
      const started = host.start()
      if (index === 0) await started
      // Fails only when the process ends before the connection is usable.
      else started.catch(() => {})
    }
  }

  /** Serves these models from now on. */
  follow(wanted: readonly ServedModel[]): void {
    const served = modelsByRedis(this.#queueRedis, wanted)
    for (const [index, { host }] of this.#places) host.follow(served.get(index) ?? [])
  }

  /** Stops fetching, and lets jobs end until the time limit. */
  async drain(timeoutMs: number): Promise<void> {
    await Promise.all(this.#hosts.map((host) => host.drain(timeoutMs)))
  }

  disconnect(): void {
    for (const { place } of this.#places.values()) {
      for (const client of [place.redis, place.subscriber, place.replies]) client.disconnect()
    }
  }

  get #hosts(): readonly WorkerHost[] {
    return [...this.#places.values()].map(({ host }) => host)
  }
}

async function connectFirst({ redisUrl }: QueueRedis, { redis, log }: HostsOptions) {
  const subscriber = await openRedis(redisUrl, 'worker', log)
  return { redis, subscriber, replies: await openRedis(redisUrl, 'replies', log) }
}

async function connectFurther({ redisUrl }: QueueRedis, { log }: HostsOptions) {
  const roles = ['worker', 'worker', 'replies'] as const
  const [redis, subscriber, replies] = await connectQueueRedis(redisUrl, roles, log)
  return { redis, subscriber, replies }
}

function modelsByRedis(
  queueRedis: readonly QueueRedis[],
  models: readonly ServedModel[],
): ReadonlyMap<number, readonly ServedModel[]> {
  return Map.groupBy(models, ({ model }) => redisIndexOf(queueRedis, model.kind, model.id))
}

/** Whether models that operators add later may have their queue in a Redis. */
function mayGetModels(
  { queues }: QueueRedis,
  { kinds, modelIds }: HostsOptions['limits'],
): boolean {
  if (modelIds.length > 0) return false
  const isOfWorker = (queue: string): boolean =>
    kinds.length === 0 || kinds.includes(queue.split('.', 1).join(''))
  return queues.length === 0 || queues.some(isOfWorker)
}
