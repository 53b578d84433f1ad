import { Redis } from 'ioredis'
import { expect, type TestContext } from 'vitest'

import { openAdminSessions } from '#api/console/sessions.ts'
import { startRedis } from '#launcher/embedded/redis.ts'
import { systemClock } from '#shared/clock.ts'
import { it } from '#test/support/services.ts'

const MINUTE_MS = 60_000

async function openOwnRedis(folder: string, onTestFinished: TestContext['onTestFinished']) {
  const server = await startRedis(folder, { password: 'secret', onProgress: () => {} })
  const options = { enableOfflineQueue: false, maxRetriesPerRequest: 0, lazyConnect: true }
  const redis = new Redis(server.url, options).on('error', () => {})
  await redis.connect()
  onTestFinished(async () => {
    redis.disconnect()
    await server.stop()
  })
  let nowMs = 0
  const clock = { ...systemClock, monotonic: () => nowMs }
  const open = () => openAdminSessions(redis, 'test', clock)
  return { server, redis, open, advance: (ms: number) => (nowMs += ms) }
}

it('admits sessions seen lately, and new ones, while Redis is away', async ({
  folder,
  onTestFinished,
}) => {
  const { server, open, advance } = await openOwnRedis(folder, onTestFinished)
  const [sessions, other] = [open(), open()]
  const secret = await sessions.open({ name: 'first' })
  await server.stop()
  expect(await sessions.find(secret)).toEqual({ name: 'first' })
  expect(await other.find(secret)).toBeUndefined()
  const local = await sessions.open({ name: 'second' })
  expect(await sessions.find(local)).toEqual({ name: 'second' })
  advance(15 * MINUTE_MS)
  expect(await sessions.find(secret)).toBeUndefined()
  expect(await sessions.find(local)).toBeUndefined()
})

it('opens sessions while Redis is full, except those that another process has closed', async ({
  folder,
  onTestFinished,
}) => {
  const { redis, open } = await openOwnRedis(folder, onTestFinished)
  const [sessions, other] = [open(), open()]
  const secret = await sessions.open({ name: 'first' })
  await other.close(secret)
  expect(await sessions.find(secret)).toBeUndefined()
  await redis.config('SET', 'maxmemory', '1')
  const local = await sessions.open({ name: 'second' })
  expect(await sessions.find(local)).toEqual({ name: 'second' })
  await sessions.close(local).catch(() => {})
  expect(await sessions.find(local)).toBeUndefined()
})
