import { lookup } from 'node:dns/promises'
import { stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'

import { afterAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import {
  CACHE_PARTS,
  decoderFeeds,
  GROWING_FILE,
  IN_PLACE_FILE,
  LOOP_FILE,
  loopFeeds,
} from './decoder-feeds.ts'

const runtime = openRuntime()
afterAll(() => runtime.close())

const ENDLESS = 1e9 // trips; days

describe('a long run', () => {
  it('does not block the event loop while it computes', { timeout: 120_000 }, async () => {
    const loop = await runtime.load(LOOP_FILE, { intraOpThreads: 1 })
    const controller = new AbortController()
    const running = loop.run(loopFeeds(runtime, ENDLESS), { y: null }, controller)
    // Timers fire while the run goes on; were the loop held up, none would.
    for (let tick = 0; tick < 100; tick += 1) await sleep(5)
    controller.abort()
    await expect(running).rejects.toThrow('cancelled')
  })

  it('stops when its signal aborts, and the session can be used again', async () => {
    const loop = await runtime.load(LOOP_FILE, { intraOpThreads: 1 })
    const controller = new AbortController()
    const running = loop.run(loopFeeds(runtime, ENDLESS), { y: null }, controller)
    setTimeout(() => controller.abort(), 50)
    await expect(running).rejects.toMatchObject({ name: 'CancelledError' })
    const { y } = await loop.run(loopFeeds(runtime, 2), { y: null })
    expect(y.dims).toEqual([96, 96])
    y.dispose()
  })

  it('does not begin when its signal has aborted before', async () => {
    const loop = await runtime.load(LOOP_FILE)
    const signal = AbortSignal.abort()
    const running = loop.run(loopFeeds(runtime, ENDLESS), { y: null }, { signal })
    await expect(running).rejects.toMatchObject({ name: 'CancelledError' })
  })

  it('never keeps file access and name resolution waiting, however many runs are queued', async () => {
    const loop = await runtime.load(LOOP_FILE, { intraOpThreads: 1 })
    const controller = new AbortController()
    const runs = Array.from({ length: 8 }, () =>
      loop.run(loopFeeds(runtime, ENDLESS), { y: null }, controller),
    )
    const settled = Promise.allSettled(runs)
    await expect(stat(LOOP_FILE)).resolves.toBeDefined()
    await expect(lookup('localhost')).resolves.toBeDefined()
    controller.abort()
    const outcomes = await settled
    expect(outcomes.every(({ status }) => status === 'rejected')).toBe(true)
  })

  it('completes before the session closes, which refuses further runs', async () => {
    const other = openRuntime()
    const loop = await other.load(LOOP_FILE, { intraOpThreads: 1 })
    const order: string[] = []
    const running = loop.run(loopFeeds(other, 2000), { y: null }).then((results) => {
      order.push('run')
      results.y.dispose()
    })
    const closing = other.close().then(() => order.push('closed'))
    await expect(loop.run(loopFeeds(other, 1), { y: null })).rejects.toMatchObject({
      problem: 'closed',
    })
    await Promise.all([running, closing])
    expect(order).toEqual(['run', 'closed'])
  })
})

describe('many runs', () => {
  it('need a time that does not depend on the size of the cache', async () => {
    const session = await runtime.load(IN_PLACE_FILE, { intraOpThreads: 1 })
    const stepMs = async (capacity: number): Promise<number> => {
      const feeds = decoderFeeds(runtime, session, { length: 4, capacity })
      const fetches: Record<string, Tensor> = { logits: runtime.zeros('float32', [1, 1, 320]) }
      for (const part of CACHE_PARTS) {
        fetches[`present.${part}`] = defined(feeds[`past_key_values.${part}`])
      }
      const times: number[] = []
      for (let run = 0; run < 300; run += 1) {
        const start = performance.now()
        await session.run(feeds, fetches)
        times.push(performance.now() - start)
      }
      // The fastest tenth: the cost of a step on an idle processor.
      return defined(times.toSorted((a, b) => a - b)[30])
    }
    await stepMs(2048)
    const [small, large] = [await stepMs(2048), await stepMs(204_800)] // 1 MB and 105 MB
    // A copy of 105 MB takes more than 10 ms, a hundred times the step.
    expect(large).toBeLessThan(small + 5)
  })

  it('do not increase memory', { timeout: 120_000 }, async () => {
    const session = await runtime.load(GROWING_FILE, { intraOpThreads: 1 })
    const feeds = decoderFeeds(runtime, session, { length: 4, capacity: 4 })
    const fetches = Object.fromEntries(
      ['logits', ...CACHE_PARTS.map((part) => `present.${part}`)].map((name) => [name, null]),
    )
    const runMany = async (count: number): Promise<void> => {
      for (let run = 0; run < count; run += 1) {
        const results = await session.run(feeds, fetches)
        for (const tensor of Object.values(results)) tensor.dispose()
      }
    }
    await runMany(2000)
    const before = process.memoryUsage().rss
    await runMany(10_000)
    const grownMegabytes = (process.memoryUsage().rss - before) / 1e6
    expect(grownMegabytes).toBeLessThan(24) // one lost output tensor per run would be 40 MB
  })
})
