import { describe, expect } from 'vitest'

import { IncidentLog } from '#api/console/incident-log.ts'
import type { Overview } from '#api/console/overview.ts'
import { failure } from '#shared/errors.ts'
import { createLogger } from '#shared/logger.ts'
import { type ServedQueue, writeHeartbeat } from '#shared/queue/liveness.ts'
import { it } from '#test/support/services.ts'

import { type AdminApp, openAdminApp, TOKEN } from './admin-app.ts'

const SECRET = 'a prompt that nobody else may read'

async function read({ get }: AdminApp): Promise<Overview> {
  const answer = await get('/admin/overview.json', { authorization: `Bearer ${TOKEN}` })
  return JSON.parse(answer.body) as Overview
}

/** A surface that fails in the way that is asked for. */
const failingSurface: NonNullable<Parameters<typeof openAdminApp>[0]['more']>[number]['plugin'] =
  async (app) => {
    app.get<{ Params: { kind: 'internal' | 'notFound' } }>('/:kind', async ({ params }) => {
      throw failure[params.kind]('it failed')
    })
    app.get('/slow', async () => {
      await new Promise((resolve) => setTimeout(resolve, 20))
      return {}
    })
  }

describe('the overview', () => {
  it('counts the waiting jobs, shows the oldest one, and sums up the workers', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const admin = await openAdminApp({ redisUrl, keyPrefix })
    const timestamp = Date.now() - 65_000
    await admin.queue.add('completion', { prompt: SECRET }, { priority: 2, timestamp })
    await admin.queue.add('completion', { prompt: SECRET }, { priority: 1 })
    const queue: ServedQueue = {
      kind: 'completion',
      modelId: 'toy',
      isReady: true,
      slots: 8,
      active: 3,
      waiting: 1,
      jobsPerSecond: 0.5,
      tokensPerSecond: 40,
      cacheUse: 0.5,
    }
    for (const workerId of ['one', 'two']) {
      await writeHeartbeat(admin.redis, admin.keys, {
        workerId,
        version: '0',
        nodeVersion: 'v24',
        pid: 1,
        hostname: 'host',
        startedAtMs: Date.now(),
        isDraining: false,
        queues: [queue],
      })
    }
    await admin.redis.zadd(admin.keys.workers, Date.now(), 'one whose heartbeat has expired')
    const overview = await read(admin)
    expect(overview.workersLostAtMs).toEqual([expect.any(Number)])
    expect(overview.queues).toEqual([
      expect.objectContaining({
        kind: 'completion',
        modelId: 'toy',
        waiting: 2,
        running: 0,
        failedLastHour: 0,
        slots: 16,
        slotsUsed: 6,
        tokensPerSecond: 80,
        jobsPerSecond: 1,
        workers: 2,
        workersReady: 2,
      }),
    ])
    expect(overview.queues[0]?.oldestWaitMs).toBeGreaterThanOrEqual(65_000)
    expect(overview.queues[0]?.oldestWaitMs).toBeLessThan(120_000)
    expect(JSON.stringify(overview)).not.toContain(SECRET)
    await admin.close()
  })

  it('asks Redis once for all who look on at the same moment', async ({ redisUrl, keyPrefix }) => {
    const admin = await openAdminApp({ redisUrl, keyPrefix })
    const [first, second] = await Promise.all([read(admin), read(admin)])
    expect(second).toEqual(first)
    await admin.close()
  })
})

describe('incidents', () => {
  it('are counted by kind over all processes, and listed without the content of requests', async ({
    redisUrl,
    keyPrefix,
  }) => {
    const more = [{ prefixes: ['/v1'], plugin: failingSurface }]
    const one = await openAdminApp({ redisUrl, keyPrefix, more, slowMs: 1 })
    const two = await openAdminApp({ redisUrl, keyPrefix, more })
    for (const { get } of [one, two]) {
      expect((await get(`/v1/internal?prompt=${SECRET}`)).statusCode).toBe(500)
      expect((await get('/v1/notFound')).statusCode).toBe(404)
      await get('/v1/slow')
      await get('/admin', { accept: 'text/html' })
    }
    for (const { incidents } of [one, two]) await incidents.flush()
    const { incidents } = await read(one)
    expect(incidents.errors).toEqual(
      expect.arrayContaining([
        { kind: 'internal', count: 2 },
        { kind: 'notFound', count: 2 },
      ]),
    )
    // That a page asks to sign in is not an error.
    expect(incidents.errors).toHaveLength(2)
    expect(incidents.failed.map(({ status, route, method }) => [status, route, method])).toEqual([
      [500, '/v1/:kind', 'GET'],
      [500, '/v1/:kind', 'GET'],
    ])
    expect(incidents.slow.filter(({ route }) => route === '/v1/slow')).toHaveLength(1)
    expect(JSON.stringify(incidents)).not.toContain('prompt')
    await one.close()
    await two.close()
  })

  it('stay few in a storm, and go away by themselves', async ({ redisUrl, keyPrefix }) => {
    const admin = await openAdminApp({ redisUrl, keyPrefix })
    const log = new IncidentLog({
      redis: admin.redis,
      prefix: keyPrefix,
      log: createLogger({ level: 'silent' }),
    })
    const request = {
      atMs: Date.now(),
      requestId: 'r',
      method: 'POST',
      route: '/v1/x',
      status: 500,
    }
    for (let round = 0; round < 4; round++) {
      for (let index = 0; index < 500; index++) {
        log.noteFailed({ ...request, kind: 'internal' })
        log.noteSlow({ ...request, durationMs: 9000 })
      }
      await log.flush()
    }
    const { errors, failed, slow } = await log.read()
    expect(errors).toEqual([{ kind: 'internal', modelId: undefined, count: 2000 }])
    expect([failed.length, slow.length]).toEqual([100, 100])
    for (const name of await admin.redis.keys(`${keyPrefix}:admin:*`)) {
      expect(await admin.redis.ttl(name), name).toBeGreaterThan(0)
    }
    await log.close()
    await admin.close()
  })
})
