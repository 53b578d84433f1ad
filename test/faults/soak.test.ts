import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

import { describe, expect, it } from 'vitest'

import { report, scale } from '#test/support/fault-report.ts'
import { residentMib } from '#test/support/fault-toy.ts'
import { openFaultWorld, type FaultWorld } from '#test/support/fault-world.ts'
import { readAll, toyRequest } from '#test/support/queue.ts'
import { toyText } from '#test/support/toy-worker.ts'

// What merely awaits its collection is no leak.
setFlagsFromString('--expose_gc')
const collect = runInNewContext('gc') as () => void
const ROUNDS = 5
const JOBS_PER_ROUND = scale(10_000, 300)
const IN_FLIGHT = 64

describe('R21: many jobs, one in a hundred abandoned', () => {
  it('leave nothing behind', { timeout: 400_000 }, async () => {
    const world = await openFaultWorld()
    const warnings: string[] = []
    const onWarning = (warning: Error): void => void warnings.push(warning.message)
    process.on('warning', onWarning)
    try {
      const worker = await world.spawnWorker(32)
      const pid = worker.child.pid ?? 0
      await runRound(world)
      const seen: { owner: number; worker: number; handles: number }[] = []
      let wrong = 0
      for (let round = 0; round < ROUNDS; round += 1) {
        wrong += await runRound(world)
        collect()
        seen.push({
          owner: process.memoryUsage().heapUsed / 2 ** 20,
          worker: residentMib(pid),
          handles: process.getActiveResourcesInfo().length,
        })
      }
      const per100k = (values: readonly number[]): number =>
        (slopeOf(values) / JOBS_PER_ROUND) * 100_000
      const handles = seen.map((one) => one.handles)
      report('R21', {
        jobs: JOBS_PER_ROUND * ROUNDS,
        'wrong answers': wrong,
        'owner heap MiB per 100,000 jobs': per100k(seen.map(({ owner }) => owner)),
        'worker memory MiB per 100,000 jobs': per100k(seen.map((one) => one.worker)),
        'handles at first and last': `${handles[0]} and ${handles.at(-1)}`,
        'jobs still owned': world.submitter.ledger.size,
        'listener warnings': warnings.length,
      })
      expect(wrong).toBe(0)
      expect(world.submitter.ledger.size).toBe(0)
      expect(warnings).toEqual([])
      expect(Math.max(...handles) - Math.min(...handles)).toBeLessThan(IN_FLIGHT)
    } finally {
      process.off('warning', onWarning)
      await world.close()
    }
  })
})

/** Runs jobs, some of which are left in the middle; returns how many answers were wrong. */
async function runRound({ submitter }: FaultWorld): Promise<number> {
  let begun = 0
  let wrong = 0
  const flow = async (): Promise<void> => {
    while (begun < JOBS_PER_ROUND) {
      begun += 1
      if (begun % 100 === 0) {
        for await (const event of submitter.submit(toyRequest('stepMs=5', 1000))) {
          if (event.type === 'delta') break
        }
        continue
      }
      const { text } = await readAll(submitter.submit(toyRequest('x', 2)))
      if (text !== toyText(2)) wrong += 1
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, flow))
  return wrong
}

/** By how much a value grows from one measurement to the next, by least squares. */
function slopeOf(values: readonly number[]): number {
  const middle = (values.length - 1) / 2
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  const rise = values.reduce((sum, value, at) => sum + (at - middle) * (value - mean), 0)
  const run = values.reduce((sum, _, at) => sum + (at - middle) ** 2, 0)
  return rise / run
}
