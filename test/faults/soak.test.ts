import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

import { describe, expect, it } from 'vitest'

import { ServiceError } from '#shared/errors.ts'
import { defined } from '#shared/json.ts'
import { openFaultPlace } from '#test/support/fault-place.ts'
import { isFull, report, scale } from '#test/support/fault-report.ts'
import { openToyTiers, type ToyTiers, timeUntil } from '#test/support/fault-toy.ts'
import { type FaultWorld, openFaultWorld, sleep } from '#test/support/fault-world.ts'
import { residentMib } from '#test/support/process-use.ts'
import { readAll, type ToyProcess, toyRequest } from '#test/support/queue.ts'
import { toyText } from '#test/support/toy-worker.ts'
import { watchProcess } from '#test/support/watched-process.ts'

// Uncollected memory is not a leak.
setFlagsFromString('--expose_gc')
const collect = runInNewContext('gc') as () => void
const ROUNDS = 5
const GROWTH_MIB_PER_100K_MAX = 1
const JOBS = Number(process.env.SOAK_JOBS ?? scale(100_000, 1500))
/** From so many jobs on, what is filled once has been filled and resident memory says something. */
const LONG_JOBS = 1_000_000
const JOB_ROUNDS = JOBS < LONG_JOBS ? ROUNDS : 20
const JOBS_PER_ROUND = JOBS / JOB_ROUNDS
const IN_FLIGHT = 64
const ATTEMPTS_MAX = 10
const REQUESTS_PER_ROUND = scale(2000, 100)
/** The most that three rounds may add; the first two fill caches. */
const REQUESTS_HEAP_MIB_MAX = 4

/** The memory of the two processes after a round, in MiB. */
interface Held {
  readonly owner: number
  readonly worker: number
  readonly ownerResident: number
  readonly workerResident: number
  readonly handles: number
}

describe('R21: many jobs, one in a hundred abandoned', () => {
  it('leave nothing behind', { timeout: 400_000 + JOBS * 4 }, async () => {
    const world = await openFaultWorld()
    const warnings: string[] = []
    const onWarning = (warning: Error): void => void warnings.push(warning.message)
    process.on('warning', onWarning)
    try {
      const worker = await world.spawnWorker(32)
      const refused: unknown[] = []
      await runRound(world, refused)
      const seen: Held[] = []
      let wrong = 0
      for (let round = 0; round < JOB_ROUNDS; round += 1) {
        wrong += await runRound(world, refused)
        seen.push(await measure(worker))
      }
      // The first quarter of a long run still fills what is filled once.
      const settled = seen.slice(JOBS < LONG_JOBS ? 0 : JOB_ROUNDS / 4)
      const growth = (name: keyof Held): number =>
        (slopeOf(settled.map((one) => one[name])) / JOBS_PER_ROUND) * 100_000
      const handles = seen.map((one) => one.handles)
      report('R21', {
        jobs: JOBS_PER_ROUND * JOB_ROUNDS,
        'wrong answers': wrong,
        'told to come back': refused.length,
        'owner heap MiB per 100,000 jobs': growth('owner'),
        'worker heap MiB per 100,000 jobs': growth('worker'),
        'owner resident MiB per 100,000 jobs': growth('ownerResident'),
        'worker resident MiB per 100,000 jobs': growth('workerResident'),
        'owner resident MiB': seen.map((one) => Math.round(one.ownerResident)).join(' '),
        'worker resident MiB': seen.map((one) => Math.round(one.workerResident)).join(' '),
        'handles at first and last': `${handles[0]} and ${handles.at(-1)}`,
        'jobs still owned': world.submitter.ledger.size,
        'listener warnings': warnings.length,
      })
      expect(wrong).toBe(0)
      expect(world.submitter.ledger.size).toBe(0)
      // A short run is all warm-up: caches are not filled yet.
      if (isFull) {
        expect(growth('owner')).toBeLessThan(GROWTH_MIB_PER_100K_MAX)
        expect(growth('worker')).toBeLessThan(GROWTH_MIB_PER_100K_MAX)
      }
      if (JOBS >= LONG_JOBS) {
        expect(growth('ownerResident')).toBeLessThan(GROWTH_MIB_PER_100K_MAX)
        expect(growth('workerResident')).toBeLessThan(GROWTH_MIB_PER_100K_MAX)
      }
      expect(warnings).toEqual([])
      expect(Math.max(...handles) - Math.min(...handles)).toBeLessThan(IN_FLIGHT)
    } finally {
      process.off('warning', onWarning)
      await world.close()
    }
  })
})

async function measure(worker: ToyProcess): Promise<Held> {
  collect()
  return {
    owner: process.memoryUsage().heapUsed / 2 ** 20,
    worker: await collectedHeapMib(worker),
    ownerResident: residentMib(process.pid),
    workerResident: residentMib(worker.child.pid ?? 0),
    handles: process.getActiveResourcesInfo().length,
  }
}

describe('R21: many requests, one in a hundred abandoned', () => {
  it('leave nothing behind in the API process', { timeout: 400_000 }, async () => {
    const heap = await watchProcess()
    const scene = await openScene(heap.env)
    try {
      await scene.tiers.startToyWorker(32)
      const seen: number[] = []
      for (let round = 0; round < ROUNDS; round += 1) {
        expect(await requestMany(scene.tiers)).toBe(0)
        seen.push(await heap.collectedMib())
      }
      // The last that was left is stopped within a step.
      await timeUntil(async () => (await scene.tiers.numHeld()) === 0)
      report('R21 (API process)', {
        requests: REQUESTS_PER_ROUND * ROUNDS,
        'heap MiB after each fifth': seen.map((mib) => mib.toFixed(1)).join(' '),
      })
      expect(defined(seen.at(-1)) - defined(seen[1])).toBeLessThan(REQUESTS_HEAP_MIB_MAX)
    } finally {
      await scene.close()
    }
  })
})

async function openScene(env: Readonly<Record<string, string>>) {
  const place = await openFaultPlace('soak')
  const tiers = await openToyTiers({ ...place.settings, env })
  return { tiers, close: () => place.close(tiers) }
}

/** Sends requests, some of which are left in the middle; returns how many went wrong. */
async function requestMany(tiers: ToyTiers): Promise<number> {
  let begun = 0
  let wrong = 0
  const flow = async (): Promise<void> => {
    while (begun < REQUESTS_PER_ROUND) {
      begun += 1
      const abort = new AbortController()
      if (begun % 100 === 0) {
        const options = { signal: abort.signal, onChunk: () => abort.abort() }
        await tiers.read('stepMs=5', 1000, options).catch(() => {})
        continue
      }
      const { text } = await tiers.read('x', 2)
      if (text !== toyText(2)) wrong += 1
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, flow))
  return wrong
}

/** The memory of a worker after a collection. */
function collectedHeapMib({ child, kill }: ToyProcess): Promise<number> {
  return new Promise((resolve) => {
    const listen = (chunk: Buffer): void => {
      const bytes = /heap (\d+)/.exec(chunk.toString())?.[1]
      if (bytes === undefined) return
      child.stdout?.off('data', listen)
      resolve(Number(bytes) / 2 ** 20)
    }
    child.stdout?.on('data', listen)
    kill('SIGUSR2')
  })
}

/** Runs jobs, some of which are left in the middle; returns how many answers were wrong. */
async function runRound({ submitter }: FaultWorld, refused: unknown[]): Promise<number> {
  let begun = 0
  let wrong = 0
  const run = async (isLeft: boolean): Promise<void> => {
    if (isLeft) {
      for await (const event of submitter.submit(toyRequest('stepMs=5', 1000))) {
        if (event.type === 'delta') break
      }
      return
    }
    const { text } = await readAll(submitter.submit(toyRequest('x', 2)))
    if (text !== toyText(2)) wrong += 1
  }
  const flow = async (): Promise<void> => {
    while (begun < JOBS_PER_ROUND) {
      begun += 1
      const isLeft = begun % 100 === 0
      // On a machine that stalls, Redis is late; a client that receives a Retry-After repeats its
      // request.
      for (let attempt = 1; ; attempt += 1) {
        try {
          await run(isLeft)
          break
        } catch (error) {
          const isLater = error instanceof ServiceError && error.kind === 'overloaded'
          if (!isLater || attempt === ATTEMPTS_MAX) throw error
          refused.push(error)
          await sleep(1000)
        }
      }
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
