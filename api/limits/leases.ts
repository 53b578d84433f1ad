import type { Redis } from 'ioredis'

import type { Logger } from '#shared/logger.ts'
import { defineScript, runScript } from '#shared/queue/connection.ts'

/** The amounts that a job reserves of quotas until it ends. */
export interface Reservation {
  readonly tokens: number
  /** In billionths. */
  readonly costParts: number
}

/** The name of a lease, which ends in the amounts that it reserves. */
export function leaseOf(id: string, { tokens, costParts }: Reservation): string {
  return `${id} ${tokens} ${costParts}`
}

/**
 * Lua functions on a sorted set of leases; the hash beside it has the sums of their amounts.
 * `release` ends a lease, and `running` returns the number of the others that live at `now`.
 */
export const LEASE_FUNCTIONS = `
local function amountsOf(lease)
  local tokens, cost = string.match(lease, ' (%d+) (%d+)$')
  return tonumber(tokens or 0), tonumber(cost or 0)
end
local function add(jobs, tokens, cost)
  redis.call('HINCRBY', jobs .. ':reserved', 'tokens', tokens)
  redis.call('HINCRBY', jobs .. ':reserved', 'cost', cost)
end
local function release(jobs, lease)
  if redis.call('ZREM', jobs, lease) == 0 then return end
  local tokens, cost = amountsOf(lease)
  if redis.call('EXISTS', jobs) == 0 then redis.call('DEL', jobs .. ':reserved')
  else add(jobs, 0 - tokens, 0 - cost) end
end
local function running(jobs, now)
  for _, lease in ipairs(redis.call('ZRANGEBYSCORE', jobs, '-inf', now)) do release(jobs, lease) end
  local count = redis.call('ZCARD', jobs)
  if count == 0 then redis.call('DEL', jobs .. ':reserved') end
  return count
end
local function reserve(jobs, lease, expiresAt, ttl)
  redis.call('ZADD', jobs, expiresAt, lease)
  redis.call('PEXPIRE', jobs, ttl)
  add(jobs, amountsOf(lease))
  redis.call('PEXPIRE', jobs .. ':reserved', ${7 * 86_400_000})
end
`

/** A lease of a process that ended frees its place after this time at the latest. */
export const LEASE_MS = 15_000
const RENEWAL_MS = 2000
/** A lease with less time than this was not renewed: its process has ended or is stalled. */
export const LIVE_LEASE_MS_MIN = LEASE_MS - 2 * RENEWAL_MS

/** KEYS: running jobs of an organization; ARGV: milliseconds, names of leases that still exist. */
const RENEW = defineScript(`
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', now + tonumber(ARGV[1]), ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
`)
/** The most arguments of one command. */
const RENEWED_AT_ONCE = 1000

/**
 * The leases of this process, renewed while they are open; they expire soon after the process ends.
 */
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
