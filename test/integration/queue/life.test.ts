import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { OpenSubmitter } from '#api/jobs/submit.ts'
import { ServiceError } from '#shared/errors.ts'
import type { PrivateRedis } from '#test/support/queue.ts'
import {
  eventually,
  freshPrefix,
  openTestSubmitter,
  readAll,
  startRedis,
  toyRequest,
} from '#test/support/queue.ts'
import { startToyWorker, toyText } from '#test/support/toy-worker.ts'

describe('a job', () => {
  let redis: PrivateRedis
  let submitter: OpenSubmitter
  let worker: Awaited<ReturnType<typeof startToyWorker>>
  const prefix = freshPrefix()

  beforeAll(async () => {
    redis = await startRedis()
    submitter = await openTestSubmitter(redis.url, prefix)
    worker = await startToyWorker(redis.url, prefix, 4)
  })

  afterAll(async () => {
    await submitter.close()
    await worker.stop()
    await redis.close()
  })

  it('is answered with the replies of its worker, in order and once', async () => {
    const seen = await readAll(submitter.submit(toyRequest('hello', 100)))
    expect(seen).toMatchObject({ text: toyText(100), starts: 1, results: 1 })
  })

  it.each([
    ['bad', { kind: 'invalidRequest', message: 'refused by the toy', param: 'prompt' }],
    ['bug', { kind: 'internal', message: expect.not.stringContaining('secret') }],
  ])('that fails (%s) throws a typed error', async (prompt, error) => {
    const thrown = await readAll(submitter.submit(toyRequest(prompt, 1))).catch((e: unknown) => e)
    expect(thrown).toBeInstanceOf(ServiceError)
    expect(thrown).toMatchObject(error)
  })

  it('runs beside others up to the number of slots, and all are answered', async () => {
    const all = await Promise.all(
      Array.from({ length: 40 }, (_, i) =>
        readAll(submitter.submit(toyRequest('stepMs=1', 10 + i))),
      ),
    )
    expect(all.map(({ text }) => text)).toEqual(all.map((_, i) => toyText(10 + i)))
  })

  it('leaves neither a queued job nor a ledger entry', async () => {
    await readAll(submitter.submit(toyRequest('hello', 3)))
    const queue = submitter.producer.queue('completion', 'toy')
    await eventually(async () => {
      const counts = await queue.getJobCounts()
      return Object.values(counts).every((count) => count === 0)
    })
    expect(submitter.ledger.size).toBe(0)
  })

  it('whose deadline passes before it runs is answered with a timeout', async () => {
    const request = toyRequest('hang', 1, { deadlineAtMs: Date.now() + 600 })
    const thrown = await readAll(submitter.submit(request)).catch((e: unknown) => e)
    expect(thrown).toMatchObject({ kind: 'deadline' })
  })
})
