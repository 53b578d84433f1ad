import { readdir, stat, truncate } from 'node:fs/promises'
import { join } from 'node:path'

import { Redis } from 'ioredis'
import { describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { openFaultProxy } from '#test/support/fault-proxy.ts'
import { quantile, report, scale } from '#test/support/fault-report.ts'
import {
  countWrong,
  longestGap,
  openFaultWorld,
  type StreamSeen,
  sleep,
} from '#test/support/fault-world.ts'
import { readAll, startRedis, toyRequest } from '#test/support/queue.ts'
import { createRandom } from '#test/support/random.ts'
import { toyText } from '#test/support/toy-worker.ts'

const random = createRandom()

const STREAMS = scale(50, 12)
const TOKENS = 300
const TIMEOUT_MS = 240_000
/** New requests while Redis is down, however long a busy machine takes to refuse them. */
const REFUSED_MIN = 4

describe('Redis', () => {
  it('R7: is killed and restarts from its file', { timeout: TIMEOUT_MS }, async () => {
    const world = await openFaultWorld()
    try {
      await world.spawnWorker(64)
      const downMs = scale(5000, 1500)
      const refusedMs: number[] = []
      const seen = await world.stream(STREAMS, TOKENS, async () => {
        await world.server.kill()
        const until = performance.now() + downMs
        while (performance.now() < until || refusedMs.length < REFUSED_MIN) {
          const from = performance.now()
          const thrown = await readAll(world.submitter.submit(toyRequest('x', 1))).catch(
            (error: unknown) => error,
          )
          refusedMs.push(performance.now() - from)
          expect(thrown).toMatchObject({ kind: 'overloaded', retryAfterSeconds: 1 })
          await sleep(100)
        }
        await world.server.start()
      })
      const wrong = countWrong(seen, toyText(TOKENS))
      report('R7', {
        'down ms': downMs,
        streams: seen.length,
        'lost, repeated or changed': wrong,
        'new requests refused meanwhile': refusedMs.length,
        'refused after, p99 ms': quantile(refusedMs, 0.99),
        'longest silence ms': longestGap(seen),
      })
      expect(wrong).toBe(0)
    } finally {
      await world.close()
    }
  })

  it('R8: is flushed under load, again and again', { timeout: TIMEOUT_MS }, async () => {
    const world = await openFaultWorld()
    try {
      // Half of the jobs wait for a slot when their queue vanishes.
      await world.spawnWorker(STREAMS / 2)
      const flushes = scale(10, 2)
      const all: StreamSeen[] = []
      for (let round = 0; round < flushes; round += 1) {
        const reading = Promise.all(
          Array.from({ length: STREAMS }, () =>
            readAll(
              world.submitter.submit(
                toyRequest('stepMs=5', 120, { deadlineAtMs: Date.now() + 60_000 }),
              ),
            ),
          ),
        )
        await sleep(100 + random() * 400)
        await world.admin.flushall()
        all.push(...(await reading))
      }
      const wrong = countWrong(all, toyText(120))
      report('R8', {
        flushes,
        jobs: all.length,
        'lost, repeated or changed': wrong,
        'longest silence ms': longestGap(all),
      })
      expect(wrong).toBe(0)
    } finally {
      await world.close()
    }
  })

  it('R9: fails over to a replica that missed the last moments', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const replica = await startRedis()
    const portOf = (url: string): number => Number(new URL(url).port)
    let proxy: Awaited<ReturnType<typeof openFaultProxy>> | undefined
    const world = await openFaultWorld({
      async redisUrl(server) {
        proxy = await openFaultProxy(portOf(server.url))
        return `redis://127.0.0.1:${proxy.port}`
      },
    })
    const link = await openFaultProxy(portOf(world.server.url))
    const standby = new Redis(replica.url)
    try {
      await standby.replicaof('127.0.0.1', link.port)
      await world.spawnWorker(64)
      while (!/master_link_status:up/.test(await standby.info('replication'))) await sleep(20)
      let switchedAtMs = 0
      let lostBytes = 0
      const seen = await world.stream(STREAMS, TOKENS, async () => {
        link.cut()
        const replicated = await replicationOffset(standby, 'slave_repl_offset')
        await sleep(500)
        lostBytes = (await replicationOffset(world.admin, 'master_repl_offset')) - replicated
        // The old address answers READONLY for a moment, as a replica that is just promoted does.
        proxy?.retarget(portOf(replica.url))
        await world.server.kill()
        await sleep(300)
        switchedAtMs = performance.now()
        await standby.replicaof('NO', 'ONE')
      })
      const tail = await readAll(world.submitter.submit(toyRequest('x', 5)))
      const wrong = countWrong(seen, toyText(TOKENS))
      report('R9', {
        'bytes not replicated': lostBytes,
        streams: seen.length,
        'lost, repeated or changed': wrong,
        'longest silence ms': longestGap(seen),
        'all done after ms': performance.now() - switchedAtMs,
      })
      expect(wrong).toBe(0)
      // Without it there would be nothing to survive.
      expect(lostBytes).toBeGreaterThan(0)
      expect(tail.text).toBe(toyText(5))
    } finally {
      standby.disconnect()
      // It was killed above, and is ended like any other.
      await world.server.start()
      await world.close()
      await link.close()
      await proxy?.close()
      await replica.close()
    }
  })

  it('R23: loses unwritten data in a power failure', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const world = await openFaultWorld()
    try {
      await world.spawnWorker(64)
      const { dir } = Object.fromEntries([
        (await world.admin.config('GET', 'dir')) as string[],
      ]) as {
        dir: string
      }
      const folder = join(dir, 'appendonlydir')
      let lostBytes = 0
      const seen = await world.stream(STREAMS, TOKENS, async () => {
        const [name = ''] = (await readdir(folder)).filter((file) => file.endsWith('.incr.aof'))
        const file = join(folder, name)
        const synced = (await stat(file)).size
        await sleep(1000)
        await world.server.kill()
        lostBytes = (await stat(file)).size - synced
        await truncate(file, synced)
        await world.server.start()
      })
      const wrong = countWrong(seen, toyText(TOKENS))
      report('R23', {
        'unsynced bytes dropped': lostBytes,
        streams: seen.length,
        'lost, repeated or changed': wrong,
        'longest silence ms': longestGap(seen),
      })
      expect(lostBytes).toBeGreaterThan(0)
      expect(wrong).toBe(0)
    } finally {
      await world.close()
    }
  })
})

/** How far a server has written, or a replica read, the stream of replication, in bytes. */
async function replicationOffset(redis: Redis, name: string): Promise<number> {
  const text = new RegExp(`${name}:(\\d+)`).exec(await redis.info('replication'))?.[1]
  return Number(defined(text))
}
