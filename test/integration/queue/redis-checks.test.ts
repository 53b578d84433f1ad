import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { expect, it, onTestFinished } from 'vitest'

import { startRedis } from '#launcher/embedded/redis.ts'
import { systemClock } from '#shared/clock.ts'
import { Dependencies } from '#shared/dependencies.ts'
import type { Logger } from '#shared/logger.ts'
import { redisChecks } from '#shared/queue/checks.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { log, startRedis as startPrivateRedis } from '#test/support/queue.ts'

it('advises to raise maxmemory only if Redis is reachable and full', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-redis-checks-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  const server = await startRedis(folder, { password: 'checks', onProgress: () => {} })
  onTestFinished(() => server.stop())
  const redis = await openRedis(server.url, 'producer', log)
  onTestFinished(() => redis.disconnect())
  const checks = redisChecks(redis, { redisUrl: server.url, redisPrefix: 'checks' })
  const adviceOf = async (name: string) => {
    const states = await new Dependencies(checks, { clock: systemClock, log }).states()
    const state = states.find((one) => one.name === name)
    return state?.isOk === false ? state.remedy : 'none'
  }
  expect(await adviceOf('redis_writes')).toBe('none')
  await redis.config('SET', 'maxmemory', '1')
  expect(await adviceOf('redis')).toBe('none')
  expect(await adviceOf('redis_writes')).toMatch(/^raise maxmemory/)
  await server.stop()
  await expect.poll(() => redis.status).not.toBe('ready')
  for (const name of ['redis', 'redis_writes']) {
    expect(await adviceOf(name)).toBe('check REDIS_URL and that Redis runs')
  }
})

it('logs an outage of Redis once, however often the connection is tried again', async () => {
  const server = await startPrivateRedis()
  onTestFinished(() => server.close())
  const warnings: unknown[] = []
  const warn = (fields: unknown) => warnings.push(fields)
  const redis = await openRedis(server.url, 'worker', { ...log, warn } as unknown as Logger)
  onTestFinished(() => redis.disconnect())
  let attempts = 0
  redis.on('error', () => {
    attempts += 1
  })
  await server.kill()
  await expect
    .poll(() => attempts)
    .toBeGreaterThan(3)
    .finally(() => server.start())
  expect(warnings).toMatchObject([{ operation: 'redis.connect', role: 'worker' }])
})
