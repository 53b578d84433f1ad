import type { Clock } from '#shared/clock.ts'

/** Keeps the secrets of OAuth 1.0a request tokens while visitors are at the provider. */
export interface RequestSecrets {
  put(key: string, secret: string): Promise<void>
  /** Returns the secret once. */
  take(key: string): Promise<string | undefined>
}

const TTL_MS = 300_000 // as long as the state of the flow lives
const SECRETS_MAX = 10_000

/** Secrets in Redis: any API process that serves the callback finds them. */
export function createRedisRequestSecrets(
  redis: {
    set(key: string, value: string, unit: 'PX', ttlMs: number): Promise<unknown>
    getdel(key: string): Promise<string | null>
  },
  keyPrefix: string,
): RequestSecrets {
  const redisKey = (key: string) => `${keyPrefix}auth:oauth1:${key}`
  return {
    async put(key, secret) {
      await redis.set(redisKey(key), secret, 'PX', TTL_MS)
    },
    take: async (key) => (await redis.getdel(redisKey(key))) ?? undefined,
  }
}

/** Secrets in this process, for a single API process; the oldest are dropped. */
export function createMemoryRequestSecrets(clock: Clock): RequestSecrets {
  const kept = new Map<string, { readonly secret: string; readonly untilMs: number }>()
  return {
    async put(key, secret) {
      const oldest = kept.keys().next()
      if (kept.size >= SECRETS_MAX && !oldest.done) kept.delete(oldest.value)
      kept.set(key, { secret, untilMs: clock.now() + TTL_MS })
    },
    async take(key) {
      const found = kept.get(key)
      kept.delete(key)
      return found !== undefined && clock.now() < found.untilMs ? found.secret : undefined
    },
  }
}
