import { Redis } from 'ioredis'
import { expect } from 'vitest'

import { adopt } from '#api/jobs/durable-job.ts'
import type { OwnedJob } from '#api/jobs/inference-job.ts'
import { systemClock } from '#shared/clock.ts'
import { createLogger } from '#shared/logger.ts'
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
