import { describe, expect } from 'vitest'

import { defined } from '#shared/json.ts'
import { completionBody, readCompletion, type Seen } from '#test/support/fault-client.ts'
import { isFull, quantile, report, scale } from '#test/support/fault-report.ts'
import { type FaultTiers, openFaultTiers, type TierProcess } from '#test/support/fault-tiers.ts'
import { createRandom } from '#test/support/random.ts'
import { it } from '#test/support/services.ts'

const random = createRandom()

const KILLS = Number(process.env.FAULT_KILLS ?? scale(100, 3))
const WORKERS = 3
const STREAMS = 4
const TOKENS = 250
/**
 * A silence around a kill that is longer than this means that the stream was on the dead worker.
 */
const HIT_MS = 300
const TIMEOUT_MS = 600_000

const REQUESTS = [
  completionBody(TOKENS),
  completionBody(TOKENS, { temperature: 1, seed: 7, prompt: 'The old lighthouse' }),
  completionBody(TOKENS, { prompt: 'A dog and a cat', frequency_penalty: 1.1 }),
  completionBody(TOKENS, { temperature: 1.3, top_p: 0.95, seed: 99, prompt: 'In the morning' }),
]

describe('R1: a worker is killed in the middle of streams', () => {
  it('without a failed request or a changed byte', { timeout: TIMEOUT_MS }, async ({
    databaseUrl,
    redisUrl,
    keyPrefix,
    folder,
  }) => {
    const tiers = openFaultTiers({ databaseUrl, redisUrl, keyPrefix, folder })
    try {
      const api = await tiers.startApi()
      const pool: TierProcess[] = []
      for (let i = 0; i < (isFull ? WORKERS : 2); i += 1) pool.push(await tiers.startWorker())
      const expected: string[] = []
      for (const body of REQUESTS) expected.push((await readCompletion(api.url, body)).text)
      expect(new Set(expected).size).toBe(REQUESTS.length)

      const killedAtMs: number[] = []
      const done = await streamWhile(api.url, () => killAtRandom(tiers, pool, killedAtMs))
      const changed = done.filter(({ index, seen }) => seen.text !== expected[index])
      const failed = done.filter(({ seen }) => seen.status !== 200 || seen.error !== undefined)
      const gaps = done.flatMap(({ seen }) => gapsOf(seen, killedAtMs))
      report('R1', {
        kills: killedAtMs.length,
        streams: done.length,
        'interruptions of a stream': gaps.length,
        failed: failed.length,
        'with another byte': changed.length,
        'gap p50 ms': quantile(gaps, 0.5),
        'gap p99 ms': quantile(gaps, 0.99),
      })
      expect(failed.map(({ seen }) => seen.error)).toEqual([])
      expect(
        changed.map(({ index, seen }) => firstDifference(seen.text, defined(expected[index]))),
      ).toEqual([])
      expect(done.every(({ seen }) => seen.numDone === 1)).toBe(true)
      expect(gaps.length).toBeGreaterThan(KILLS / 4)
    } finally {
      await tiers.stop()
    }
  })
})

/** Keeps the streams flowing while the work goes on; all of them are read to their end. */
async function streamWhile(
  url: string,
  work: () => Promise<void>,
): Promise<{ index: number; seen: Seen }[]> {
  const done: { index: number; seen: Seen }[] = []
  let isOver = false
  const flow = async (first: number): Promise<void> => {
    for (let index = first; !isOver; index = (index + 1) % REQUESTS.length) {
      done.push({ index, seen: await readCompletion(url, defined(REQUESTS[index])) })
    }
  }
  const flowing = Array.from({ length: STREAMS }, (_, stream) => flow(stream))
  try {
    await work()
  } finally {
    isOver = true
  }
  await Promise.all(flowing)
  return done
}

async function killAtRandom(
  tiers: FaultTiers,
  pool: TierProcess[],
  killedAtMs: number[],
): Promise<void> {
  while (killedAtMs.length < KILLS) {
    await new Promise((resolve) => setTimeout(resolve, 200 + random() * 800))
    const busy = (await tiers.heartbeats()).filter(({ queues }) => (queues[0]?.active ?? 0) > 0)
    const victim = pool.findIndex(({ pid }) => busy.some((heartbeat) => heartbeat.pid === pid))
    if (victim < 0) continue
    const [killed] = pool.splice(victim, 1)
    defined(killed).kill('SIGKILL')
    killedAtMs.push(performance.now())
    pool.push(await tiers.startWorker())
  }
}

/** Where two texts part, for the message of a failure. */
function firstDifference(text: string, expected: string): string {
  let at = 0
  while (at < text.length && text[at] === expected[at]) at += 1
  return `at ${at}: "${text.slice(at, at + 20)}" for "${expected.slice(at, at + 20)}"`
}

/** The silences of a stream within which a worker was killed. */
function gapsOf({ chunkAtMs }: Seen, killedAtMs: readonly number[]): number[] {
  return chunkAtMs.slice(1).flatMap((atMs, index) => {
    const from = defined(chunkAtMs[index])
    const isHit = atMs - from > HIT_MS && killedAtMs.some((at) => at > from - 50 && at < atMs)
    return isHit ? [atMs - from] : []
  })
}
