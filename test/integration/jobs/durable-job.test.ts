import { Redis } from 'ioredis'
import { expect } from 'vitest'

import { adopt } from '#api/jobs/durable-job.ts'
import { OwnedJob } from '#api/jobs/inference-job.ts'
import type { JobEvent } from '#api/jobs/observers.ts'
import { systemClock } from '#shared/clock.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { Reply } from '#shared/contracts/reply.ts'
import { createLogger } from '#shared/logger.ts'
import type { Ticket } from '#shared/queue/producer.ts'
import type { ReplyInbox } from '#shared/queue/reply-inbox.ts'
import { openTestSubmitter, readAll, toyRequest } from '#test/support/queue.ts'
import { it } from '#test/support/services.ts'

const FRAMES = 1200

it('adopts a job with all of its replies, however many, and follows the ones after them', async ({
  redisUrl,
  keyPrefix,
}) => {
  const redis = new Redis(redisUrl)
  const replyTo = `${keyPrefix}:replies-of-job:job_1`
  const writes = redis.pipeline()
  for (let seq = 1; seq <= FRAMES; seq += 1)
    writes.xadd(replyTo, `${seq}-0`, 'f', `[{"seq":${seq}}]`)
  await writes.exec()
  const replies: number[] = []
  const followed: string[][] = []
  const job = {
    envelope: { jobId: 'job_1', replyTo, deadlineAtMs: Number.POSITIVE_INFINITY },
    life: { phase: 'running' },
    onReply: ({ seq }: { readonly seq: number }) => replies.push(seq),
  } as unknown as OwnedJob
  const inbox = { follow: (...from: string[]) => followed.push(from) } as unknown as ReplyInbox
  const log = createLogger({ level: 'silent' })
  await adopt({ redis, inbox, clock: systemClock, log }, job)
  expect(replies).toEqual(Array.from({ length: FRAMES }, (_, index) => index + 1))
  expect(followed).toEqual([[replyTo, `${FRAMES}-0`]])
  redis.disconnect()
})

it('enqueues no job of a request that another process has begun in the meantime', async ({
  redisUrl,
  keyPrefix,
}) => {
  const submitter = await openTestSubmitter(redisUrl, keyPrefix)
  const durable = { adopted: undefined, keep: async () => false }
  const running = readAll(submitter.submit(toyRequest('x', 1, { durable })))
  await expect(running).rejects.toMatchObject({ code: 'service_unavailable', shouldRetry: true })
  expect(await submitter.producer.queue('completion', 'toy').count()).toBe(0)
  await submitter.close()
})

it('ends a job whose reader is too slow, before its events fill the memory', async () => {
  const cancelled: number[] = []
  const actions = {
    resubmit() {},
    cancel: (_job: OwnedJob, epoch: number) => cancelled.push(epoch),
    deadLetter() {},
  }
  const place = { ticket: {} as Ticket, priority: 1, nowMs: 0 }
  const durable = { adopted: undefined, keep: async () => true }
  const job = new OwnedJob({ jobId: 'job_1', epoch: 1 } as JobEnvelope, place, actions, durable)
  const text = 'x'.repeat(1024 ** 2)
  const reply = (seq: number, body: object): Reply =>
    ({ jobId: 'job_1', epoch: 1, runId: 'r', seq, ...body }) as Reply
  job.onReply(reply(1, { type: 'started', workerId: 'w', promptTokens: 1 }), 0)
  for (let seq = 2; seq <= 80; seq += 1) {
    job.onReply(reply(seq, { type: 'delta', deltas: [{ index: 0, text, tokenIds: [] }] }), 0)
  }
  const events: JobEvent[] = []
  const read = async (): Promise<void> => {
    for await (const event of job.buffer.drain()) events.push(event)
  }
  await expect(read()).rejects.toMatchObject({ code: 'answer_unread' })
  expect(events).toHaveLength(65)
  expect(cancelled).toEqual([1])
})

it('joins unread deltas of a streamed job in their order, and no other events', async () => {
  const none = () => {}
  const actions = { resubmit: none, cancel: none, deadLetter: none }
  const envelope = { jobId: 'job_1', epoch: 0 } as JobEnvelope
  const job = new OwnedJob(envelope, { ticket: {} as Ticket, priority: 1, nowMs: 0 }, actions)
  const delta = (text: string): JobEvent => ({
    type: 'delta',
    deltas: [{ index: 0, text, tokenIds: [] }],
  })
  job.buffer.push({ type: 'started', workerId: 'w', promptTokens: 1 } as JobEvent, 1)
  for (const text of ['a', 'b', 'c', 'd']) job.buffer.push(delta(text), 1)
  job.buffer.finish()
  const events = await Array.fromAsync(job.buffer.drain())
  expect(
    events.map((event) =>
      event.type === 'delta' ? event.deltas.map(({ text }) => text) : event.type,
    ),
  ).toEqual(['started', ['a', 'b', 'c', 'd']])
})
