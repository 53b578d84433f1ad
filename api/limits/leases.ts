import type { Redis } from 'ioredis'

import type { Logger } from '#shared/logger.ts'
import { defineScript, runScript } from '#shared/queue/connection.ts'

/** A lease of a process that ended frees its place after this time at the latest. */
export const LEASE_MS = 15_000
const RENEWAL_MS = 5000
/** A lease with less time than this was not renewed: its process has ended or is stalled. */
export const LIVE_LEASE_MS_MIN = LEASE_MS - 2 * RENEWAL_MS

/** KEYS: running jobs of an organization; ARGV: milliseconds, names of leases that still exist. */
const RENEW = defineScript(`
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', now + tonumber(ARGV[1]), ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
`)
/** Arguments of one command. */
const RENEWED_AT_ONCE = 1000

/** The leases of this process, renewed while they are open; they expire soon after the process ends. */
export class Leases {
  readonly #redis: Redis
  readonly #log: Logger
  readonly #open = new Map<string, Set<string>>()
  #timer: NodeJS.Timeout | undefined

  constructor(redis: Redis, log: Logger) {
    this.#redis = redis
    this.#log = log
  }

  /** Renews a lease from now on; `key` is the sorted set that holds it. */
  add(key: string, lease: string): void {
    const leases = this.#open.get(key)
    if (leases === undefined) this.#open.set(key, new Set([lease]))
    else leases.add(lease)
    this.#timer ??= setInterval(() => this.#renew(), RENEWAL_MS).unref()
  }

  delete(key: string, lease: string): void {
    const leases = this.#open.get(key)
    leases?.delete(lease)
    if (leases?.size === 0) this.#open.delete(key)
    if (this.#open.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  #renew(): void {
    for (const [key, leases] of this.#open) {
      const names = [...leases]
      for (let at = 0; at < names.length; at += RENEWED_AT_ONCE) {
        const some = names.slice(at, at + RENEWED_AT_ONCE)
        runScript(this.#redis, RENEW, [key], [LEASE_MS, ...some]).catch((error: unknown) => {
          this.#log.debug({ operation: 'limits.renew', err: error }, 'leases are not renewed')
        })
      }
    }
  }
}
