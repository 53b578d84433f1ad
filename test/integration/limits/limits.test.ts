import { setTimeout as sleep } from 'node:timers/promises'

import type { Redis } from 'ioredis'
import { afterEach, beforeEach, describe, expect, inject } from 'vitest'

import { addUsage, dayOf } from '#api/limits/limit-store.ts'
import { createLimiter } from '#api/limits/limiter.ts'
import { checkQuota } from '#api/limits/quotas.ts'
import { createIdempotencyGate } from '#api/v1/idempotency.ts'
import { openIdempotencyStore } from '#api/v1/idempotency-store.ts'
import type { Gate } from '#api/v1/plugin.ts'
import { accountOf } from '#api/v1/request-context.ts'
import { systemClock } from '#shared/clock.ts'
import type { LimitsConfig } from '#shared/config/limits.ts'
import type { Database } from '#shared/db/client.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { stayInOne } from '#test/support/boundaries.ts'
import { NO_LIMITS, NOTHING_USED } from '#test/support/limits.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { it } from '#test/support/services.ts'
import { openV1App } from '#test/support/v1-app.ts'
import { openSurface } from '#test/unit/api/inference/surface.ts'

const closers: (() => unknown)[] = []
const log = createLogger({ level: 'silent' })

beforeEach(() => stayInOne('minute'))

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

async function openLimited(
  { database, redis }: { database: Database; redis: Redis },
  limits: Partial<LimitsConfig>,
  options: { keyPrefix: string; tokensUsed?: number; usage?: number; gates?: readonly Gate[] },
) {
  const held: (() => void)[] = []
  const surface = await openV1App(
    database,
    [
      async (app) => {
        app.get('/things', { config: { scope: 'any' } }, async () => ({ ok: true }))
        app.post('/completions', { config: { scope: 'completions' } }, async (request) => {
          if ((request.body as { hold?: boolean }).hold === true)
            await new Promise<void>((resolve) => held.push(resolve))
          accountOf(request).noteUse({ tokens: options.usage ?? 0, cost: 0 })
          return { ok: true }
        })
      },
    ],
    {
      gates: [
        ...(options.gates ?? []),
        createLimiter({
          redis,
          clock: systemClock,
          log,
          prefix: options.keyPrefix,
          limits: { ...NO_LIMITS, ...limits },
          ...NOTHING_USED,
          usedSince: async () => ({ requests: 0, tokens: options.tokensUsed ?? 0, cost: 0 }),
        }),
      ],
    },
  )
  closers.push(() => surface.app.close())
  return {
    ...surface,
    release: () => {
      for (const end of held.splice(0)) end()
    },
  }
}

async function connect(url: string): Promise<Redis> {
  const redis = await openRedis(url, 'producer', log)
  closers.push(() => redis.disconnect())
  return redis
}

interface Refused {
  error: { type: string; code: string; message: string }
}

describe('requests per minute', () => {
  it.for([1, 2])(
    'counts down from %i, then refuses with a time to try again',
    async (limit, { database, redisUrl, keyPrefix }) => {
      const redis = await connect(redisUrl)
      const limits = { requestsPerMinute: { key: limit, organization: 0 } }
      const { call, newKey } = await openLimited({ database, redis }, limits, { keyPrefix })
      for (let left = limit - 1; left >= 0; left -= 1) {
        const { status, headers } = await call('/things')
        expect(status).toBe(200)
        expect(headers.get('x-ratelimit-limit-requests')).toBe(String(limit))
        expect(headers.get('x-ratelimit-remaining-requests')).toBe(String(left))
        expect(headers.get('x-ratelimit-reset-requests')).toMatch(/^(1m)?[\d.]+s$/)
        expect(headers.get('x-ratelimit-limit-tokens')).toBeNull()
      }
      const refused = await call('/things')
      expect(refused.status).toBe(429)
      const seconds = Number(refused.headers.get('retry-after'))
      expect(seconds).toBeGreaterThanOrEqual(1)
      expect(seconds).toBeLessThanOrEqual(60)
      expect(refused.headers.get('x-ratelimit-remaining-requests')).toBe('0')
      const { error } = (await refused.json()) as Refused
      expect(error).toMatchObject({ type: 'requests', code: 'rate_limit_exceeded', param: null })
      expect(error.message).toContain(`RPM): Limit ${limit}, Used ${limit}, Requested 1`)
      // Another key of the same organization has a window of its own.
      expect((await call('/things', {}, await newKey('org-one'))).status).toBe(200)
    },
  )

  it("are stated in Anthropic's headers as well on its routes", async ({ redisUrl, keyPrefix }) => {
    const limit = createLimiter({
      redis: await connect(redisUrl),
      clock: systemClock,
      log,
      prefix: keyPrefix,
      limits: { ...NO_LIMITS, requestsPerMinute: { key: 1, organization: 0 } },
      ...NOTHING_USED,
    })
    const { app, post } = await openSurface(undefined, { gates: [limit] })
    closers.push(() => app.close())
    const message = { role: 'user', content: 'a' }
    const body = { model: 'tiny-chat', max_tokens: 5, messages: [message] }
    const startedAtMs = Date.now()
    const answers = [await post('/v1/messages', body), await post('/v1/messages', body)]
    expect(answers.map(({ statusCode }) => statusCode)).toEqual([200, 429])
    for (const { headers } of answers) {
      expect(headers['anthropic-ratelimit-requests-limit']).toBe('1')
      expect(headers['anthropic-ratelimit-requests-remaining']).toBe('0')
      const resetsAtMs = Date.parse(String(headers['anthropic-ratelimit-requests-reset']))
      expect(resetsAtMs).toBeGreaterThan(startedAtMs)
      expect(resetsAtMs).toBeLessThanOrEqual(startedAtMs + 130_000)
      expect(headers['x-ratelimit-limit-requests']).toBe('1')
      expect(headers).not.toHaveProperty('anthropic-ratelimit-tokens-limit')
    }
    const other = await post('/v1/chat/completions', body)
    expect(other.headers).toHaveProperty('x-ratelimit-limit-requests')
    expect(other.headers).not.toHaveProperty('anthropic-ratelimit-requests-limit')
  })

  it('holds for all keys of an organization together, and for no other', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const redis = await connect(redisUrl)
    const limits = { requestsPerMinute: { key: 0, organization: 3 } }
    const { call, newKey } = await openLimited({ database, redis }, limits, { keyPrefix })
    const other = await newKey('org-one')
    const statuses = await Promise.all(
      Array.from({ length: 10 }, (_, i) => call('/things', {}, i % 2 === 0 ? undefined : other)),
    )
    expect(statuses.filter(({ status }) => status === 200)).toHaveLength(3)
    expect((await call('/things', {}, await newKey('org-two'))).status).toBe(200)
  })

  it('serves requests while Redis is away', async ({ database, redisUrl, keyPrefix }) => {
    const redis = await connect(redisUrl)
    const limits = { requestsPerMinute: { key: 1, organization: 1 } }
    const { call } = await openLimited({ database, redis }, limits, { keyPrefix })
    redis.disconnect()
    for (let i = 0; i < 3; i += 1) expect((await call('/things')).status).toBe(200)
  })
})

describe('tokens per minute', () => {
  it('are charged by estimate and corrected by the actual usage', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const redis = await connect(redisUrl)
    const limits = { tokensPerMinute: { key: 0, organization: 1000 } }
    const options = { keyPrefix, usage: 30 }
    const { post, call } = await openLimited({ database, redis }, limits, options)
    const body = { prompt: 'x'.repeat(366), max_tokens: 700 }
    const first = await post('/completions', body)
    const length = JSON.stringify(body).length
    expect(first.headers.get('x-ratelimit-remaining-tokens')).toBe(
      String(300 - Math.ceil(length / 4)),
    )
    await expect
      .poll(async () => (await call('/things')).headers.get('x-ratelimit-remaining-tokens'))
      .toBe('970')
    const large = await post('/completions', { prompt: 'x', max_tokens: 990 })
    expect(large.status).toBe(429)
    expect(((await large.json()) as Refused).error.type).toBe('tokens')
    const impossible = await post('/completions', { prompt: 'x', max_tokens: 1001 })
    expect(impossible.headers.get('x-should-retry')).toBe('false')
    expect(((await impossible.json()) as Refused).error.message).toMatch(/^Request too large/)
  })

  it('are also charged for a body of unannounced length', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const redis = await connect(redisUrl)
    const limits = { tokensPerMinute: { key: 500, organization: 0 } }
    const { call } = await openLimited({ database, redis }, limits, { keyPrefix })
    const init: RequestInit & { readonly duplex: 'half' } = {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: new Blob([JSON.stringify({ prompt: 'x'.repeat(4000) })]).stream(),
      duplex: 'half',
    }
    expect((await call('/completions', init)).status).toBe(429)
  })

  it('end with the quota of the month, which no retry helps', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const redis = await connect(redisUrl)
    const limits = { monthlyTokens: 100 }
    const options = { keyPrefix, usage: 60, tokensUsed: 30 }
    const { post, call } = await openLimited({ database, redis }, limits, options)
    expect((await post('/completions', { prompt: 'x' })).status).toBe(200)
    expect((await post('/completions', { prompt: 'x' })).status).toBe(200)
    await expect.poll(async () => (await post('/completions', { prompt: 'x' })).status).toBe(429)
    const refused = await post('/completions', { prompt: 'x' })
    expect(refused.headers.get('x-should-retry')).toBe('false')
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(((await refused.json()) as Refused).error).toMatchObject({
      type: 'insufficient_quota',
      code: 'insufficient_quota',
    })
    expect((await call('/things')).status).toBe(200)
  })
})

describe('the quota of the month', () => {
  it.each([
    ['is used up by the usage record', 500, undefined],
    ['is used up since', 0, 500],
  ])('ends work that is no request where it %s', async (_name, recorded, added) => {
    const redis = await connect(inject('redisUrl'))
    const services = {
      redis,
      clock: systemClock,
      log,
      prefix: freshPrefix(),
      limits: { ...NO_LIMITS, monthlyTokens: 500 },
      ...NOTHING_USED,
      usedSince: async () => ({ requests: 0, tokens: recorded, cost: 0 }),
    }
    const subject = { organizationId: 'org-a', credentialId: 'x', day: dayOf(Date.now()) }
    if (added !== undefined) {
      await checkQuota(services, 'org-a')
      await addUsage(services, subject, { requests: 1, tokens: added, cost: 0 })
    }
    await expect(checkQuota(services, 'org-a')).rejects.toMatchObject({
      code: 'insufficient_quota',
    })
    await expect(checkQuota({ ...services, limits: NO_LIMITS }, 'org-a')).resolves.toBeUndefined()
  })
})

describe('jobs at the same time', () => {
  it('are limited, and released when the answer has ended', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const redis = await connect(redisUrl)
    const options = { keyPrefix }
    const { post, release } = await openLimited({ database, redis }, { concurrentJobs: 1 }, options)
    const held = post('/completions', { hold: true })
    await expect.poll(() => redis.zcard(`${keyPrefix}:limits:jobs:org-one`)).toBe(1)
    expect((await post('/completions', {})).status).toBe(429)
    release()
    expect((await held).status).toBe(200)
    await expect.poll(async () => (await post('/completions', {})).status).toBe(200)
  })

  it('end with their process: Retry-After says when its place is free', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const redis = await connect(redisUrl)
    const { post } = await openLimited({ database, redis }, { concurrentJobs: 1 }, { keyPrefix })
    const endIn = async (left: number): Promise<void> => {
      const [seconds = 0] = (await redis.time()).map(Number)
      const endMs = (seconds + left) * 1000
      await redis.zadd(`${keyPrefix}:limits:jobs:org-one`, endMs, 'of-a-killed-process')
    }
    // Asked again where the machine took seconds for it.
    const refusal = async (): Promise<string> => {
      await endIn(4)
      const { status, headers } = await post('/completions', {})
      return `${status} ${headers.get('retry-after')}`
    }
    await expect.poll(refusal).toBeOneOf(['429 3', '429 4'])
    await endIn(0)
    await expect.poll(async () => (await post('/completions', {})).status).toBe(200)
  })

  it.for([
    ['number', { concurrentJobs: 2 }],
    ['reserved tokens', { monthlyTokens: 1e6 }],
  ] as const)(
    'stay held by jobs that outlive their first leases: %s',
    async ([, limits], { database, redisUrl, keyPrefix }) => {
      const redis = await connect(redisUrl)
      const options = { keyPrefix }
      const { post, release } = await openLimited({ database, redis }, limits, options)
      const held = [post('/completions', { hold: true }), post('/completions', { hold: true })]
      const key = `${keyPrefix}:limits:jobs:org-one`
      await expect.poll(() => redis.zcard(key)).toBe(2)
      const ends = async () => {
        const rows = await redis.zrange(key, '0', '-1', 'WITHSCORES')
        return rows.filter((_, at) => at % 2 === 1).map(Number)
      }
      const last = Math.max(...(await ends()))
      const renewed = async () => (await ends()).every((end) => end > last)
      await expect.poll(renewed).toBe(true)
      const retryAfter = (await post('/completions', {})).headers.get('retry-after')
      expect(retryAfter).toBe('concurrentJobs' in limits ? '1' : null)
      release()
      for (const { status } of await Promise.all(held)) expect(status).toBe(200)
    },
  )

  it('are held by a job whose client has left under an Idempotency-Key', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const redis = await connect(redisUrl)
    const idempotency = openIdempotencyStore(redis, keyPrefix, 1e6)
    const gate = createIdempotencyGate({
      idempotency,
      deleteReplies: async () => {},
      clock: systemClock,
      log,
      deadlineSeconds: 10,
    })
    const limits = { concurrentJobs: 1 }
    const options = { keyPrefix, gates: [gate] }
    const { call, post, release } = await openLimited({ database, redis }, limits, options)
    const headers = { 'content-type': 'application/json', 'idempotency-key': 'a' }
    const body = JSON.stringify({ hold: true })
    const leaving = new AbortController()
    const asked = { method: 'POST', headers, body }
    const left = call('/completions', { ...asked, signal: leaving.signal }).catch(() => 'left')
    const places = () => redis.zcard(`${keyPrefix}:limits:jobs:org-one`)
    await expect.poll(places).toBe(1)
    leaving.abort()
    expect(await left).toBe('left')
    expect((await post('/completions', {})).status).toBe(429)
    release()
    await expect.poll(places).toBe(0)
    const again = await call('/completions', asked)
    expect([again.status, again.headers.get('idempotent-replayed')]).toEqual([200, 'true'])
  })

  it.for([[{}], [{ 'idempotency-key': 'b' }]])(
    'are free again when the client has left before it was let in: %j',
    async ([header], { database, redisUrl, keyPrefix }) => {
      const redis = await connect(redisUrl)
      const idempotency = openIdempotencyStore(redis, keyPrefix, 1e6)
      const deleteReplies = async () => {}
      const services = { idempotency, deleteReplies, clock: systemClock, log, deadlineSeconds: 10 }
      const leaving = new AbortController()
      const waitForLeave: Gate = async (_request, reply) => {
        leaving.abort()
        while (!reply.raw.destroyed) await sleep(5)
        return undefined
      }
      const gates = [waitForLeave, createIdempotencyGate(services)]
      const options = { keyPrefix, gates }
      const { call } = await openLimited({ database, redis }, { concurrentJobs: 9 }, options)
      const headers = { 'content-type': 'application/json', ...header }
      const asked = { method: 'POST', headers, body: '{}', signal: leaving.signal }
      await expect(call('/completions', asked)).rejects.toThrow()
      const organization = `${keyPrefix}:limits:organization:org-one`
      await expect.poll(() => redis.hget(organization, 'rc')).toBe('1')
      await expect.poll(() => redis.zcard(`${keyPrefix}:limits:jobs:org-one`)).toBe(0)
      await expect.poll(() => redis.keys(`${keyPrefix}:idempotency:*:lease`)).toEqual([])
    },
  )
})
