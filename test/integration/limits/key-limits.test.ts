import { describe, expect, onTestFinished } from 'vitest'

import { createLimiter } from '#api/limits/limiter.ts'
import { systemClock } from '#shared/clock.ts'
import type { LimitsConfig } from '#shared/config/limits.ts'
import { type KeyLimits, openApiKeys } from '#shared/db/api-keys.ts'
import type { Database } from '#shared/db/client.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { NO_LIMITS, NOTHING_USED } from '#test/support/limits.ts'
import { it } from '#test/support/services.ts'
import { openV1App } from '#test/support/v1-app.ts'

const log = createLogger({ level: 'silent' })

interface Services {
  readonly database: Database
  readonly redisUrl: string
  readonly keyPrefix: string
}

/** A server with these limits, and keys with limits of their own. */
async function openLimited(
  { database, redisUrl, keyPrefix }: Services,
  limits: Partial<LimitsConfig> = {},
) {
  const redis = await openRedis(redisUrl, 'producer', log)
  onTestFinished(() => redis.disconnect())
  const releases: (() => void)[] = []
  const surface = await openV1App(
    database,
    [
      async (app) => {
        app.get('/things', { config: { scope: 'any' } }, async () => ({ ok: true }))
        app.post('/completions', { config: { scope: 'completions' } }, async (request) => {
          if ((request.body as { hold?: boolean }).hold === true)
            await new Promise<void>((resolve) => releases.push(resolve))
          return { ok: true }
        })
      },
    ],
    {
      gates: [
        createLimiter({
          redis,
          clock: systemClock,
          log,
          prefix: keyPrefix,
          limits: { ...NO_LIMITS, ...limits },
          ...NOTHING_USED,
        }),
      ],
    },
  )
  onTestFinished(() => surface.app.close())
  const keys = openApiKeys(database.db, organizationTables(''))
  const rights = { name: 'x', scopes: null, modelIds: null, expiresAt: null }
  const newKey = (own: Partial<KeyLimits>) =>
    keys.create({ organizationId: 'org-one', ...rights, ...own })
  return { ...surface, keys, newKey, releases }
}

describe('a key with limits of its own', () => {
  it('is refused by them in the usual form, and other keys are not', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const services = { database, redisUrl, keyPrefix }
    const { call, newKey } = await openLimited(services)
    const { secret } = await newKey({ requestsPerMinute: 2 })
    const first = await call('/things', {}, secret)
    expect(first.headers.get('x-ratelimit-limit-requests')).toBe('2')
    expect((await call('/things', {}, secret)).status).toBe(200)
    const refused = await call('/things', {}, secret)
    expect([refused.status, await refused.json()]).toMatchObject([
      429,
      { error: { type: 'requests', code: 'rate_limit_exceeded' } },
    ])
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
    const unlimited = await call('/things')
    expect([unlimited.status, unlimited.headers.get('x-ratelimit-limit-requests')]).toEqual([
      200,
      null,
    ])
  })

  it('has the lower of them and those of the server', async ({ database, redisUrl, keyPrefix }) => {
    const services = { database, redisUrl, keyPrefix }
    const { call, newKey } = await openLimited(services, {
      requestsPerMinute: { key: 5, organization: 0 },
    })
    for (const [own, limit] of [
      [3, '3'],
      [7, '5'],
      [null, '5'],
    ] as const) {
      const { secret } = await newKey({ requestsPerMinute: own })
      const answer = await call('/things', {}, secret)
      expect(answer.headers.get('x-ratelimit-limit-requests')).toBe(limit)
    }
  })

  it('is charged for tokens', async ({ database, redisUrl, keyPrefix }) => {
    const services = { database, redisUrl, keyPrefix }
    const { post, newKey } = await openLimited(services)
    const { secret } = await newKey({ tokensPerMinute: 100 })
    const refused = await post('/completions', { prompt: 'x', max_tokens: 200 }, secret)
    expect([refused.status, await refused.json()]).toMatchObject([
      429,
      { error: { type: 'tokens' } },
    ])
    expect((await post('/completions', { prompt: 'x', max_tokens: 200 })).status).toBe(200)
  })

  it('runs as many requests at the same time as it may', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const services = { database, redisUrl, keyPrefix }
    const { post, newKey, releases } = await openLimited(services, { concurrentJobs: 10 })
    const { secret } = await newKey({ concurrentJobs: 1 })
    const held = post('/completions', { hold: true }, secret)
    await expect.poll(() => releases.length).toBe(1)
    expect((await post('/completions', {}, secret)).status).toBe(429)
    expect((await post('/completions', {})).status).toBe(200)
    releases[0]?.()
    expect((await held).status).toBe(200)
    await expect.poll(async () => (await post('/completions', {}, secret)).status).toBe(200)
  })

  it('has changed ones within a second', async ({ database, redisUrl, keyPrefix }) => {
    const services = { database, redisUrl, keyPrefix }
    const { call, keys, newKey } = await openLimited(services)
    const { key, secret } = await newKey({ requestsPerMinute: 1 })
    const statusOf = async () => (await call('/things', {}, secret)).status
    expect([await statusOf(), await statusOf()]).toEqual([200, 429])
    const changed = await keys.limit('org-one', key.id, { requestsPerMinute: null })
    expect(changed).toMatchObject({ requestsPerMinute: null, concurrentJobs: null })
    await expect.poll(statusOf).toBe(200)
    expect(await keys.limit('org-two', key.id, { requestsPerMinute: 1 })).toBeUndefined()
  })
})
