import Fastify from 'fastify'
import { describe, expect, it } from 'vitest'

import { healthPlugin } from '#api/health/plugin.ts'
import { systemClock } from '#shared/clock.ts'
import { Dependencies } from '#shared/dependencies.ts'

const ok = async () => undefined
const fails = async () => {
  throw new Error('refused')
}

async function readiness(redis: () => Promise<unknown>, storage: () => Promise<unknown>) {
  const lines: unknown[] = []
  const log = { error: (fields: object) => lines.push(fields), info: () => {} } as never
  const dependencies = new Dependencies(
    [
      { name: 'redis', isRequired: true, remedy: 'check REDIS_URL', check: redis },
      { name: 'storage', isRequired: false, remedy: 'check S3_ENDPOINT', check: storage },
    ],
    { clock: systemClock, log },
  )
  const app = Fastify()
  await app.register(healthPlugin({ dependencies, isDraining: () => false }))
  const ask = async () => {
    const answer = await app.inject('/readyz')
    return { code: answer.statusCode, ...answer.json() }
  }
  return { ask, lines }
}

describe('/readyz', () => {
  it.each([
    ['200 while everything works', ok, ok, 200, 'ready', { redis: 'ok', storage: 'ok' }],
    ['200 without the storage', ok, fails, 200, 'degraded', { redis: 'ok', storage: 'failed' }],
    ['503 without Redis', fails, ok, 503, 'unavailable', { redis: 'failed', storage: 'ok' }],
  ])('answers %s', async (_title, redis, storage, code, status, checks) => {
    const { ask } = await readiness(redis, storage)
    expect(await ask()).toEqual({ code, status, checks })
  })

  it('logs a failure once, with its reason', async () => {
    const { ask, lines } = await readiness(ok, fails)
    await Promise.all([ask(), ask()])
    expect(lines).toMatchObject([{ dependency: 'storage', err: { message: 'refused' } }])
  })

  it('answers 503 while the process drains', async () => {
    const app = Fastify()
    const dependencies = { states: async () => [] }
    await app.register(healthPlugin({ dependencies, isDraining: () => true }))
    expect((await app.inject('/readyz')).statusCode).toBe(503)
  })
})
