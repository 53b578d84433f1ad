import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { OpenSubmitter } from '#api/jobs/submit.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import type { PrivateRedis } from '#test/support/queue.ts'
import {
  freshPrefix,
  openTestSubmitter,
  readAll,
  startRedis,
  toyRequest,
} from '#test/support/queue.ts'
import { startToyWorker, toyText } from '#test/support/toy-worker.ts'

const JOBS = 20

describe('a worker that waits', () => {
  let redis: PrivateRedis
  let submitter: OpenSubmitter
  const prefix = freshPrefix()

  beforeAll(async () => {
    redis = await startRedis()
    submitter = await openTestSubmitter(redis.url, prefix)
  })

  afterAll(async () => {
    await submitter.close()
    await redis.close()
  })

  it('is woken by the job: its fetch waits in Redis while it is idle', async () => {
    const marker = queueKeys(prefix).bull('completion', 'toy', 'marker')
    const connection = new Redis(redis.url)
    const watcher = await connection.monitor()
    connection.disconnect()
    const seen: { readonly command: string; readonly client: string }[] = []
    watcher.on('monitor', (_time: string, [name = '', key]: string[], client: string) => {
      const command = name.toLowerCase()
      if (command === 'bzpopmin' && key === marker) seen.push({ command, client })
      if (command === 'evalsha') seen.push({ command, client })
    })
    const worker = await startToyWorker(redis.url, prefix, 4)
    for (let i = 0; i < JOBS; i += 1) await readAll(submitter.submit(toyRequest('hello', 1)))
    const waits = seen.filter(({ command }) => command === 'bzpopmin')
    const clients = new Set(waits.map(({ client }) => client))
    expect(clients.size).toBe(1)
    const fetches = seen.filter(
      ({ command, client }) => command === 'evalsha' && clients.has(client),
    )
    // A job may also be handed over with the end of the one before.
    expect(fetches.length).toBeGreaterThan(JOBS / 2)
    watcher.disconnect()
    await worker.stop()
  })

  it('does not take a job when it stops', async () => {
    const leaving = await startToyWorker(redis.url, prefix, 4)
    const staying = await startToyWorker(redis.url, prefix, 4)
    await readAll(submitter.submit(toyRequest('hello', 1)))
    const stopped = leaving.stop()
    const texts = Array.from({ length: JOBS }, async (_, i) => {
      await new Promise((resolve) => setTimeout(resolve, 20 * i))
      return (await readAll(submitter.submit(toyRequest('stepMs=1', 5)))).text
    })
    expect(await Promise.all(texts)).toEqual(texts.map(() => toyText(5)))
    await stopped
    await staying.stop()
  })
})
