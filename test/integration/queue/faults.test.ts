import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import type { OpenSubmitter } from '#api/jobs/submit.ts'
import { openRedis } from '#shared/queue/connection.ts'
import type { PrivateRedis, ToyProcess } from '#test/support/queue.ts'
import {
  eventually,
  freshPrefix,
  log,
  openTestSubmitter,
  readAll,
  spawnToyWorker,
  startRedis,
  toyRequest,
} from '#test/support/queue.ts'
import { toyText } from '#test/support/toy-worker.ts'

describe('a job survives', () => {
  let redis: PrivateRedis
  let submitter: OpenSubmitter
  let prefix: string
  let workers: ToyProcess[]

  const spawnWorker = async (): Promise<ToyProcess> => {
    const worker = await spawnToyWorker(redis.url, prefix)
    workers.push(worker)
    return worker
  }

  /** Starts streams and calls back, with the length of each text so far, once each has one. */
  const stream = async (
    count: number,
    tokens: number,
    onFlow: (lengths: readonly number[]) => Promise<void> | void,
  ) => {
    const lengths = new Array<number>(count).fill(0)
    const reading = lengths.map((_, i) =>
      readAll(submitter.submit(toyRequest('stepMs=10', tokens)), (text) => {
        lengths[i] = text.length
      }),
    )
    await eventually(() => lengths.every((length) => length > 0))
    await onFlow(lengths)
    return Promise.all(reading)
  }

  beforeEach(async () => {
    redis = await startRedis()
    prefix = freshPrefix()
    submitter = await openTestSubmitter(redis.url, prefix)
    workers = []
  })

  afterEach(async () => {
    await submitter.close()
    for (const worker of workers) worker.kill('SIGKILL')
    await redis.close()
  })

  it('the death of its worker: the text is that of an undisturbed run', async () => {
    const first = await spawnWorker()
    await spawnWorker()
    const seen = await stream(8, 150, () => first.kill('SIGKILL'))
    for (const { text, starts, results } of seen) {
      expect({ text, starts, results }).toEqual({ text: toyText(150), starts: 1, results: 1 })
    }
  })

  it('a worker that is frozen and thawed: nothing appears twice', async () => {
    const first = await spawnWorker()
    const seen = await stream(4, 200, async (lengths) => {
      first.kill('SIGSTOP')
      await spawnWorker()
      const frozen = [...lengths]
      const whole = toyText(200).length
      // The other worker continues all unfinished ones before the first one does.
      await eventually(() =>
        lengths.every((length, i) => length === whole || length > (frozen[i] ?? 0)),
      )
      first.kill('SIGCONT')
    })
    for (const { text, results } of seen) {
      expect({ text, results }).toEqual({ text: toyText(200), results: 1 })
    }
  })

  it('a stopping worker, which hands its jobs back and exits', async () => {
    const first = await spawnWorker()
    let exitCode: number | null = -1
    const seen = await stream(4, 150, async () => {
      await spawnWorker()
      first.kill('SIGTERM')
      exitCode = await first.exited
    })
    expect(exitCode).toBe(0)
    for (const { text } of seen) expect(text).toBe(toyText(150))
  })

  it('FLUSHALL', async () => {
    await spawnWorker()
    const admin = await openRedis(redis.url, 'worker', log)
    const seen = await stream(4, 150, async () => {
      await admin.flushall()
    })
    admin.disconnect()
    for (const { text, results } of seen) {
      expect({ text, results }).toEqual({ text: toyText(150), results: 1 })
    }
  })

  it('FLUSHALL while it waits for a worker', async () => {
    const admin = await openRedis(redis.url, 'worker', log)
    const reading = readAll(submitter.submit(toyRequest('late', 20)))
    const queue = submitter.producer.queue('completion', 'toy')
    await eventually(async () => (await queue.getPrioritizedCount()) === 1)
    await admin.flushall()
    admin.disconnect()
    await eventually(async () => (await queue.getPrioritizedCount()) === 1)
    await spawnWorker()
    expect((await reading).text).toBe(toyText(20))
  })

  it('the death and restart of Redis in the middle of its stream', async () => {
    await spawnWorker()
    const seen = await stream(4, 300, async () => {
      await redis.kill()
      await new Promise((resolve) => setTimeout(resolve, 1000))
      await redis.start()
    })
    for (const { text, results } of seen) {
      expect({ text, results }).toEqual({ text: toyText(300), results: 1 })
    }
  })

  it('jobs beside one that kills its worker, which is dead-lettered when it did so twice on its own', async () => {
    let deaths = 0
    let isOver = false
    const respawn = async (): Promise<void> => {
      while (!isOver) {
        const worker = await spawnWorker()
        // The verdict may fall while the next worker is still starting.
        if (isOver) worker.kill('SIGKILL')
        await worker.exited
        if (!isOver) deaths += 1
      }
    }
    const respawning = respawn()
    const good = Array.from({ length: 15 }, () =>
      readAll(submitter.submit(toyRequest('slowStart', 30))),
    )
    const poison = readAll(submitter.submit(toyRequest('poison', 5))).catch((e: unknown) => e)
    const answers = await Promise.all(good)
    const thrown = await poison
    isOver = true
    workers.at(-1)?.kill('SIGKILL')
    await respawning
    expect(answers.map(({ text }) => text)).toEqual(answers.map(() => toyText(30)))
    expect(thrown).toMatchObject({ kind: 'internal', code: 'worker_crashed' })
    expect(deaths).toBe(3)
  })
})
