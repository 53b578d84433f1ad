import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { OpenSubmitter } from '#api/jobs/submit.ts'
import { ENVELOPE_VERSION, type JobEnvelope } from '#shared/contracts/job.ts'
import { ServiceError } from '#shared/errors.ts'
import { readOldestWaitMs } from '#shared/queue/depth.ts'
import { queueKeys } from '#shared/queue/keys.ts'
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

/** A job that no worker serves. */
const UNSERVED: JobEnvelope<'completion'> = {
  version: ENVELOPE_VERSION,
  jobId: 'job_waiting',
  epoch: 1,
  kind: 'completion',
  modelId: 'unserved',
  organizationId: 'org',
  replyTo: 'replies',
  enqueuedAtMs: 1,
  deadlineAtMs: 2,
  input: toyRequest('late', 1).input,
}

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

  it('stands in its queue as waiting, active or missing, in the order of the question', async () => {
    const { producer, ledger } = submitter
    const leaving = new AbortController()
    const hanging = readAll(
      submitter.submit(toyRequest('hang', 1, { signal: leaving.signal })),
    ).catch(() => 'left')
    await eventually(() => ledger.size === 1)
    const running = [...ledger.jobs].map(({ envelope }) => envelope)
    await producer.enqueue(UNSERVED, 1)
    const jobs = [{ ...UNSERVED, jobId: 'job_missing' }, ...running, UNSERVED]
    await eventually(async () => (await producer.standings(jobs))[1] === 'active')
    expect(await producer.standings(jobs)).toEqual(['missing', 'active', 'waiting'])
    leaving.abort()
    expect(await hanging).toBe('left')
    await producer.cancel(UNSERVED)
    await eventually(async () => (await producer.standings(jobs))[1] === 'missing')
    expect(await producer.standings(jobs)).toEqual(['missing', 'missing', 'missing'])
  })

  it('has waited since it was queued; one that has just left its queue does not count', async () => {
    const reader = new Redis(redis.url)
    const keys = queueKeys(prefix)
    await reader.zadd(keys.bull('completion', UNSERVED.modelId, 'prioritized'), 1, 'job_gone')
    expect(await readOldestWaitMs({ redis: reader, keys }, UNSERVED)).toBeUndefined()
    await submitter.producer.enqueue(UNSERVED, 2)
    const waitedMs = await readOldestWaitMs({ redis: reader, keys }, UNSERVED)
    expect(waitedMs).toBeGreaterThanOrEqual(0)
    expect(waitedMs).toBeLessThan(60_000)
    reader.disconnect()
  })

  it('whose deadline passes before it runs is answered with a timeout', async () => {
    const request = toyRequest('hang', 1, { deadlineAtMs: Date.now() + 600 })
    const thrown = await readAll(submitter.submit(request)).catch((e: unknown) => e)
    expect(thrown).toMatchObject({ kind: 'deadline' })
  })
})
