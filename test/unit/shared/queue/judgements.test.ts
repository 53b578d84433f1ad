import { describe, expect, it } from 'vitest'

import { checkRedis } from '#shared/queue/connection.ts'
import { type Fetched, judgeFetched } from '#shared/queue/job-life.ts'
import { RedisClock } from '#shared/queue/redis-clock.ts'

const FETCHED: Fetched = {
  nowMs: 10,
  deadlineAtMs: 20,
  isCancelled: false,
  isClaimed: true,
  isOwnerAlive: true,
  isOwnerless: false,
}

describe('a fetched job', () => {
  it.each<[string, Partial<Fetched>, ReturnType<typeof judgeFetched>]>([
    ['runs', {}, 'run'],
    ['is dropped when it was cancelled', { isCancelled: true }, 'cancelled'],
    ['is dropped when another run has claimed it', { isClaimed: false }, 'claimed'],
    ['is dropped when its time is over', { nowMs: 20 }, 'expired'],
    ['is dropped when its owner is gone', { isOwnerAlive: false }, 'orphaned'],
    ['runs without an owner when it needs none', { isOwnerAlive: false, isOwnerless: true }, 'run'],
    ['that needs no owner still expires', { nowMs: 20, isOwnerless: true }, 'expired'],
  ])('%s', (_, changes, verdict) => {
    expect(judgeFetched({ ...FETCHED, ...changes })).toBe(verdict)
  })
})

describe('a Redis server', () => {
  it.each([
    ['5.0.14', 'noeviction', /5\.0 is too old/],
    ['6.0.16', 'noeviction', /6\.0 is too old/],
    ['7.2.4', 'allkeys-lru', /noeviction/],
  ])('of version %s with policy %s is refused', async (version, policy, reason) => {
    await expect(checkRedis(serverOf(version, policy))).rejects.toThrow(reason)
  })

  it.each([
    ['cluster_enabled:1', /cluster mode/],
    ['role:slave', /read-only replica/],
  ])('with %s is refused', async (line, reason) => {
    const redis = { info: async () => `redis_version:7.2.4\r\n${line}\r\n` } as never
    await expect(checkRedis(redis)).rejects.toThrow(reason)
  })

  it.each(['6.2.0', '7.0.15', '8.0.0'])('of version %s is taken', async (version) => {
    await expect(checkRedis(serverOf(version, 'noeviction'))).resolves.toBeUndefined()
  })
})

describe('the time of the queues', () => {
  it("is this machine's until Redis answers, then that of Redis, and continues without either", async () => {
    const local = { nowMs: 1_000_000, monotonicMs: 50 }
    const clock = new RedisClock({ now: () => local.nowMs, monotonic: () => local.monotonicMs })
    expect(clock.now()).toBe(1_000_000)
    await clock.sync({ time: async () => [2000, 500_000] } as never)
    expect(clock.now()).toBe(2_000_500)
    local.monotonicMs += 100
    // The machine's clock is set, which has no effect.
    local.nowMs -= 300_000
    expect(clock.now()).toBe(2_000_600)
  })

  it('follows every fast answer, and a slow one only if the last answer is old', async () => {
    const local = { monotonicMs: 1_000_000 }
    const clock = new RedisClock({ now: () => 0, monotonic: () => local.monotonicMs })
    const timeAfter = async (seconds: number, roundTripMs: number) => {
      const time = async () => {
        local.monotonicMs += roundTripMs
        return [seconds, 0]
      }
      await clock.sync({ time } as never)
      return clock.now()
    }
    expect(await timeAfter(1000, 10)).toBe(1_000_005)
    expect(await timeAfter(2000, 10)).toBe(2_000_005)
    expect(await timeAfter(3000, 1000)).toBe(2_001_005)
    local.monotonicMs += 10_000
    expect(await timeAfter(4000, 1000)).toBe(4_000_500)
  })
})

const serverOf = (version: string, policy: string) =>
  ({ info: async () => `redis_version:${version}\r\nmaxmemory_policy:${policy}\r\n` }) as never
