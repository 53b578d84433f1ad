import { beforeEach, describe, expect, onTestFinished, vi } from 'vitest'

import { COUNTERS, fillCounter, readCounter } from '#api/limits/limit-store.ts'
import { createLimiter } from '#api/limits/limiter.ts'
import { openQuotas } from '#api/server/quotas.ts'
import { openUsageRecord } from '#api/usage/usage-store.ts'
import { accountOf } from '#api/v1/request-context.ts'
import { parseCatalogue } from '#shared/catalogue.ts'
import { systemClock } from '#shared/clock.ts'
import type { LimitsConfig } from '#shared/config/limits.ts'
import { type KeyLimits, openApiKeys } from '#shared/db/api-keys.ts'
import type { Database } from '#shared/db/client.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import type { Quotas } from '#shared/db/schema/quotas.ts'
import { type UsageRow, usageTables } from '#shared/db/schema/usage.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { stayInOne } from '#test/support/boundaries.ts'
import { NO_LIMITS } from '#test/support/limits.ts'
import { it } from '#test/support/services.ts'
import { openV1App } from '#test/support/v1-app.ts'

const log = createLogger({ level: 'silent' })
const CATALOGUE = parseCatalogue({
  models: [{ id: 'priced', kind: 'completion', source: 'x', price: { input: 1, output: 10 } }],
})

interface Services {
  readonly database: Database
  readonly redisUrl: string
  readonly keyPrefix: string
}

beforeEach(() => stayInOne('day'))

/** An API process whose requests use `use` each. */
async function openProcess(
  { database, redisUrl, keyPrefix }: Services,
  { use = { tokens: 0, cost: 0 }, limits = {} as Partial<LimitsConfig> } = {},
) {
  const redis = await openRedis(redisUrl, 'producer', log)
  onTestFinished(() => redis.disconnect())
  const usage = openUsageRecord(database.db, usageTables(''))
  const quotas = openQuotas({
    redis,
    log,
    database,
    usage,
    clock: systemClock,
    catalogue: CATALOGUE,
    organizationTables: organizationTables(''),
    config: {
      infra: { redisPrefix: keyPrefix } as never,
      limits: { ...NO_LIMITS, ...limits },
    },
  })
  const limiter = createLimiter({
    ...quotas,
    log,
    boundsOf: (name) => ({ price: CATALOGUE.find(name)?.price, contextLength: 1000 }),
  })
  const surface = await openV1App(
    database,
    [
      async (app) => {
        app.get('/things', { config: { scope: 'any' } }, async () => ({ ok: true }))
        app.post('/completions', { config: { scope: 'completions' } }, async (request) => {
          accountOf(request).noteUse(use)
          return { ok: true }
        })
        // Ends when its client leaves.
        app.post('/chat', { config: { scope: 'chat' } }, () => new Promise<never>(() => undefined))
        for (const path of ['/batches', '/batches/:id/cancel']) {
          app.post(path, { config: { scope: 'batches' } }, async () => ({ ok: true }))
        }
      },
    ],
    { gates: [limiter] },
  )
  onTestFinished(() => surface.app.close())
  const keys = openApiKeys(database.db, organizationTables(''))
  const rights = { name: 'x', scopes: null, modelIds: null, expiresAt: null }
  const newKey = async (own: Partial<KeyLimits>) =>
    keys.create({ organizationId: 'org-one', ...rights, ...own })
  const limitOrganization = (own: Partial<Quotas>) =>
    database.db.update(organizationTables('').organizations).set(own)
  const statusOf = async (secret?: string) =>
    (await surface.post('/completions', { model: 'priced', prompt: 'x' }, secret)).status
  /** Opens a chat; the status of one that is refused, or 200 once it runs. */
  const openChat = async (secret: string, fields: object = {}) => {
    const chats = () => redis.zcard(`${keyPrefix}:limits:jobs:org-one`)
    const before = await chats()
    const left = new AbortController()
    onTestFinished(() => left.abort())
    const body = { model: 'priced', messages: [], ...fields }
    const refused = surface
      .call(
        '/chat',
        {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(body),
          signal: left.signal,
        },
        secret,
      )
      .then(({ status }) => status)
    refused.catch(() => {
      // The test has ended.
    })
    const runs = expect.poll(chats).toBe(before + 1)
    return Promise.race([refused, runs.then(() => 200)])
  }
  return { ...surface, newKey, limitOrganization, statusOf, openChat, limiter, usage, redis }
}

/** The row of a request of today. */
function rowOf(row: Partial<UsageRow>): UsageRow {
  return {
    jobId: `job-${Math.random()}`,
    organizationId: 'org-one',
    apiKeyId: null,
    userId: null,
    requestId: null,
    kind: 'completion',
    modelId: 'priced',
    outcome: 'finished',
    promptTokens: 0,
    completionTokens: 0,
    cachedTokens: 0,
    createdAt: new Date(),
    ...row,
  }
}

describe('a quota of a key', () => {
  it('refuses requests that run jobs until it resets, and says when', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const { call, post, newKey, statusOf } = await openProcess({ database, redisUrl, keyPrefix })
    const { secret } = await newKey({ requestsPerDay: 2 })
    expect([await statusOf(secret), await statusOf(secret)]).toEqual([200, 200])
    const refused = await post('/completions', { prompt: 'x' }, secret)
    const { error } = (await refused.json()) as { error: { message: string } }
    const midnight = new Date(Math.ceil(Date.now() / 86_400_000) * 86_400_000).toISOString()
    expect([refused.status, error]).toEqual([
      429,
      {
        type: 'insufficient_quota',
        code: 'insufficient_quota',
        param: null,
        message: `You exceeded your current quota of this API key on requests per day: Limit 2. It resets at ${midnight}.`,
      },
    ])
    expect(refused.headers.get('x-should-retry')).toBe('false')
    const resetsAtMs = Date.now() + Number(refused.headers.get('retry-after')) * 1000
    expect(Math.abs(resetsAtMs - Date.parse(midnight))).toBeLessThan(30_000)
    // Requests that run no job, and other keys, are not counted.
    expect((await call('/things', {}, secret)).status).toBe(200)
    expect(await statusOf()).toBe(200)
  })

  it('of one request admits one request', async ({ database, redisUrl, keyPrefix }) => {
    const { newKey, statusOf } = await openProcess({ database, redisUrl, keyPrefix })
    const { secret } = await newKey({ requestsPerDay: 1 })
    expect([await statusOf(secret), await statusOf(secret)]).toEqual([200, 429])
  })

  it('has a counter of each day and one of the month', async ({ redisUrl, keyPrefix }) => {
    const redis = await openRedis(redisUrl, 'producer', log)
    onTestFinished(() => redis.disconnect())
    const store = { redis, prefix: keyPrefix }
    const on = (day: string) => ({ organizationId: 'org', credentialId: 'key', day })
    const [first, second, next] = [on('2026-07-30'), on('2026-07-31'), on('2026-08-01')]
    const used = { requests: 0, tokens: 7, cost: 0.5 }
    for (const counter of COUNTERS) await fillCounter(store, first, { counter, used })
    for (const counter of COUNTERS) {
      const [sameMonth, otherMonth] = await Promise.all([
        readCounter(store, second, counter),
        readCounter(store, next, counter),
      ])
      expect(sameMonth).toEqual(counter.period === 'month' ? used : undefined)
      expect(otherMonth).toBeUndefined()
    }
  })

  it('holds to the one for all processes together', async ({ database, redisUrl, keyPrefix }) => {
    const services = { database, redisUrl, keyPrefix }
    const processes = [await openProcess(services), await openProcess(services)]
    const created = await processes[0]?.newKey({ requestsPerMonth: 5 })
    const statuses = await Promise.all(
      Array.from({ length: 20 }, (_, at) => processes[at % 2]?.statusOf(created?.secret)),
    )
    expect(statuses.filter((status) => status === 200)).toHaveLength(5)
    expect(statuses.filter((status) => status === 429)).toHaveLength(15)
  })

  // Each request is estimated at 20 tokens, 16 of which are the default of `max_tokens`.
  const tokens = { quotas: { tokensPerDay: 40 }, use: { tokens: 20, cost: 0 }, atMost: 2 }
  // The cost of 16 tokens of output and 8 of input; the third request may run alone.
  const cost = { quotas: { costPerDay: 0.0004 }, use: { tokens: 24, cost: 0.000168 }, atMost: 3 }
  it.for([
    ['tokens of a key', tokens, true],
    ['tokens of an organization', tokens, false],
    ['cost of a key', cost, true],
    ['cost of an organization', cost, false],
  ] as const)(
    'on %s is not exceeded by requests at the same time',
    async ([, { quotas, use, atMost }, isOfKey], { database, redisUrl, keyPrefix }) => {
      const services = { database, redisUrl, keyPrefix }
      const { newKey, statusOf, limitOrganization } = await openProcess(services, { use })
      const { secret } = await newKey(isOfKey ? quotas : {})
      if (!isOfKey) await limitOrganization(quotas)
      const statuses = await Promise.all(Array.from({ length: 20 }, () => statusOf(secret)))
      expect(new Set(statuses)).toEqual(new Set([200, 429]))
      expect(statuses.filter((status) => status === 200).length).toBeLessThanOrEqual(atMost)
    },
  )

  it('is reserved by requests of any size while they run, one at least', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const services = { database, redisUrl, keyPrefix }
    const { newKey, openChat, limitOrganization } = await openProcess(services)
    await limitOrganization({ tokensPerDay: 1000 })
    const { secret } = await newKey({})
    expect(await openChat(secret, { max_tokens: 900 })).toBe(200)
    expect(await openChat(secret, { max_tokens: 450 })).toBe(429)
    expect(await openChat(secret, { max_tokens: 20 })).toBe(200)
  })

  it('is reserved up to the context length by a chat without max_tokens', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const services = { database, redisUrl, keyPrefix }
    const { newKey, openChat, limitOrganization } = await openProcess(services)
    // The prices of 2.5 chats whose output fills the context.
    await limitOrganization({ costPerMonth: 0.025 })
    const { secret } = await newKey({})
    const statuses = [await openChat(secret), await openChat(secret), await openChat(secret)]
    expect(statuses).toEqual([200, 200, 429])
    expect(await openChat(secret, { max_tokens: 20 })).toBe(200)
  })

  it('refuses background jobs that were created before it was used up', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const services = { database, redisUrl, keyPrefix }
    const { limiter, limitOrganization, statusOf } = await openProcess(services, {
      use: { tokens: 10, cost: 0 },
    })
    const context = { stored: {}, caller: { organizationId: 'org-one' } }
    const start = () => limiter({ context } as never, {} as never)
    await limitOrganization({ tokensPerDay: 10 })
    await start()
    expect(await statusOf()).toBe(200)
    await expect.poll(() => start().catch(({ code }) => code)).toBe('insufficient_quota')
  })

  it.for([
    ['tokensPerDay', { tokensPerDay: 10 }],
    ['tokensPerMonth', { tokensPerMonth: 10 }],
    ['costPerDay', { costPerDay: 0.000002 }],
    ['costPerMonth', { costPerMonth: 0.000002 }],
  ] as const)(
    'ends with the request that uses up %s',
    async ([, own], { database, redisUrl, keyPrefix }) => {
      const services = { database, redisUrl, keyPrefix }
      const use = { tokens: 10, cost: 0.000002 }
      const { newKey, statusOf } = await openProcess(services, { use })
      const { secret } = await newKey(own)
      expect(await statusOf(secret)).toBe(200)
      await expect.poll(() => statusOf(secret)).toBe(429)
    },
  )

  it('counts what is recorded where Redis has lost its counters', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const services = { database, redisUrl, keyPrefix }
    const { newKey, statusOf, usage, redis } = await openProcess(services)
    const { key, secret } = await newKey({ costPerMonth: 2, tokensPerDay: 2_000_000 })
    expect(await statusOf(secret)).toBe(200)
    const used = { apiKeyId: key.id, promptTokens: 1_000_000, completionTokens: 100_000 }
    await usage.add([rowOf(used), rowOf({ apiKeyId: 'key_of_another', promptTokens: 9e6 })])
    const counters = await redis.keys(`${keyPrefix}:limits:api_key:*`)
    expect(counters).toHaveLength(2)
    await redis.del(counters)
    expect(await statusOf(secret)).toBe(429)
    const lower = await newKey({ tokensPerDay: 1 })
    expect(await statusOf(lower.secret)).toBe(200)
    const rested = await newKey({ tokensPerDay: 1 })
    const yesterday = { createdAt: new Date(Date.now() - 86_400_000), promptTokens: 9e6 }
    await usage.add([rowOf({ apiKeyId: rested.key.id, ...yesterday })])
    expect(await statusOf(rested.secret)).toBe(200)
  })
})

describe('a quota of an organization', () => {
  it('holds for all its keys together, and replaces that of the installation', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const services = { database, redisUrl, keyPrefix }
    const use = { tokens: 10, cost: 0 }
    const limits = { monthlyTokens: 10 }
    const { newKey, limitOrganization, statusOf } = await openProcess(services, { use, limits })
    const other = await newKey({})
    expect(await statusOf()).toBe(200)
    await expect.poll(() => statusOf(other.secret)).toBe(429)
    await limitOrganization({ tokensPerMonth: 1000 })
    await expect.poll(() => statusOf(other.secret)).toBe(200)
    await limitOrganization({ tokensPerMonth: 10 })
    await expect.poll(() => statusOf()).toBe(429)
  })

  it('refuses new batches once it is used up, and lets others be cancelled', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const services = { database, redisUrl, keyPrefix }
    const use = { tokens: 10, cost: 0 }
    const { post, statusOf } = await openProcess(services, { use, limits: { monthlyTokens: 10 } })
    expect((await post('/batches', {})).status).toBe(200)
    expect(await statusOf()).toBe(200)
    await expect.poll(async () => (await post('/batches', {})).status).toBe(429)
    expect((await post('/batches/batch_1/cancel', {})).status).toBe(200)
  })

  it('is not enforced while neither Redis nor the record knows its usage', async ({
    database,
    redisUrl,
    keyPrefix,
  }) => {
    const services = { database, redisUrl, keyPrefix }
    const { limitOrganization, statusOf, usage } = await openProcess(services)
    await limitOrganization({ requestsPerDay: 1 })
    vi.spyOn(usage, 'sumSince').mockRejectedValue(new Error('no database'))
    expect([await statusOf(), await statusOf()]).toEqual([200, 200])
    vi.restoreAllMocks()
    expect([await statusOf(), await statusOf()]).toEqual([200, 429])
  })
})
