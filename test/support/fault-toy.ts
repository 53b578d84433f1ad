import { Redis } from 'ioredis'

import { queueKeys } from '#shared/queue/keys.ts'

import { post, readCompletion, type Seen } from './fault-client.ts'
import { type FaultTiers, openFaultTiers, type TierProcess, toyCatalogue } from './fault-tiers.ts'
import { it as base } from './services.ts'

/** A request to the toy model. */
export const toyBody = (
  prompt: string,
  tokens: number,
  stream = true,
): Record<string, unknown> => ({ model: 'toy', prompt, max_tokens: tokens, stream })

/** Real API processes with toy workers behind them. */
export interface ToyTiers extends FaultTiers {
  readonly api: TierProcess
  readonly redis: Redis
  /** Jobs that a worker holds, as Redis says at this moment. */
  numHeld(): Promise<number>
  /** Jobs that wait in the queue. */
  numWaiting(): Promise<number>
  /** Runs that were begun since the start. */
  numRuns(): Promise<number>
  read(
    prompt: string,
    tokens: number,
    options?: Parameters<typeof readCompletion>[2],
  ): Promise<Seen>
  post(body: unknown, options?: Parameters<typeof post>[3]): Promise<Response>
}

/** `it` with a function that opens an installation, which is stopped when the test ends. */
export const it = base.extend<{
  open: (env?: Readonly<Record<string, string>>) => Promise<ToyTiers>
}>({
  open: async ({ databaseUrl, redisUrl, keyPrefix, folder }, use) => {
    const opened: ToyTiers[] = []
    await use(async (env = {}) => {
      const tiers = await openToyTiers({ databaseUrl, redisUrl, keyPrefix, folder, env })
      opened.push(tiers)
      return tiers
    })
    for (const tiers of opened) await tiers.stop()
  },
})

/** Starts one API process; workers are started by the test. */
export async function openToyTiers(options: {
  readonly databaseUrl: string
  readonly redisUrl: string
  readonly keyPrefix: string
  readonly folder: string
  readonly env?: Readonly<Record<string, string>>
}): Promise<ToyTiers> {
  const env = { ...(await toyCatalogue(options.folder)), ...options.env }
  const tiers = openFaultTiers({ ...options, env })
  const keys = queueKeys(options.keyPrefix)
  const redis = new Redis(options.redisUrl)
  redis.on('error', () => {})
  const api = await tiers.startApi().catch(async (error: unknown) => {
    await tiers.stop()
    redis.disconnect()
    throw error
  })
  return {
    ...tiers,
    api,
    redis,
    numHeld: () => redis.llen(keys.bull('completion', 'toy', 'active')),
    numWaiting: () => redis.zcard(keys.bull('completion', 'toy', 'prioritized')),
    numRuns: async () => (await redis.keys(keys.claim('*'))).length,
    read: (prompt, tokens, rest) => readCompletion(api.url, toyBody(prompt, tokens), rest),
    post: (body, rest) => post(api.url, '/v1/completions', body, rest),
    async stop() {
      await tiers.stop()
      redis.disconnect()
    },
  }
}

/** How long until something holds, looked at every few milliseconds. Throws after the limit. */
export async function timeUntil(
  holds: () => Promise<boolean> | boolean,
  limitMs = 60_000,
): Promise<number> {
  const from = performance.now()
  while (!(await holds())) {
    if (performance.now() - from > limitMs) throw new Error('it never came to hold')
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  return performance.now() - from
}
