import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

import { SpanSettler } from '#workers/telemetry/span-settler.ts'

describe('the spans of ended runs', () => {
  const owners = new Map<string, boolean | Error>()
  let settled: [string, boolean][]
  let settler: SpanSettler
  const settle = (name: string, replyTo: string) =>
    settler.settle(replyTo, (isAlive) => settled.push([name, isAlive]))

  beforeEach(() => {
    vi.useFakeTimers()
    settled = []
    settler = new SpanSettler({
      delayMs: 2000,
      async isOwnerAlive(replyTo) {
        const found = owners.get(replyTo) ?? false
        if (found instanceof Error) throw found
        return found
      },
    })
    owners.set('living', true).set('dead', false).set('unknown', new Error('Redis is away'))
  })

  afterEach(() => vi.useRealTimers())

  it('wait until it is known whether their owner lived on', async () => {
    for (const replyTo of ['living', 'dead', 'unknown']) settle(replyTo, replyTo)
    await vi.advanceTimersByTimeAsync(1999)
    expect(settled).toEqual([])
    await vi.advanceTimersByTimeAsync(1)
    expect(settled.sort()).toEqual([
      ['dead', false],
      ['living', true],
      ['unknown', true],
    ])
  })

  it('are exported at the end of the worker, once', async () => {
    settle('first', 'dead')
    settler.flush()
    expect(settled).toEqual([['first', true]])
    await vi.advanceTimersByTimeAsync(5000)
    expect(settled).toHaveLength(1)
  })
})
