import type { Redis } from 'ioredis'

import { formatGoDuration } from '#shared/clock.ts'
import type { LimitsConfig } from '#shared/config/limits.ts'
import type { Logger } from '#shared/logger.ts'
import { defineScript, runScript } from '#shared/queue/connection.ts'

const WINDOW_TTL_MS = 120_000

/**
 * Charges a request, or returns the limit that refuses it; a refused request is not charged.
 *
 * KEYS: window of the key, window of the organization, its running jobs, its tokens of the month,
 * running jobs of the key
 * ARGV: limits of requests (key, organization) and tokens (key, organization), tokens to charge,
 * jobs at a time, name of the lease (empty when no job is run), its milliseconds, monthly tokens,
 * jobs of the key at a time
 * Returns: verdict, minute, milliseconds of it, then previous and current of each of the windows in
 * the order of their limits, tokens of the month (-1 when not known), milliseconds until the first
 * lease ends
 */
const CHARGE = defineScript(`
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local minute = math.floor(now / 60000)
local elapsed = now - minute * 60000
local function load(key)
  local f = redis.call('HMGET', key, 'minute', 'rp', 'rc', 'tp', 'tc')
  local age = minute - tonumber(f[1] or '-9')
  if age == 0 then
    return {tonumber(f[2]), tonumber(f[3]), tonumber(f[4]), tonumber(f[5])}
  end
  if age == 1 then return {tonumber(f[3]), 0, tonumber(f[5]), 0} end
  return {0, 0, 0, 0}
end
local function over(limit, previous, current, wanted)
  limit = tonumber(limit)
  return limit > 0 and math.floor(previous * (60000 - elapsed) / 60000) + current + wanted > limit
end
local function fullFor(key, limit)
  if limit == 0 then return nil end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  if redis.call('ZCARD', key) < limit then return nil end
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) - now
end
local k, o = load(KEYS[1]), load(KEYS[2])
local tokens, runsJob = tonumber(ARGV[5]), ARGV[7] ~= ''
local month = tonumber(redis.call('GET', KEYS[4]) or '-1')
local verdict, freeMs = 'admitted', 0
if runsJob and tonumber(ARGV[9]) > 0 and month >= tonumber(ARGV[9]) then verdict = 'month'
elseif over(ARGV[1], k[1], k[2], 1) or over(ARGV[2], o[1], o[2], 1) then verdict = 'requests'
elseif runsJob and (over(ARGV[3], k[3], k[4], tokens) or over(ARGV[4], o[3], o[4], tokens)) then
  verdict = 'tokens'
elseif runsJob then
  local places = {[KEYS[3]] = tonumber(ARGV[6]), [KEYS[5]] = tonumber(ARGV[10])}
  for key, limit in pairs(places) do freeMs = math.max(freeMs, fullFor(key, limit) or 0) end
  if freeMs > 0 then verdict = 'jobs' end
  for key, limit in pairs(places) do
    if verdict == 'admitted' and limit > 0 then
      redis.call('ZADD', key, now + tonumber(ARGV[8]), ARGV[7])
      redis.call('PEXPIRE', key, ARGV[8])
    end
  end
end
if verdict == 'admitted' then
  for key, w in pairs({[KEYS[1]] = k, [KEYS[2]] = o}) do
    w[2], w[4] = w[2] + 1, w[4] + tokens
    redis.call('HSET', key, 'minute', minute, 'rp', w[1], 'rc', w[2], 'tp', w[3], 'tc', w[4])
    redis.call('PEXPIRE', key, ${WINDOW_TTL_MS})
  end
end
return {verdict, minute, elapsed, k[1], k[2], o[1], o[2], k[3], k[4], o[3], o[4], month, freeMs}
`)

/**
 * Corrects a charge. Tokens charged too much are given back only where they still count.
 *
 * KEYS: as above; ARGV: tokens to add, minute of the charge, name of the lease, tokens of the month
 */
const SETTLE = defineScript(`
local delta, minute = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 1, 2 do
  local at = tonumber(redis.call('HGET', KEYS[i], 'minute') or '-9')
  local field = at == minute and 'tc' or at == minute + 1 and 'tp' or delta > 0 and at > 0 and 'tc'
  if field and redis.call('HINCRBY', KEYS[i], field, delta) < 0 then
    redis.call('HSET', KEYS[i], field, 0)
  end
end
if ARGV[3] ~= '' then
  redis.call('ZREM', KEYS[3], ARGV[3])
  redis.call('ZREM', KEYS[5], ARGV[3])
end
if redis.call('EXISTS', KEYS[4]) == 1 then redis.call('INCRBY', KEYS[4], ARGV[4]) end
`)

/** The request's key and organization. */
export interface LimitSubject {
  readonly organizationId: string
  /** The key, or the user behind an access token. */
  readonly credentialId: string
  /** The calendar month, such as `2026-07`. */
  readonly month: string
}

/** The calendar month of a moment, in UTC. */
export function monthOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, 7)
}

/** The decision of the limits about a request. */
export interface Charge {
  readonly verdict: 'admitted' | 'requests' | 'tokens' | 'jobs' | 'month'
  /** The minute that was charged, which a correction needs. */
  readonly minute: number
  readonly elapsedMs: number
  readonly requests: readonly Window[]
  readonly tokens: readonly Window[]
  /** Undefined when the counter has to be filled from the usage table. */
  readonly monthlyTokens: number | undefined
  /** Milliseconds until the first lease of a job ends unless it is renewed; with verdict `jobs`. */
  readonly leaseLeftMs: number
}

/** The limits of one request. */
export interface RequestLimits extends LimitsConfig {
  /** Requests of its key that may run jobs at the same time; 0 sets no limit. */
  readonly concurrentJobsOfKey: number
}

/** Charges a request in one round trip. An empty lease runs no job and is charged no tokens. */
export async function charge(
  { redis, prefix, limits }: LimitStore & { readonly limits: RequestLimits },
  subject: LimitSubject,
  wanted: { readonly tokens: number; readonly lease: string },
): Promise<Charge> {
  const { requestsPerMinute: requests, tokensPerMinute: tokens } = limits
  const answer = (await runScript(redis, CHARGE, keysOf(prefix, subject), [
    requests.key,
    requests.organization,
    tokens.key,
    tokens.organization,
    wanted.tokens,
    limits.concurrentJobs,
    wanted.lease,
    LEASE_MS,
    limits.monthlyTokens,
    limits.concurrentJobsOfKey,
  ])) as [Charge['verdict'], ...number[]]
  const [verdict, ...numbers] = answer
  const at = (index: number): number => numbers[index] ?? 0
  const window = (limit: number, index: number): Window => ({
    limit,
    previous: at(index),
    current: at(index + 1),
  })
  return {
    verdict,
    minute: at(0),
    elapsedMs: at(1),
    requests: [window(requests.key, 2), window(requests.organization, 4)],
    tokens: [window(tokens.key, 6), window(tokens.organization, 8)],
    monthlyTokens: at(10) < 0 ? undefined : at(10),
    leaseLeftMs: at(11),
  }
}

/** Corrects a charge by the actual usage and releases its lease. */
export async function settle(
  { redis, prefix }: Pick<LimitStore, 'redis' | 'prefix'>,
  subject: LimitSubject,
  bill: {
    readonly minute: number
    readonly tokensToAdd: number
    readonly lease: string
    readonly tokensOfMonth: number
  },
): Promise<void> {
  const { minute, tokensToAdd, lease, tokensOfMonth } = bill
  await runScript(redis, SETTLE, keysOf(prefix, subject), [
    tokensToAdd,
    minute,
    lease,
    tokensOfMonth,
  ])
}

const MONTH_TTL_MS = 40 * 86_400_000

/** Initializes the counter of the month, unless another process has done so. */
export async function fillMonth(
  { redis, prefix }: LimitStore,
  subject: LimitSubject,
  tokens: number,
): Promise<void> {
  await redis.set(keysOf(prefix, subject)[3] as string, tokens, 'PX', MONTH_TTL_MS, 'NX')
}

/** The tokens of the month; undefined when the counter has to be filled. */
export async function tokensOfMonth(
  { redis, prefix }: LimitStore,
  subject: LimitSubject,
): Promise<number | undefined> {
  const found = await redis.get(keysOf(prefix, subject)[3] as string)
  return found === null ? undefined : Number(found)
}

/** Adds tokens of batch lines, which are not charged as requests, to the month. */
export async function addToMonth(
  store: Pick<LimitStore, 'redis' | 'prefix'>,
  subject: LimitSubject,
  tokens: number,
): Promise<void> {
  const bill = { minute: 0, tokensToAdd: 0, lease: '', tokensOfMonth: tokens }
  await settle(store, subject, bill)
}

/** The Redis client of the windows, and their limits. */
export interface LimitStore {
  readonly redis: Redis
  readonly prefix: string
  readonly limits: LimitsConfig
}

/** The sorted sets with the leases of running jobs: those of an organization, and of a key. */
export function leasesKeys(
  prefix: string,
  { organizationId, credentialId }: LimitSubject,
): readonly [string, string] {
  return [`${prefix}:limits:jobs:${organizationId}`, `${prefix}:limits:jobs:key:${credentialId}`]
}

function keysOf(prefix: string, subject: LimitSubject): readonly string[] {
  const { organizationId, credentialId, month } = subject
  const [jobsOfOrganization, jobsOfKey] = leasesKeys(prefix, subject)
  return [
    `${prefix}:limits:credential:${credentialId}`,
    `${prefix}:limits:organization:${organizationId}`,
    jobsOfOrganization,
    `${prefix}:limits:month:${organizationId}:${month}`,
    jobsOfKey,
  ]
}

/**
 * A sliding window of a minute as two counters: usage of the current minute and of the previous
 * one, weighted by the share of it that the window still covers.
 */
export interface Window {
  /** 0 means no limit. */
  readonly limit: number
  readonly previous: number
  readonly current: number
}

/** The length of a window. */
export const WINDOW_MS = 60_000

/** The usage of a window. */
export function usedOf({ previous, current }: Window, elapsedMs: number): number {
  return Math.floor((previous * (WINDOW_MS - elapsedMs)) / WINDOW_MS) + current
}

/** The remaining allowance; never below zero. */
export function remainingOf(window: Window, elapsedMs: number): number {
  return Math.max(0, window.limit - usedOf(window, elapsedMs))
}

/** Milliseconds until the whole usage has left the window. */
export function resetMs({ previous, current }: Window, elapsedMs: number): number {
  if (current > 0) return 2 * WINDOW_MS - elapsedMs
  return previous > 0 ? WINDOW_MS - elapsedMs : 0
}

/** Milliseconds until `wanted` fits; undefined when it never fits. */
export function waitMs(window: Window, wanted: number, elapsedMs: number): number | undefined {
  const { limit, previous, current } = window
  const room = limit - wanted
  if (room < 0) return undefined
  if (usedOf(window, elapsedMs) <= room) return 0
  if (current <= room) {
    const shareLeft = (room - current) / previous
    return Math.max(0, WINDOW_MS * (1 - shareLeft) - elapsedMs)
  }
  return WINDOW_MS - elapsedMs + WINDOW_MS * (1 - room / current)
}

/** The tightest of the windows that have a limit. */
export function tightestOf(windows: readonly Window[], elapsedMs: number): Window | undefined {
  return windows
    .filter(({ limit }) => limit > 0)
    .reduce<Window | undefined>(
      (least, window) =>
        least === undefined || remainingOf(window, elapsedMs) < remainingOf(least, elapsedMs)
          ? window
          : least,
      undefined,
    )
}

/** The three headers of one dimension; none when it has no limit. */
export function limitHeaders(
  dimension: 'requests' | 'tokens',
  windows: readonly Window[],
  elapsedMs: number,
): Readonly<Record<string, string>> {
  const window = tightestOf(windows, elapsedMs)
  if (window === undefined) return {}
  return {
    [`x-ratelimit-limit-${dimension}`]: String(window.limit),
    [`x-ratelimit-remaining-${dimension}`]: String(remainingOf(window, elapsedMs)),
    [`x-ratelimit-reset-${dimension}`]: formatGoDuration(resetMs(window, elapsedMs)),
  }
}

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
