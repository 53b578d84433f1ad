import type { Redis } from 'ioredis'

import type { ErrorKind } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

/** A failed request, without its content. */
interface FailedRequest {
  readonly atMs: number
  readonly requestId: string
  readonly method: string
  readonly route: string
  readonly status: number
  readonly kind: ErrorKind
  readonly modelId?: string
}

/** A slow request, without its content. */
interface SlowRequest {
  readonly atMs: number
  readonly requestId: string
  readonly method: string
  readonly route: string
  readonly status: number
  readonly durationMs: number
  readonly modelId?: string
  /** From its arrival to the start of its job. */
  readonly queueMs?: number
  /** From its arrival to its first token. */
  readonly firstTokenMs?: number
  readonly completionTokens?: number
}

/** The number of errors of a kind and model. */
interface ErrorCount {
  readonly kind: ErrorKind
  readonly modelId: string | undefined
  readonly count: number
}

/** Recent errors and slow requests of all API processes. */
export interface Incidents {
  readonly errors: readonly ErrorCount[]
  readonly failed: readonly FailedRequest[]
  readonly slow: readonly SlowRequest[]
}

const BUCKET_MS = 5 * 60_000
/** Buckets of the last hour. */
const BUCKETS = 12
const LIST_LENGTH_MAX = 100
const LIST_TTL_SECONDS = 24 * 3600
const FLUSH_INTERVAL_MS = 500
/** The entries that one process buffers between two writes; more are only counted. */
const PENDING_MAX = 50

/**
 * Errors by kind and model in buckets of five minutes, and capped lists of failed and slow
 * requests. Written in the background: no request waits for it, and writes that Redis refuses are
 * lost.
 */
export class IncidentLog {
  readonly #redis: Redis
  readonly #prefix: string
  readonly #log: Logger
  readonly #counts = new Map<string, number>()
  #failed: FailedRequest[] = []
  #slow: SlowRequest[] = []
  readonly #timer: NodeJS.Timeout

  constructor(options: { readonly redis: Redis; readonly prefix: string; readonly log: Logger }) {
    this.#redis = options.redis
    this.#prefix = `${options.prefix}:admin`
    this.#log = options.log
    this.#timer = setInterval(() => void this.flush(), FLUSH_INTERVAL_MS)
    this.#timer.unref()
  }

  noteFailed(request: FailedRequest): void {
    const field = `${request.kind} ${request.modelId ?? ''}`
    this.#counts.set(field, (this.#counts.get(field) ?? 0) + 1)
    if (isWorthShowing(request) && this.#failed.length < PENDING_MAX) this.#failed.push(request)
  }

  noteSlow(request: SlowRequest): void {
    if (this.#slow.length < PENDING_MAX) this.#slow.push(request)
  }

  /** Writes the buffered entries. */
  async flush(): Promise<void> {
    if (this.#counts.size + this.#slow.length === 0) return
    const pipeline = this.#redis.pipeline()
    const bucket = this.#bucket(0)
    for (const [field, count] of this.#counts) pipeline.hincrby(bucket, field, count)
    if (this.#counts.size > 0) pipeline.pexpire(bucket, BUCKET_MS * (BUCKETS + 1))
    this.#push(pipeline, 'failed', this.#failed)
    this.#push(pipeline, 'slow', this.#slow)
    this.#counts.clear()
    this.#failed = []
    this.#slow = []
    try {
      await pipeline.exec()
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      this.#log.debug({ operation: 'admin.incidents', reason }, 'incidents not kept')
    }
  }

  async read(): Promise<Incidents> {
    const pipeline = this.#redis.pipeline()
    for (let age = 0; age < BUCKETS; age++) pipeline.hgetall(this.#bucket(age))
    pipeline.lrange(`${this.#prefix}:failed`, 0, LIST_LENGTH_MAX - 1)
    pipeline.lrange(`${this.#prefix}:slow`, 0, LIST_LENGTH_MAX - 1)
    const answers = ((await pipeline.exec()) ?? []).map(([error, value]) => {
      if (error !== null) throw error
      return value
    })
    const [failed, slow] = answers.slice(BUCKETS) as [string[], string[]]
    return {
      errors: sumUp(answers.slice(0, BUCKETS) as Record<string, string>[]),
      failed: failed.map((entry) => JSON.parse(entry) as FailedRequest),
      slow: slow.map((entry) => JSON.parse(entry) as SlowRequest),
    }
  }

  async close(): Promise<void> {
    clearInterval(this.#timer)
    await this.flush()
  }

  #bucket(age: number): string {
    return `${this.#prefix}:errors:${Math.floor(Date.now() / BUCKET_MS) - age}`
  }

  #push(pipeline: ReturnType<Redis['pipeline']>, name: string, entries: readonly object[]): void {
    if (entries.length === 0) return
    const key = `${this.#prefix}:${name}`
    pipeline.lpush(key, ...entries.map((entry) => JSON.stringify(entry)))
    pipeline.ltrim(key, 0, LIST_LENGTH_MAX - 1)
    pipeline.expire(key, LIST_TTL_SECONDS)
  }
}

/** Client errors are only counted; server errors and refusals are listed. */
function isWorthShowing({ status, kind }: FailedRequest): boolean {
  return status >= 500 || kind === 'rateLimited' || kind === 'internal'
}

function sumUp(buckets: readonly Record<string, string>[]): ErrorCount[] {
  const totals = new Map<string, number>()
  for (const bucket of buckets) {
    for (const [field, count] of Object.entries(bucket)) {
      totals.set(field, (totals.get(field) ?? 0) + Number(count))
    }
  }
  return [...totals]
    .map(([field, count]) => {
      const space = field.indexOf(' ')
      const modelId = field.slice(space + 1)
      return {
        kind: field.slice(0, space) as ErrorKind,
        modelId: modelId === '' ? undefined : modelId,
        count,
      }
    })
    .sort((a, b) => b.count - a.count)
}
