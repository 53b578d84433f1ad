import { randomUUID } from 'node:crypto'

import { Redis } from 'ioredis'
import { describe, expect } from 'vitest'

import { openFaultTiers } from '#test/support/fault-tiers.ts'
import { eventually, startRedis } from '#test/support/queue.ts'
import { it } from '#test/support/services.ts'
import { API_KEY } from '#test/support/tiers.ts'

const TIMEOUT_MS = 240_000
const BODIES = {
  completions: { model: 'tiny-chat', prompt: 'The', max_tokens: 4 },
  embeddings: { model: 'tiny-embed', input: 'a text' },
}

async function send(
  url: string,
  route: keyof typeof BODIES,
  headers: Readonly<Record<string, string>> = {},
): Promise<Response> {
  return fetch(`${url}/v1/${route}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(BODIES[route]),
  })
}

const statusOf = async (...args: Parameters<typeof send>): Promise<number> =>
  (await send(...args)).status

describe('a Redis of its own for some queues', () => {
  it('R29: delays their requests alone while it is away', { timeout: TIMEOUT_MS }, async ({
    databaseUrl,
    redisUrl,
    keyPrefix,
    folder,
  }) => {
    const further = await startRedis()
    const env = {
      MILLRACE_QUEUE_REDIS_URLS: `embedding=${further.url}`,
      MILLRACE_WORKER_MODELS: 'tiny-chat,tiny-embed',
    }
    const tiers = openFaultTiers({ databaseUrl, redisUrl, keyPrefix, folder, env })
    try {
      const [api] = [await tiers.startApi(), await tiers.startWorker()]
      const durable = { 'idempotency-key': randomUUID() }
      expect(await statusOf(api.url, 'embeddings', durable)).toBe(200)
      expect(await statusOf(api.url, 'completions')).toBe(200)
      expect(await keysOf(redisUrl, `${keyPrefix}:embedding*`)).toEqual([])
      expect(await keysOf(further.url, `${keyPrefix}:embedding*`)).not.toEqual([])
      // The replies of a durable job are where its queue is, and end with its answer.
      await eventually(
        async () => (await keysOf(further.url, `${keyPrefix}:replies-of-job:*`)).length === 0,
      )

      await further.kill()
      const refused = await send(api.url, 'embeddings')
      expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '1'])
      expect(await statusOf(api.url, 'completions')).toBe(200)
      const later = await tiers.startApi()
      expect(await statusOf(later.url, 'completions')).toBe(200)
      expect(await statusOf(later.url, 'embeddings')).toBe(503)
      const readiness = await fetch(`${later.url}/readyz`)
      expect(readiness.status).toBe(200)
      expect(await readiness.json()).toMatchObject({
        status: 'degraded',
        checks: { redis: 'ok', redis_embedding: 'failed' },
      })

      await further.start()
      for (const { url } of [api, later]) {
        await eventually(async () => (await statusOf(url, 'embeddings')) === 200)
      }
    } finally {
      await tiers.stop()
      await further.close()
    }
  })
})

async function keysOf(url: string, pattern: string): Promise<readonly string[]> {
  const redis = new Redis(url)
  try {
    return await redis.keys(pattern)
  } finally {
    redis.disconnect()
  }
}
