import type { Redis } from 'ioredis'

import type { QueueKeys } from '#shared/queue/keys.ts'

const CLAIM_TTL_MS = 3_600_000

/** A queued job that one run claims. */
interface ClaimedJob {
  readonly queuedId: string
  readonly runId: string
  readonly replyTo: string
}

/** The state of a job in Redis. */
export interface Claim {
  /** No other run has claimed it. */
  readonly isClaimed: boolean
  readonly isCancelled: boolean
  readonly isOwnerAlive: boolean
}

interface Question {
  readonly job: ClaimedJob
  readonly resolve: (claim: Claim) => void
  readonly reject: (reason: unknown) => void
}

/** Claims jobs for their runs. Commands of one event-loop turn share a pipeline. */
export class JobClaims {
  readonly #redis: Redis
  readonly #keys: QueueKeys
  #questions: Question[] = []

  constructor({ redis, keys }: { readonly redis: Redis; readonly keys: QueueKeys }) {
    this.#redis = redis
    this.#keys = keys
  }

  /** Claims a job and returns its state. */
  claim(job: ClaimedJob): Promise<Claim> {
    return new Promise((resolve, reject) => {
      this.#questions.push({ job, resolve, reject })
      if (this.#questions.length === 1) setImmediate(() => void this.#askAll())
    })
  }

  /** Whether a job was cancelled and whether its owner lives, without claiming it. */
  async look({ queuedId, replyTo }: Omit<ClaimedJob, 'runId'>): Promise<Omit<Claim, 'isClaimed'>> {
    const { cancelled, owner } = this.#keys
    const [tombstone, life] = await this.#redis.mget(cancelled(queuedId), owner(replyTo))
    return { isCancelled: tombstone != null, isOwnerAlive: life != null }
  }

  async #askAll(): Promise<void> {
    const questions = this.#questions
    this.#questions = []
    const { claim, cancelled, owner } = this.#keys
    const pipeline = this.#redis.pipeline()
    for (const { job } of questions) {
      pipeline.set(claim(job.queuedId), job.runId, 'PX', CLAIM_TTL_MS, 'NX')
    }
    pipeline.mget(questions.flatMap(({ job }) => [cancelled(job.queuedId), owner(job.replyTo)]))
    try {
      const answers = (await pipeline.exec()) ?? []
      const [, found] = answers.at(-1) as [unknown, (string | null)[] | undefined]
      for (const [index, { resolve }] of questions.entries()) {
        resolve({
          isClaimed: answers[index]?.[1] === 'OK',
          isCancelled: found?.[2 * index] != null,
          isOwnerAlive: found?.[2 * index + 1] != null,
        })
      }
    } catch (error) {
      for (const { reject } of questions) reject(error)
    }
  }
}
