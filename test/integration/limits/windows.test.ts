import type { Redis } from 'ioredis'
import { afterEach, beforeEach, describe, expect } from 'vitest'

import {
  charge,
  fillCounter,
  type LimitStore,
  leasesKeys,
  type RequestLimits,
  settle,
} from '#api/limits/limit-store.ts'
import { quotaAt, quotasOf } from '#api/limits/quotas.ts'
import { usedOf, WINDOW_MS } from '#api/limits/windows.ts'
import { NO_QUOTAS } from '#shared/db/schema/quotas.ts'
import { createLogger } from '#shared/logger.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { stayInOne } from '#test/support/boundaries.ts'
import { NO_LIMITS } from '#test/support/limits.ts'
import { it } from '#test/support/services.ts'

const SUBJECT = { organizationId: 'org-one', credentialId: 'key_1', day: '2026-11-28' }
const NONE = { requests: 0, tokens: 0, cost: 0 }
const NO_JOB = { tokens: 0, lease: '' }
const job = (tokens: number, lease = 'job') => ({ tokens, lease })
const closers: (() => unknown)[] = []

beforeEach(() => stayInOne('minute'))

afterEach(() => {
  for (const close of closers.splice(0)) close()
})

interface Scene extends LimitStore {
  readonly redis: Redis
  readonly limits: RequestLimits
  /** Writes what the window of the key has counted, so many minutes ago. */
  count(minutesAgo: number, counts: { requests?: number; tokens?: number }): Promise<void>
  field(name: 'rp' | 'rc' | 'tp' | 'tc'): Promise<number>
}

async function openScene(
  { redisUrl, keyPrefix: prefix }: { redisUrl: string; keyPrefix: string },
  perMinute: { requests?: number; tokens?: number; jobs?: number; month?: number },
): Promise<Scene> {
  const redis = await openRedis(redisUrl, 'producer', createLogger({ level: 'silent' }))
  closers.push(() => redis.disconnect())
  const key = `${prefix}:limits:credential:${SUBJECT.credentialId}`
  return {
    redis,
    prefix,
    limits: {
      ...NO_LIMITS,
      requestsPerMinute: { key: perMinute.requests ?? 0, organization: 0 },
      tokensPerMinute: { key: perMinute.tokens ?? 0, organization: 0 },
      concurrentJobs: perMinute.jobs ?? 0,
      concurrentJobsOfKey: 0,
      quotas: quotasOf({ monthlyTokens: perMinute.month ?? 0 }, undefined, NO_QUOTAS),
    },
    async count(minutesAgo, { requests = 0, tokens = 0 }) {
      const [seconds] = await redis.time()
      const minute = Math.floor(Number(seconds) / 60) - minutesAgo
      await redis.hset(key, { minute, rp: 0, rc: requests, tp: 0, tc: tokens })
    },
    field: async (name) => Number(await redis.hget(key, name)),
  }
}

describe('the window of a minute', () => {
  it.for([3, 5, 8, 9, 10, 11])(
    'of the minute before counts by what is left of it (limit %i)',
    async (limit, { redisUrl, keyPrefix }) => {
      const scene = await openScene({ redisUrl, keyPrefix }, { requests: limit })
      await scene.count(1, { requests: 10 })
      const { verdict, elapsedMs, requests } = await charge(scene, SUBJECT, NO_JOB)
      const [window] = requests
      // A minute may have ended between the writing and the charge; then it is one further back.
      expect([0, 10]).toContain(window?.previous)
      const used = usedOf({ limit, previous: window?.previous ?? 0, current: 0 }, elapsedMs)
      expect(verdict).toBe(used + 1 > limit ? 'requests' : 'admitted')
      expect(elapsedMs).toBeLessThan(WINDOW_MS)
    },
  )

  it('does not count the minute before the previous one', async ({ redisUrl, keyPrefix }) => {
    const scene = await openScene({ redisUrl, keyPrefix }, { requests: 1 })
    await scene.count(2, { requests: 1000 })
    expect((await charge(scene, SUBJECT, NO_JOB)).verdict).toBe('admitted')
  })

  it('is full exactly at its limit, and a refusal is not charged', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const scene = await openScene({ redisUrl, keyPrefix }, { tokens: 100 })
    await scene.count(0, { tokens: 40 })
    expect((await charge(scene, SUBJECT, job(61))).verdict).toBe('tokens')
    expect(await scene.field('tc')).toBe(40)
    expect((await charge(scene, SUBJECT, job(60))).verdict).toBe('admitted')
    expect(await scene.field('tc')).toBe(100)
    expect((await charge(scene, SUBJECT, job(1))).verdict).toBe('tokens')
    // A request without a job needs no tokens.
    expect((await charge(scene, SUBJECT, NO_JOB)).verdict).toBe('admitted')
  })

  it('gives back excess charges, in its minute and in the next', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const scene = await openScene({ redisUrl, keyPrefix }, { tokens: 1000 })
    const { minute } = await charge(scene, SUBJECT, job(100))
    const bill = { tokensToAdd: -30, lease: 'job', used: NONE }
    await settle(scene, SUBJECT, { ...bill, minute })
    expect(await scene.field('tc')).toBe(70)
    await scene.count(1, { tokens: 100 })
    const later = await charge(scene, SUBJECT, NO_JOB)
    await settle(scene, SUBJECT, { ...bill, minute: later.minute - 1 })
    expect(await scene.field('tp')).toBe(70)
  })

  it('gives nothing back that no longer counts, and charges late usage', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const scene = await openScene({ redisUrl, keyPrefix }, { tokens: 1000 })
    const { minute } = await charge(scene, SUBJECT, job(50))
    const late = { minute: minute - 5, lease: '', used: NONE }
    await settle(scene, SUBJECT, { ...late, tokensToAdd: -30 })
    expect(await scene.field('tc')).toBe(50)
    await settle(scene, SUBJECT, { ...late, tokensToAdd: 20 })
    expect(await scene.field('tc')).toBe(70)
  })
})

describe('the quota of a month', () => {
  it('ends with the last token and begins again with the next month', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const scene = await openScene({ redisUrl, keyPrefix }, { month: 100 })
    expect((await charge(scene, SUBJECT, job(50))).verdict).toBe('unknown')
    const next = { ...SUBJECT, day: '2026-12-01' }
    const counter = { of: 'organization', period: 'month' } as const
    await fillCounter(scene, SUBJECT, { counter, used: { ...NONE, tokens: 99 } })
    await fillCounter(scene, next, { counter, used: NONE })
    const { verdict, minute } = await charge(scene, SUBJECT, job(50))
    expect(verdict).toBe('admitted')
    const used = { ...NONE, tokens: 1 }
    await settle(scene, SUBJECT, { minute, tokensToAdd: 0, lease: 'job', used })
    const refused = await charge(scene, SUBJECT, job(1))
    expect([refused.verdict, quotaAt(scene.limits.quotas, refused.usedUp)]).toEqual([
      'quota',
      { ...counter, amount: 'tokens', limit: 100 },
    ])
    expect((await charge(scene, SUBJECT, NO_JOB)).verdict).toBe('admitted')
    expect((await charge(scene, next, job(1))).verdict).toBe('admitted')
  })
})

describe('the places of running jobs', () => {
  it('belong to one organization, and those of a dead process are released', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const scene = await openScene({ redisUrl, keyPrefix }, { jobs: 2 })
    expect((await charge(scene, SUBJECT, job(0, 'dead'))).verdict).toBe('admitted')
    // The process ended: its lease was not renewed.
    await scene.redis.zadd(leasesKeys(scene.prefix, SUBJECT)[0], '1', 'dead')
    expect((await charge(scene, SUBJECT, job(0, 'one'))).verdict).toBe('admitted')
    await expect
      .poll(async () => (await charge(scene, SUBJECT, job(0, 'two'))).verdict)
      .toBe('admitted')
    expect((await charge(scene, SUBJECT, job(0, 'three'))).verdict).toBe('jobs')
    const other = { ...SUBJECT, organizationId: 'org-two' }
    expect((await charge(scene, other, job(0, 'four'))).verdict).toBe('admitted')
    const bill = { minute: 0, tokensToAdd: 0, used: NONE }
    await settle(scene, SUBJECT, { ...bill, lease: 'one' })
    expect((await charge(scene, SUBJECT, job(0, 'three'))).verdict).toBe('admitted')
  })

  it('return what they reserved, also those of a dead process', async ({ redisUrl, keyPrefix }) => {
    const scene = await openScene({ redisUrl, keyPrefix }, { jobs: 2 })
    const [jobs] = leasesKeys(scene.prefix, SUBJECT)
    const reserved = () => scene.redis.hgetall(`${jobs}:reserved`)
    const [dead, live] = ['dead 700 5', 'live 30 0']
    await charge(scene, SUBJECT, job(0, dead))
    await charge(scene, SUBJECT, job(0, live))
    expect(await reserved()).toEqual({ tokens: '730', cost: '5' })
    await scene.redis.zadd(jobs, '1', dead)
    await charge(scene, SUBJECT, job(0, 'other 1 1'))
    expect(await reserved()).toEqual({ tokens: '31', cost: '1' })
    const bill = { minute: 0, tokensToAdd: 0, used: NONE }
    // A lease ends once, however often it is settled.
    for (const lease of [live, live, 'other 1 1']) await settle(scene, SUBJECT, { ...bill, lease })
    expect(await reserved()).toEqual({})
  })
})
