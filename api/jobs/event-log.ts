import type { Redis } from 'ioredis'

import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { readContent } from '#shared/queue/content-cipher.ts'

// Longer than a reader needs to switch to the stored events.
const LOG_TTL_MS = 86_400_000
const ENDED_TTL_MS = 600_000
const EVENTS_PER_READ = 200

/** A part of the events of a job. */
export interface LogPage {
  readonly events: readonly string[]
  /** No event follows: the job has ended. */
  readonly isEnded: boolean
}

/**
 * The events of running jobs: each is one server-sent event with a sequence number. They are in
 * Redis while the job runs, so that every API process can send them from any position on.
 */
export class EventLog {
  readonly #redis: Redis
  readonly #prefix: string
  readonly #cipher: ContentCipher | undefined

  constructor(redis: Redis, prefix: string, cipher: ContentCipher | undefined) {
    this.#redis = redis
    this.#prefix = prefix
    this.#cipher = cipher
  }

  /** The number of events that the log holds. */
  async size(jobId: string): Promise<number> {
    const [last] = await this.#redis.xrevrange(
      this.#keyOf(jobId),
      '0-18446744073709551615',
      '-',
      'COUNT',
      1,
    )
    return last === undefined ? 0 : Number(last[0].slice('0-'.length))
  }

  /**
   * Appends events of a job from a position on. A position has one event: if another process has
   * already written it, that event stays and the call fails. All events are written again when
   * Redis lost the earlier ones.
   */
  async append(jobId: string, from: number, all: readonly string[]): Promise<void> {
    if (from === all.length) return
    const size = await this.#add(jobId, from, all)
    if (size >= all.length) return
    await this.#redis.del(this.#keyOf(jobId))
    await this.#add(jobId, 0, all)
  }

  /** Returns the number of events after the call. */
  async #add(jobId: string, from: number, all: readonly string[]): Promise<number> {
    const key = this.#keyOf(jobId)
    const commands = this.#redis.multi()
    for (const [index, event] of all.slice(from).entries()) {
      const text = this.#cipher?.encrypt(event, contextOf(jobId)) ?? event
      commands.xadd(key, `0-${from + index + 1}`, 'e', text)
    }
    const results = (await commands.pexpire(key, LOG_TTL_MS).xlen(key).exec()) ?? []
    for (const [error] of results) if (error !== null) throw error
    return Number(results.at(-1)?.[1] ?? 0)
  }

  /** Marks the end of the log for its readers. */
  async end(jobId: string): Promise<void> {
    const key = this.#keyOf(jobId)
    const size = await this.#redis.xlen(key)
    const commands = this.#redis.pipeline().xadd(key, '1-0', 'end', String(size))
    await commands.pexpire(key, ENDED_TTL_MS).exec()
  }

  /** The events from a position on, as many as one reply of Redis should hold. */
  async read(jobId: string, from: number): Promise<LogPage> {
    const start = `0-${from + 1}`
    const key = this.#keyOf(jobId)
    const entries = await this.#redis.xrangeBuffer(key, start, '+', 'COUNT', EVENTS_PER_READ)
    const events: string[] = []
    let isEnded = false
    for (const [id, [, text = Buffer.alloc(0)]] of entries) {
      const place = from + events.length
      // When Redis has lost events, a reader waits until they are written again, or for the row.
      if (id.toString() === '1-0') isEnded = text.toString() === String(place)
      else if (id.toString() !== `0-${place + 1}`) break
      else events.push(readContent(text, this.#cipher, contextOf(jobId)).toString('utf8'))
    }
    return { events, isEnded }
  }

  #keyOf(jobId: string): string {
    return `${this.#prefix}:job-events:${jobId}`
  }
}

function contextOf(jobId: string): string {
  return `job events ${jobId}`
}

/** Splits a text into complete server-sent events and drops comments. */
export function splitEvents(text: string): { readonly events: string[]; readonly rest: string } {
  const parts = text.split('\n\n')
  const rest = parts.pop() ?? ''
  const events = parts.filter((part) => !part.startsWith(':')).map((part) => `${part}\n\n`)
  return { events, rest }
}
