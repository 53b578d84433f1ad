import type { Redis } from 'ioredis'

import { QUEUE_REDIS_SETTING, type QueueRedis } from '#shared/config/queue-redis.ts'
import type { Dependency } from '#shared/dependencies.ts'

import { probeRedis } from './redis-client.ts'

/** The first words of the errors of a server that refuses writes. */
const REFUSED_WRITE = /^(OOM|READONLY|MISCONF|NOREPLICAS|NOPERM)/

/** The Redis of `REDIS_URL`, or a further one with its queues. */
type CheckedRedis = Omit<QueueRedis, 'queues'> & Partial<QueueRedis>

/**
 * The checks of a Redis that both tiers perform. Without that of `REDIS_URL` nothing is served,
 * without a further one the queues that it has.
 */
export function redisChecks(
  redis: Redis,
  { redisUrl, redisPrefix, queues: [queue] = [] }: CheckedRedis,
): readonly Dependency[] {
  const setting = queue === undefined ? 'REDIS_URL' : QUEUE_REDIS_SETTING
  const name = queue === undefined ? 'redis' : `redis_${queue}`
  const reachRemedy = `check ${setting} and that Redis runs`
  return [
    {
      name,
      isRequired: queue === undefined,
      remedy: reachRemedy,
      check: () => requireRedis(redis, redisUrl),
    },
    {
      name: `${name}_writes`,
      isRequired: false,
      remedy: 'raise maxmemory of Redis, and check that it is not a replica: no job can be queued',
      remedyFor: ({ message }) => (REFUSED_WRITE.test(message) ? undefined : reachRemedy),
      async check() {
        await requireRedis(redis, redisUrl)
        await redis.set(`${redisPrefix}:health`, '1', 'PX', 1000)
      },
    },
  ]
}

// Some connections queue their commands while Redis is unreachable, and the client does not report
// why.
async function requireRedis(redis: Redis, url: string): Promise<void> {
  if (redis.status === 'ready') await redis.ping()
  else await probeRedis(url)
}
