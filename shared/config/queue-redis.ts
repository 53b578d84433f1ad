import { QUEUE_KINDS, type QueueKind, queueName } from '#shared/contracts/job.ts'

import type { EnvReader } from './env-reader.ts'
import { parseRedisUrl } from './redis-url.ts'

/** A Redis with queues: one server, one with sentinels, or a cluster. */
export interface QueueRedis {
  readonly redisUrl: string
  readonly redisPrefix: string
  /** Its queues, as `<kind>.<model>` or as all of a kind; empty for those that no other has. */
  readonly queues: readonly string[]
}

/** The setting that names further servers. */
export const QUEUE_REDIS_SETTING = 'MILLRACE_QUEUE_REDIS_URLS'
const SERVERS_MAX = 16
const ENTRY = /^(?<queue>[^=]+)=(?<url>.+)$/

/**
 * Reads the Redis servers of the queues. The first one is that of `REDIS_URL`, which has all other
 * data as well.
 */
export function readQueueRedis(
  env: EnvReader,
  { redisUrl, redisPrefix }: Pick<QueueRedis, 'redisUrl' | 'redisPrefix'>,
): readonly QueueRedis[] {
  const text = env.string(QUEUE_REDIS_SETTING, {
    about:
      'further Redis servers for some queues, which are in REDIS_URL otherwise, the same in both tiers: image=redis://a:6379 audio.whisper=redis://b:6379 for all queues of a kind or the queue of one model, separated by spaces',
    isSecret: true,
  })
  const byUrl = new Map<string, string[]>()
  const named = new Set<string>()
  for (const entry of text.split(/\s+/).filter((part) => part !== '')) {
    const { queue = '', url = '' } = ENTRY.exec(entry)?.groups ?? {}
    // The value is not shown because it may contain a password.
    if (!isQueue(queue)) {
      env.problem(
        `${QUEUE_REDIS_SETTING} must list <kind>=<url> or <kind>.<model>=<url>, separated by spaces`,
      )
    } else if (named.has(queue)) {
      env.problem(`${QUEUE_REDIS_SETTING} lists ${queue} twice`)
    } else {
      requireUrl(env, queue, url)
      named.add(queue)
      byUrl.set(url, [...(byUrl.get(url) ?? []), queue])
    }
  }
  if (byUrl.size > SERVERS_MAX)
    env.problem(`${QUEUE_REDIS_SETTING} names more than ${SERVERS_MAX} servers`)
  const others = [...byUrl].filter(([url]) => url !== redisUrl)
  return [
    { redisUrl, redisPrefix, queues: byUrl.get(redisUrl) ?? [] },
    ...others.map(([url, queues]) => ({
      redisUrl: url,
      redisPrefix: prefixOn(url, redisPrefix),
      queues,
    })),
  ]
}

/** The position of the server of a queue: the one that names it, its kind, or else the first. */
export function redisIndexOf(
  servers: readonly Pick<QueueRedis, 'queues'>[],
  kind: QueueKind,
  modelId: string,
): number {
  const having = (queue: string): number =>
    servers.findIndex(({ queues }) => queues.includes(queue))
  const found = [queueName(kind, modelId), kind].map(having).find((index) => index >= 0)
  return found ?? 0
}

/** In a cluster the prefix is a hash tag: what one command reads together is on one shard. */
export function prefixOn(redisUrl: string, prefix: string): string {
  return isCluster(redisUrl) ? `{${prefix.replaceAll(/[{}]/g, '')}}` : prefix
}

function isQueue(queue: string): boolean {
  const [kind, ...model] = queue.split('.')
  return QUEUE_KINDS.some((known) => known === kind) && (model.length === 0 || model[0] !== '')
}

function isCluster(redisUrl: string): boolean {
  try {
    return parseRedisUrl(redisUrl).kind === 'cluster'
  } catch {
    // Reported as a problem of its setting.
    return false
  }
}

function requireUrl(env: EnvReader, queue: string, url: string): void {
  try {
    parseRedisUrl(url)
  } catch (error) {
    env.problem(`${QUEUE_REDIS_SETTING}: the URL of ${queue} ${(error as Error).message}`)
  }
}
