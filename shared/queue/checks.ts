import type { Redis } from 'ioredis'

import type { InfraConfig } from '#shared/config/infra.ts'
import type { Dependency } from '#shared/dependencies.ts'

import { probeRedis } from './redis-client.ts'

const REACH_REMEDY = 'check REDIS_URL and that Redis runs'
/** The first words of the errors of a server that refuses writes. */
const REFUSED_WRITE = /^(OOM|READONLY|MISCONF|NOREPLICAS|NOPERM)/

/** The checks of Redis that both tiers perform. */
export function redisChecks(
  redis: Redis,
  { redisUrl, redisPrefix }: Pick<InfraConfig, 'redisUrl' | 'redisPrefix'>,
): readonly Dependency[] {
  return [
    {
      name: 'redis',
      isRequired: true,
      remedy: REACH_REMEDY,
      check: () => requireRedis(redis, redisUrl),
    },
    {
      name: 'redis_writes',
      isRequired: false,
      remedy: 'raise maxmemory of Redis, and check that it is not a replica: no job can be queued',
      remedyFor: ({ message }) => (REFUSED_WRITE.test(message) ? undefined : REACH_REMEDY),
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
