import type { Redis } from 'ioredis'

import type { Clock } from '#shared/clock.ts'

/** A slower answer is too imprecise. */
const ROUND_TRIP_MS_MAX = 200
/** Beyond this age even a slow answer is better. */
const AGE_MS_MAX = 10_000

/**
 * The time of day of Redis, extended by this machine's monotonic clock. Deadlines cross machines,
 * so both ends must share one clock: a clock that is wrong or set while a job runs must not end the
 * job early. The machine's own time is used until Redis has been asked.
 */
export class RedisClock implements Clock {
  readonly #local: Clock
  #offsetMs: number | undefined
  #askedAtMs = Number.NEGATIVE_INFINITY

  constructor(local: Clock) {
    this.#local = local
  }

  now(): number {
    if (this.#offsetMs === undefined) return this.#local.now()
    return this.#local.monotonic() + this.#offsetMs
  }

  monotonic(): number {
    return this.#local.monotonic()
  }

  /** Reads the time of Redis; repeated, because clocks drift. */
  async sync(redis: Redis): Promise<void> {
    const askedAtMs = this.#local.monotonic()
    const [seconds, microseconds] = await redis.time()
    const answeredAtMs = this.#local.monotonic()
    const isSlow = answeredAtMs - askedAtMs > ROUND_TRIP_MS_MAX
    if (isSlow && askedAtMs - this.#askedAtMs < AGE_MS_MAX) return
    this.#askedAtMs = askedAtMs
    const serverMs = Number(seconds) * 1000 + Number(microseconds) / 1000
    this.#offsetMs = serverMs - (askedAtMs + answeredAtMs) / 2
  }
}
