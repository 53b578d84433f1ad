import type { Redis } from 'ioredis'

import type { QueueKind } from '#shared/contracts/job.ts'
import { ENVELOPE_VERSION, type JobEnvelope } from '#shared/contracts/job.ts'
import {
  type ContentCipher,
  decryptInput,
  ENCRYPTED_ENVELOPE_VERSION,
} from '#shared/queue/content-cipher.ts'
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

  /** Whether a job was cancelled and whether its owner is alive, without claiming it. */
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

/** The queue that a job was fetched from, and the cipher of its input. */
interface Source {
  readonly kind: QueueKind
  readonly modelId: string
  readonly cipher?: ContentCipher | undefined
}

/**
 * Checks a fetched job and decrypts its input; clear inputs come from an API tier of an earlier
 * release or without a key. Throws with the field at fault.
 */
export function parseEnvelope(value: unknown, { kind, modelId, cipher }: Source): JobEnvelope {
  if (typeof value !== 'object' || value === null) throw new Error('the job is not an object')
  const record = value as Record<string, unknown>
  const isEncrypted = record.version === ENCRYPTED_ENVELOPE_VERSION
  if (record.version !== ENVELOPE_VERSION && !isEncrypted) {
    throw new Error(
      `version ${String(record.version)} is not ${ENVELOPE_VERSION} or ${ENCRYPTED_ENVELOPE_VERSION}`,
    )
  }
  for (const field of ['jobId', 'organizationId', 'replyTo'] as const) {
    if (typeof record[field] !== 'string' || record[field] === '') {
      throw new Error(`${field} must be a string`)
    }
  }
  for (const field of ['epoch', 'enqueuedAtMs', 'deadlineAtMs'] as const) {
    if (typeof record[field] !== 'number') throw new Error(`${field} must be a number`)
  }
  if (record.kind !== kind) throw new Error(`kind must be ${kind}`)
  if (record.modelId !== modelId) throw new Error(`modelId must be ${modelId}`)
  const input = isEncrypted ? openInput(record, cipher) : record.input
  if (typeof input !== 'object' || input === null) throw new Error('input must be an object')
  return {
    ...(value as JobEnvelope),
    version: ENVELOPE_VERSION,
    input: input as JobEnvelope['input'],
  }
}

function openInput(record: Record<string, unknown>, cipher: ContentCipher | undefined): unknown {
  const { jobId, input } = record
  if (typeof input !== 'string') throw new Error('an encrypted input must be a string')
  return decryptInput({ jobId: String(jobId), input }, cipher)
}

interface Waiter {
  readonly isSuspect: boolean
  readonly enter: () => void
}

/** A place inside the gate. Both functions are idempotent. */
export interface Passage {
  /** The job has delivered something, so it does not kill its process at the start. */
  prove(): void
  leave(): void
}

/**
 * Isolates suspected jobs. A job whose last process died before the job had delivered anything is
 * suspected, and so are other jobs of that process. A suspected job starts only when no other
 * unproven job runs here, and no other starts until it has delivered something or ended: if the
 * process dies in between, only this job can be the cause. Jobs that have delivered something
 * continue beside it.
 */
export class IsolationGate {
  readonly #waiters: Waiter[] = []
  #unproven = 0
  #isSuspectInside = false

  /** Waits until the job may start. Rejects with the signal's reason when it aborts first. */
  enter(isSuspect: boolean, signal: AbortSignal): Promise<Passage> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason as Error)
      const waiter: Waiter = {
        isSuspect,
        enter: () => {
          signal.removeEventListener('abort', onAbort)
          resolve(this.#admit(isSuspect))
        },
      }
      const onAbort = (): void => {
        const index = this.#waiters.indexOf(waiter)
        if (index >= 0) this.#waiters.splice(index, 1)
        reject(signal.reason as Error)
        this.#advance()
      }
      signal.addEventListener('abort', onAbort, { once: true })
      this.#waiters.push(waiter)
      this.#advance()
    })
  }

  #admit(isSuspect: boolean): Passage {
    this.#unproven += 1
    if (isSuspect) this.#isSuspectInside = true
    let isUnproven = true
    const prove = (): void => {
      if (!isUnproven) return
      isUnproven = false
      this.#unproven -= 1
      if (isSuspect) this.#isSuspectInside = false
      this.#advance()
    }
    return { prove, leave: prove }
  }

  /**
   * First come, first served: a suspected job at the head delays those behind it, but only briefly.
   */
  #advance(): void {
    for (;;) {
      const next = this.#waiters[0]
      if (next === undefined || this.#isSuspectInside) return
      if (next.isSuspect && this.#unproven > 0) return
      this.#waiters.shift()
      next.enter()
    }
  }
}
