import { join } from 'node:path'

import { afterEach, describe, expect, it, vi } from 'vitest'

import { report, scale } from '#test/support/fault-report.ts'
import { countWrong, type FaultWorld, openFaultWorld, sleep } from '#test/support/fault-world.ts'
import { readAll, type ToyProcess, toyRequest } from '#test/support/queue.ts'
import { toyText } from '#test/support/toy-worker.ts'

const SHIFT_MS = 300_000
const PRELOAD = join(import.meta.dirname, '../support/shifted-clock.mjs')
const JOBS = scale(200, 20)
const TIMEOUT_MS = 120_000

/** Spawns a worker whose clock is wrong. */
async function spawnShifted(world: FaultWorld, shiftMs: number): Promise<ToyProcess> {
  vi.stubEnv('NODE_OPTIONS', `--import=${PRELOAD}`)
  vi.stubEnv('CLOCK_SHIFT_MS', String(shiftMs))
  try {
    return await world.spawnWorker()
  } finally {
    vi.unstubAllEnvs()
  }
}

// A short deadline: a wrong clock would end the job before it began, or never.
const request = (prompt: string, tokens: number) =>
  toyRequest(prompt, tokens, { deadlineAtMs: Date.now() + 20_000 })

describe('R20: a clock is wrong', () => {
  afterEach(() => void vi.useRealTimers())

  it.each([SHIFT_MS, -SHIFT_MS])(
    "by %i ms in a worker, and jobs keep their owner's time",
    { timeout: TIMEOUT_MS },
    async (shiftMs) => {
      const world = await openFaultWorld()
      try {
        const worker = await spawnShifted(world, shiftMs)
        const before = await Promise.all(
          Array.from({ length: JOBS }, () =>
            readAll(world.submitter.submit(request('stepMs=2', 20))),
          ),
        )
        const seen = await world.stream(4, 200, () => worker.kill('SIGUSR2'))
        const expiring = readAll(
          world.submitter.submit(toyRequest('hang', 1, { deadlineAtMs: Date.now() + 1000 })),
        ).catch((error: unknown) => error)
        expect(await expiring).toMatchObject({ kind: 'deadline' })
        const wrong = countWrong(before, toyText(20)) + countWrong(seen, toyText(200))
        report(`R20 (worker by ${shiftMs / 60_000} min, then set)`, {
          jobs: before.length + seen.length,
          'lost or expired': wrong,
        })
        expect(wrong).toBe(0)
      } finally {
        await world.close()
      }
    },
  )

  it('and set while jobs run, and none expires', { timeout: TIMEOUT_MS }, async () => {
    const world = await openFaultWorld()
    try {
      await world.spawnWorker()
      const seen = await world.stream(8, 200, async () => {
        for (const shiftMs of [SHIFT_MS, -SHIFT_MS, 0]) {
          vi.useFakeTimers({
            toFake: ['Date'],
            now: performance.timeOrigin + performance.now() + shiftMs,
          })
          await sleep(400)
        }
      })
      vi.useRealTimers()
      const wrong = countWrong(seen, toyText(200))
      report('R20 (owner set by ±5 min)', { streams: seen.length, 'lost or expired': wrong })
      expect(wrong).toBe(0)
    } finally {
      await world.close()
    }
  })
})
