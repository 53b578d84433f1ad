import type { Clock } from '#shared/clock.ts'

/** Keeps the secrets of OAuth 1.0a request tokens while visitors are at the provider. */
export interface RequestSecrets {
  put(token: string, secret: string): Promise<void>
  /** The secret of the token, once. */
  take(token: string): Promise<string | undefined>
}

const TTL_MS = 300_000 // as long as the state of the flow lives
const SECRETS_MAX = 10_000

/** Secrets in Redis: whichever API process serves the callback finds them. */
export function createRedisRequestSecrets(
  redis: {
    set(key: string, value: string, unit: 'PX', ttlMs: number): Promise<unknown>
    getdel(key: string): Promise<string | null>
  },
  keyPrefix: string,
): RequestSecrets {
  const keyOf = (token: string) => `${keyPrefix}auth:oauth1:${token}`
  return {
    async put(token, secret) {
      await redis.set(keyOf(token), secret, 'PX', TTL_MS)
    },
    take: async (token) => (await redis.getdel(keyOf(token))) ?? undefined,
  }
}

/** Secrets in this process, for a single API process; the oldest make room. */
export function createMemoryRequestSecrets(clock: Clock): RequestSecrets {
  const kept = new Map<string, { readonly secret: string; readonly untilMs: number }>()
  return {
    async put(token, secret) {
      const oldest = kept.keys().next()
      if (kept.size >= SECRETS_MAX && !oldest.done) kept.delete(oldest.value)
      kept.set(token, { secret, untilMs: clock.now() + TTL_MS })
    },
    async take(token) {
      const found = kept.get(token)
      kept.delete(token)
      return found !== undefined && clock.now() < found.untilMs ? found.secret : undefined
    },
  }
}
