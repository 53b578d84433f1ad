import type { Redis } from 'ioredis'

import type { JobEnvelope, QueueKind } from '#shared/contracts/job.ts'

import type { ContentCipher } from './content-cipher.ts'
import { contextOf, decryptInput } from './content-cipher.ts'
import type { QueueKeys } from './keys.ts'

/** The record of a job that repeatedly killed its workers, without its input. */
interface DeadLetter {
  readonly jobId: string
  readonly kind: QueueKind
  readonly modelId: string
  readonly organizationId: string
  readonly enqueuedAtMs: number
  readonly inputBytes: number
  readonly reason: string
}

const LETTERS_MAX = 1000
/** Inputs are kept for a day, only for the newest records, and only below this size. */
const INPUTS_MAX = 100
const INPUT_BYTES_MAX = 1024 * 1024
const INPUT_TTL_MS = 86_400_000

interface DeadLetterOptions {
  readonly redis: Redis
  readonly keys: Pick<QueueKeys, 'deadJobs' | 'deadInput'>
  /** Without a cipher no input is kept. */
  readonly cipher?: ContentCipher | undefined
}

/**
 * The jobs of an installation that repeatedly killed their workers, with their encrypted inputs.
 */
export class DeadLetters {
  readonly #options: DeadLetterOptions

  constructor(options: DeadLetterOptions) {
    this.#options = options
  }

  /** Records a job; `keepsInput` is the policy of its organization. */
  async record(envelope: JobEnvelope, reason: string, keepsInput: boolean): Promise<void> {
    const { redis, keys, cipher } = this.#options
    const { jobId, kind, modelId, organizationId, epoch, enqueuedAtMs } = envelope
    const input = JSON.stringify(envelope.input)
    const inputBytes = Buffer.byteLength(input)
    const record = { jobId, kind, modelId, organizationId, epoch, enqueuedAtMs, inputBytes, reason }
    await redis
      .pipeline()
      .lpush(keys.deadJobs, JSON.stringify(record))
      .ltrim(keys.deadJobs, 0, LETTERS_MAX - 1)
      .exec()
    if (!keepsInput || cipher === undefined || inputBytes > INPUT_BYTES_MAX) return
    const message = cipher.encrypt(input, contextOf(envelope)).toString('base64')
    await redis.set(keys.deadInput(jobId), message, 'PX', INPUT_TTL_MS)
    const [oldest] = await redis.lrange(keys.deadJobs, INPUTS_MAX, INPUTS_MAX)
    if (oldest !== undefined) await redis.del(keys.deadInput(parseLetter(oldest).jobId))
  }

  /** The newest records, and whether their inputs are kept. */
  async list(limit: number): Promise<readonly (DeadLetter & { readonly isKept: boolean })[]> {
    const { redis, keys } = this.#options
    const letters = (await redis.lrange(keys.deadJobs, 0, limit - 1)).map(parseLetter)
    if (letters.length === 0) return []
    const inputs = letters.map(({ jobId }) => keys.deadInput(jobId))
    const kept = await Promise.all(inputs.map((key) => redis.exists(key)))
    return letters.map((letter, index) => ({ ...letter, isKept: kept[index] === 1 }))
  }

  /** A record and its input; each is undefined if it was not kept. */
  async find(
    jobId: string,
  ): Promise<{ readonly letter?: DeadLetter; readonly input?: JobEnvelope['input'] }> {
    const { redis, keys, cipher } = this.#options
    const text = await this.#textOf(jobId)
    const input = await redis.get(keys.deadInput(jobId))
    return {
      ...(text !== undefined && { letter: parseLetter(text) }),
      ...(input !== null && {
        input: decryptInput({ jobId, input }, cipher) as JobEnvelope['input'],
      }),
    }
  }

  async delete(jobId: string): Promise<void> {
    const { redis, keys } = this.#options
    const text = await this.#textOf(jobId)
    if (text !== undefined) await redis.lrem(keys.deadJobs, 1, text)
    await redis.del(keys.deadInput(jobId))
  }

  async clear(): Promise<void> {
    const { redis, keys } = this.#options
    const letters = (await redis.lrange(keys.deadJobs, 0, INPUTS_MAX)).map(parseLetter)
    await redis.del(keys.deadJobs)
    for (const { jobId } of letters) await redis.del(keys.deadInput(jobId))
  }

  async #textOf(jobId: string): Promise<string | undefined> {
    const { redis, keys } = this.#options
    const texts = await redis.lrange(keys.deadJobs, 0, LETTERS_MAX - 1)
    return texts.find((text) => parseLetter(text).jobId === jobId)
  }
}

function parseLetter(text: string): DeadLetter {
  return JSON.parse(text) as DeadLetter
}
