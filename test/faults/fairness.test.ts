import { Queue } from 'bullmq'
import { describe, expect, it } from 'vitest'

import { queueKeys } from '#shared/queue/keys.ts'
import { quantile, report, scale } from '#test/support/fault-report.ts'
import { countWrong, openFaultWorld, sleep } from '#test/support/fault-world.ts'
import {
  eventually,
  readAll,
  readToyFrame,
  type ToyProcess,
  toyRequest,
} from '#test/support/queue.ts'
import { createRandom } from '#test/support/random.ts'
import { toyText } from '#test/support/toy-worker.ts'

const random = createRandom()

const TIMEOUT_MS = 300_000
const NOISY_WAITING_MAX = 800
const SLOTS = 4
const later = { deadlineAtMs: Date.now() + 600_000 }

describe('R4: a job kills every worker that takes it', () => {
  it('and is dead-lettered, while the jobs beside it are answered', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const world = await openFaultWorld()
    try {
      const poisons = scale(3, 1)
      let deaths = 0
      let isOver = false
      let current: ToyProcess | undefined
      const respawning = (async () => {
        while (!isOver) {
          current = await world.spawnWorker()
          await current.exited
          if (!isOver) deaths += 1
        }
      })()
      const good = Array.from({ length: 15 }, () =>
        readAll(world.submitter.submit(toyRequest('slowStart', 30, later))),
      )
      const bad = Array.from({ length: poisons }, () =>
        readAll(world.submitter.submit(toyRequest('a secret poison', 5, later))).catch(
          (error: unknown) => error,
        ),
      )
      const answers = await Promise.all(good)
      const verdicts = await Promise.all(bad)
      const after = await readAll(world.submitter.submit(toyRequest('x', 5, later)))
      isOver = true
      current?.kill('SIGKILL')
      await respawning
      const records = await world.admin.lrange(queueKeys(world.prefix).deadJobs, 0, -1)
      report('R4', {
        poisons,
        'workers killed': deaths,
        'company answered once': answers.length - countWrong(answers, toyText(30)),
        'records without the prompt': records.filter((text) => !text.includes('secret')).length,
      })
      expect(countWrong(answers, toyText(30))).toBe(0)
      for (const verdict of verdicts) expect(verdict).toMatchObject({ code: 'worker_crashed' })
      expect(after.text).toBe(toyText(5))
      expect(deaths).toBeLessThanOrEqual(3 * poisons)
      expect(records.map((text) => JSON.parse(text))).toMatchObject(
        Array(poisons).fill({ reason: 'worker_crashed' }),
      )
      expect(records.join('')).not.toContain('secret')
    } finally {
      await world.close()
    }
  })
})

describe('R16: one organization floods the queue', () => {
  it('and a quiet one waits hardly longer than alone', { timeout: TIMEOUT_MS }, async () => {
    const world = await openFaultWorld()
    try {
      await world.spawnWorker(SLOTS)
      const quiet = async (): Promise<number> => {
        const from = performance.now()
        await readAll(world.submitter.submit(toyRequest('stepMs=20', 1, later)))
        return performance.now() - from
      }
      const probe = async (): Promise<number[]> => {
        const waits: number[] = []
        for (let i = 0; i < scale(30, 8); i += 1) {
          const before = noisyDone
          waits.push(await quiet())
          overtaken.push(noisyDone - before)
          await sleep(scale(500, 50))
        }
        return waits
      }
      let noisyDone = 0
      const overtaken: number[] = []
      const lonely = await probe()
      const numNoisy = scale(10_000, 600)
      const abort = new AbortController()
      const noisy = { ...later, organizationId: 'noisy', signal: abort.signal }
      const flood: Promise<unknown>[] = []
      while (flood.length < numNoisy) {
        // The queue takes a thousand, whosever they are: what would fill it is held back.
        for (let i = 0; i < 100 && flood.length - noisyDone < NOISY_WAITING_MAX; i += 1) {
          if (flood.length >= numNoisy) break
          const flooding = async (): Promise<void> => {
            while (!abort.signal.aborted) {
              const done = await readAll(world.submitter.submit(toyRequest('stepMs=20', 1, noisy)))
                .then(() => true)
                .catch(() => false)
              if (done) {
                noisyDone += 1
                return
              }
              await sleep(500 + 1000 * random())
            }
          }
          flood.push(flooding())
        }
        if (flood.length - noisyDone >= NOISY_WAITING_MAX) break
        await sleep(20)
      }
      overtaken.length = 0
      const crowded = await probe()
      abort.abort()
      await Promise.all(flood)
      report('R16 (quiet beside noisy)', {
        'noisy jobs': numNoisy,
        'done meanwhile': noisyDone,
        'quiet alone p50 ms': quantile(lonely, 0.5),
        'quiet alone p99 ms': quantile(lonely, 0.99),
        'noisy jobs done before a quiet one p50': quantile(overtaken, 0.5),
        'quiet in the crowd p50 ms': quantile(crowded, 0.5),
        'quiet in the crowd p99 ms': quantile(crowded, 0.99),
      })
      // Alternating, not behind: what occupied the four slots, and what was fetched for them
      // meanwhile.
      expect(quantile(overtaken, 0.5)).toBeLessThanOrEqual(3 * SLOTS)
    } finally {
      await world.close()
    }
  })

  it('and ten with different demands get equal shares', { timeout: TIMEOUT_MS }, async () => {
    const world = await openFaultWorld()
    try {
      const served = Array(10).fill(0) as number[]
      const order: number[] = []
      const all: Promise<unknown>[] = []
      for (const [tenant] of served.entries()) {
        for (let i = 0; i < 20 + 8 * tenant; i += 1) {
          const request = toyRequest('stepMs=5', 1, { ...later, organizationId: `org-${tenant}` })
          all.push(readAll(world.submitter.submit(request)).then(() => order.push(tenant)))
        }
        await sleep(50)
      }
      const flex = { ...later, organizationId: 'org-0', priorityClass: 'flex' as const }
      let flexAfter = 0
      all.push(
        readAll(world.submitter.submit(toyRequest('stepMs=5', 1, flex))).then(() => {
          flexAfter = order.length
        }),
      )
      const queue = world.submitter.producer.queue('completion', 'toy')
      await eventually(async () => (await queue.getPrioritizedCount()) === all.length)
      await world.spawnWorker(4)
      await Promise.all(all)
      for (const tenant of order.slice(0, 150)) served[tenant] = (served[tenant] ?? 0) + 1
      const sum = served.reduce((total, count) => total + count, 0)
      const squares = served.reduce((total, count) => total + count * count, 0)
      const jain = (sum * sum) / (served.length * squares)
      report('R16 (ten tenants)', {
        jobs: order.length,
        'of each in the first 150': served.join(' '),
        'Jain index of the first 150': jain,
        'a job of the low class was served after': flexAfter,
      })
      expect(jain).toBeGreaterThanOrEqual(0.95)
      expect(flexAfter).toBeGreaterThan(0)
    } finally {
      await world.close()
    }
  })
})

describe('R17: jobs and replies arrive twice', () => {
  it('and each is answered once', { timeout: TIMEOUT_MS }, async () => {
    const world = await openFaultWorld()
    try {
      const jobs = scale(500, 50)
      const reading = Array.from({ length: jobs }, () =>
        readAll(world.submitter.submit(toyRequest('stepMs=2', 10, later))),
      )
      const queue = world.submitter.producer.queue('completion', 'toy')
      await eventually(async () => (await queue.getPrioritizedCount()) === jobs)
      const twins = new Queue(queue.name, { connection: world.admin, prefix: world.prefix })
      for (const [index, job] of (await queue.getPrioritized()).entries()) {
        const options = { jobId: `twin-${index}`, priority: 1, removeOnComplete: true }
        await twins.add('completion', job.data, options)
      }
      const repeats = repeatReplies(world.admin, world.prefix)
      await Promise.all([world.spawnWorker(), world.spawnWorker()])
      const seen = await Promise.all(reading)
      await eventually(async () => (await queue.getPrioritizedCount()) === 0)
      const repeated = await repeats.stop()
      const runs = (await world.admin.keys(`${world.prefix}:claim:*`)).length
      const wrong = countWrong(seen, toyText(10))
      report('R17', {
        jobs,
        'second deliveries': jobs,
        'replies repeated': repeated,
        'jobs with a run': runs,
        'answered once': seen.length - wrong,
      })
      expect(wrong).toBe(0)
      expect(runs).toBe(jobs)
      expect(repeated).toBeGreaterThan(jobs)
      await twins.close()
    } finally {
      await world.close()
    }
  })
})

/**
 * Writes every reply frame a second time, as a write that was repeated after a failover would be.
 */
function repeatReplies(admin: Awaited<ReturnType<typeof openFaultWorld>>['admin'], prefix: string) {
  const tap = admin.duplicate()
  tap.on('error', () => {})
  let repeated = 0
  let isOver = false
  const reading = (async () => {
    const names = await tap.keys(`${prefix}:replies:*`)
    const stream = names.find((name) => !name.endsWith(':owner')) ?? ''
    const owner = names.find((name) => name.endsWith(':owner')) ?? ''
    const key = stream || owner.slice(0, -':owner'.length)
    const own = new Set<string>()
    let last = '0-0'
    while (!isOver) {
      const answer = await tap.xreadBuffer('BLOCK', 100, 'STREAMS', key, last)
      for (const [idBytes, fields] of answer?.[0]?.[1] ?? []) {
        const id = idBytes.toString()
        last = id
        if (own.delete(id)) continue
        own.add((await admin.xadd(key, '*', ...fields)) ?? '')
        repeated += readToyFrame(key, fields).length
      }
    }
  })()
  return {
    async stop() {
      isOver = true
      await reading
      tap.disconnect()
      return repeated
    },
  }
}
