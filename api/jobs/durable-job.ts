import type { Redis } from 'ioredis'

import type { Clock } from '#shared/clock.ts'
import type { Logger } from '#shared/logger.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { parseFrame, type ReplyInbox } from '#shared/queue/reply-inbox.ts'

import { unavailable } from './admission.ts'
import type { OwnedJob } from './inference-job.ts'

/** As long as a client may repeat the request. */
const DURABLE_TTL_MS = 86_400_000
const FRAMES_PER_READ = 500

interface Context {
  readonly redis: Redis
  readonly inbox: ReplyInbox
  readonly clock: Clock
  readonly log: Logger
  readonly cipher?: ContentCipher | undefined
}

/**
 * Lets a job outlive this process: its replies have their own stream, which other processes can
 * read. Throws when another process has begun the request, because this one paused for too long.
 */
export async function makeDurable({ redis, inbox }: Context, job: OwnedJob): Promise<void> {
  const isKept = await keepDurable(redis, job).catch((cause: unknown) => {
    throw unavailable(cause)
  })
  if (!isKept) throw unavailable(new Error('the lease of the request was lost'))
  inbox.follow(job.envelope.replyTo, '0-0')
}

/**
 * Creates the stream if it is missing, and stores the data that another process needs; false when
 * another process has begun the request.
 */
export async function keepDurable(redis: Redis, job: OwnedJob): Promise<boolean> {
  const { replyTo } = job.envelope
  await redis.pipeline().xadd(replyTo, '*', 'f', '[]').pexpire(replyTo, DURABLE_TTL_MS).exec()
  return job.keep()
}

/**
 * Adopts a job of a dead process: replays all replies of its workers and follows new ones. A job
 * that already produced replies resumes after the last one.
 */
export async function adopt(context: Context, job: OwnedJob): Promise<void> {
  const { inbox, clock, log } = context
  const { jobId, replyTo, deadlineAtMs } = job.envelope
  const lastId = await replay(context, job).catch((cause: unknown) => {
    throw unavailable(cause)
  })
  log.info(
    { operation: 'job.adopt', jobId, phase: job.life.phase },
    'job of a lost process adopted',
  )
  if (job.life.phase === 'ended') return
  if (clock.now() >= deadlineAtMs) job.apply({ type: 'deadline' })
  else inbox.follow(replyTo, lastId)
}

async function replay({ redis, clock, log, cipher }: Context, job: OwnedJob): Promise<string> {
  let lastId = '0-0'
  for (;;) {
    const from = `(${lastId}`
    const { replyTo } = job.envelope
    const frames = await redis.xrangeBuffer(replyTo, from, '+', 'COUNT', FRAMES_PER_READ)
    for (const [id, fields] of frames) {
      for (const reply of parseFrame(fields, { replyTo, cipher, log })) {
        job.onReply(reply, clock.monotonic())
      }
      lastId = id.toString()
    }
    if (frames.length < FRAMES_PER_READ) return lastId
  }
}
