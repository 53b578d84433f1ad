import { describe, expect } from 'vitest'

import { defined } from '#shared/json.ts'
import { readCompletion } from '#test/support/fault-client.ts'
import { quantile, report, scale } from '#test/support/fault-report.ts'
import { it, timeUntil, toyBody } from '#test/support/fault-toy.ts'
import { sleep } from '#test/support/fault-world.ts'
import { toyText } from '#test/support/toy-worker.ts'

const STREAMS = scale(50, 12)
const LEAVES = scale(20, 4)
const TIMEOUT_MS = 300_000

describe('R5: an API process is killed', () => {
  it('with open streams, and none of its work continues', { timeout: TIMEOUT_MS }, async ({
    open,
  }) => {
    const tiers = await open()
    await tiers.startToyWorker(64)
    const doomed = await tiers.startApi()
    let flowing = 0
    const cut = Array.from({ length: STREAMS }, () =>
      readCompletion(doomed.url, toyBody('stepMs=20', 30_000), {
        onChunk: ({ chunkAtMs }) => {
          if (chunkAtMs.length === 1) flowing += 1
        },
      }).catch(() => 'cut'),
    )
    await timeUntil(() => flowing === STREAMS)
    const bystander = tiers.read('stepMs=20', 200)
    const keyed = { headers: { 'idempotency-key': 'r5' } }
    const whole = toyBody('stepMs=20', 150, false)
    const first = readCompletion(doomed.url, whole, keyed).catch(() => 'cut')
    await timeUntil(async () => (await tiers.numHeld()) === STREAMS + 2)
    doomed.kill('SIGKILL')
    const again = readCompletion(tiers.api.url, whole, keyed)
    // The remaining requests are the bystander's, and the one that the same key repeats.
    const stoppedMs = await timeUntil(async () => (await tiers.numHeld()) <= 2)
    const [retried, other] = [await again, await bystander]
    report('R5', {
      streams: STREAMS,
      'jobs stopped after ms': stoppedMs,
      "same-key retry's status": retried.status,
      'bystander intact': String(other.text === toyText(200)),
    })
    expect(await Promise.all([...cut, first])).toEqual(Array(STREAMS + 1).fill('cut'))
    expect(retried.text).toBe(toyText(150))
    expect(other.text).toBe(toyText(200))
    // The retry is a job of its own; nothing of the dead process's runs on. A client has its answer
    // a moment before the place of its job is free.
    await timeUntil(async () => (await tiers.numHeld()) === 0)
  })
})

describe('R6: a client leaves', () => {
  it.for([
    ['while it is queued', 'stepMs=20', true, 0],
    ['before its first token', 'hang', true, 16],
    ['in the middle of its stream', 'stepMs=20', true, 16],
    ['while it waits for a whole answer', 'stepMs=20', false, 16],
  ] as const)(
    '%s, and its place is free at once',
    { timeout: TIMEOUT_MS },
    async ([name, prompt, isStream, slots], { open }) => {
      const tiers = await open()
      if (slots > 0) await tiers.startToyWorker(slots)
      const freedMs: number[] = []
      for (let round = 0; round < LEAVES; round += 1) {
        const abort = new AbortController()
        let hasText = false
        const leaving = readCompletion(tiers.api.url, toyBody(prompt, 10_000, isStream), {
          signal: abort.signal,
          onChunk: ({ text }) => {
            hasText ||= text !== ''
          },
        }).catch(() => 'left')
        const place = slots > 0 ? tiers.numHeld : tiers.numWaiting
        await timeUntil(async () => (await place()) === 1)
        if (name.includes('middle')) await timeUntil(() => hasText)
        abort.abort()
        expect(await leaving).toBe('left')
        freedMs.push(await timeUntil(async () => (await place()) === 0))
      }
      const runs = await tiers.numRuns()
      report(`R6 (${name})`, {
        leaves: LEAVES,
        'freed p50 ms': quantile(freedMs, 0.5),
        'freed p99 ms': quantile(freedMs, 0.99),
      })
      // A job is held a moment before its run begins.
      if (slots === 0) expect(runs).toBe(0)
      else expect(runs).toBeLessThanOrEqual(LEAVES)
    },
  )
})

describe('R22: a client stops reading', () => {
  it('and its run stops, so that others get its slot', { timeout: TIMEOUT_MS }, async ({
    open,
  }) => {
    const tiers = await open()
    await tiers.startToyWorker(16)
    const slow = await tiers.post(toyBody('flood', 200_000))
    const reader = defined(slow.body).getReader()
    await reader.read()
    // Beyond its buffers the run is stopped, and its slot serves others.
    const pausedMs = await timeUntil(async () => (await tiers.numHeld()) === 0)
    const seen = await Promise.all(
      Array.from({ length: scale(20, 4) }, () => tiers.read('stepMs=2', 200)),
    )
    // The system's buffers grow for a while, which a short run fills; then it stays stopped.
    const isFreeForLong = async (): Promise<boolean> => {
      for (let look = 0; look < 10; look += 1) {
        if ((await tiers.numHeld()) > 0) return false
        await sleep(100)
      }
      return true
    }
    const settledMs = await timeUntil(isFreeForLong)
    report('R22', {
      'stopped after ms': pausedMs,
      'free for good after ms': settledMs,
      'other streams intact': seen.filter(({ text }) => text === toyText(200)).length,
    })
    expect(seen.every(({ text }) => text === toyText(200))).toBe(true)
    await reader.cancel()
  })
})
