import type { Redis } from 'ioredis'

import type { LimitsConfig } from '#shared/config/limits.ts'
import { defineScript, runScript } from '#shared/queue/connection.ts'

import { LEASE_FUNCTIONS, LEASE_MS } from './leases.ts'
import type { Window } from './windows.ts'

const WINDOW_TTL_MS = 120_000

/** The amounts that quotas limit. */
export const AMOUNTS = ['requests', 'tokens', 'cost'] as const
/** Their names in Lua. */
const AMOUNT_NAMES = AMOUNTS.map((name) => `'${name}'`).join(', ')
export type Amount = (typeof AMOUNTS)[number]
export type Amounts = Readonly<Record<Amount, number>>

/** A counter of the usage of a key or an organization in a calendar day or month (UTC). */
export interface Counter {
  readonly of: 'api_key' | 'organization'
  readonly period: 'day' | 'month'
}

/** The counters of a request, in the order that the scripts use. */
export const COUNTERS: readonly Counter[] = [
  { of: 'api_key', period: 'day' },
  { of: 'api_key', period: 'month' },
  { of: 'organization', period: 'day' },
  { of: 'organization', period: 'month' },
]

/**
 * Charges a request, or returns the limit that refuses it; a refused request is not charged.
 *
 * KEYS: window of the key, window of the organization, its running jobs, running jobs of the key,
 *       the counters of their quotas
 * ARGV: limits of requests (key, organization) and tokens (key, organization), tokens to charge,
 *       jobs at a time, name of the lease (empty when no job is run), its milliseconds, jobs of the
 *       key at a time, the quotas of each counter
 * Returns: verdict, minute, milliseconds of it, then previous and current of each of the windows in
 *          the order of their limits, milliseconds until the first lease ends, the index of the
 *          quota that is used up
 */
const CHARGE = defineScript(`${LEASE_FUNCTIONS}
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
local function firstEndOf(jobs)
  return tonumber(redis.call('ZRANGE', jobs, 0, 0, 'WITHSCORES')[2]) - now
end
local k, o = load(KEYS[1]), load(KEYS[2])
local tokens, runsJob = tonumber(ARGV[5]), ARGV[7] ~= ''
local verdict, freeMs, usedUp = 'admitted', 0, -1
-- A job is refused if it and the running jobs may exceed a quota; one job may always run.
local needsLease, reservedUp = {}, nil
local names = {${AMOUNT_NAMES}}
local wanted = {0, amountsOf(ARGV[7])}
if runsJob then
  for i = 5, #KEYS do
    local used = redis.call('HMGET', KEYS[i], unpack(names))
    local jobs = i < 7 and KEYS[4] or KEYS[3]
    for j = 1, #used do
      local place = (i - 5) * #used + j - 1
      local quota = tonumber(ARGV[10 + place])
      if quota > 0 and not used[j] then verdict = 'unknown'
      elseif quota > 0 and tonumber(used[j]) >= quota and usedUp < 0 then usedUp = place end
      if quota > 0 and used[j] and j > 1 then
        needsLease[jobs] = true
        local isBusy = running(jobs, now) > 0
        local reserved = tonumber(redis.call('HGET', jobs .. ':reserved', names[j]) or 0)
        if isBusy and tonumber(used[j]) + reserved + wanted[j] > quota then reservedUp = jobs end
      end
    end
  end
end
if verdict == 'unknown' then freeMs = 0
elseif usedUp >= 0 then verdict = 'quota'
elseif over(ARGV[1], k[1], k[2], 1) or over(ARGV[2], o[1], o[2], 1) then verdict = 'requests'
elseif runsJob and (over(ARGV[3], k[3], k[4], tokens) or over(ARGV[4], o[3], o[4], tokens)) then
  verdict = 'tokens'
elseif runsJob then
  for jobs, limit in pairs({[KEYS[3]] = tonumber(ARGV[6]), [KEYS[4]] = tonumber(ARGV[9])}) do
    if limit > 0 then needsLease[jobs] = true end
    if limit > 0 and running(jobs, now) >= limit then
      verdict, freeMs = 'jobs', math.max(freeMs, firstEndOf(jobs))
    end
  end
  if verdict == 'admitted' and reservedUp then verdict, freeMs = 'reserved', firstEndOf(reservedUp) end
  for jobs in pairs(verdict == 'admitted' and needsLease or {}) do
    reserve(jobs, ARGV[7], now + tonumber(ARGV[8]), ARGV[8])
  end
end
if verdict == 'admitted' then
  for key, w in pairs({[KEYS[1]] = k, [KEYS[2]] = o}) do
    w[2], w[4] = w[2] + 1, w[4] + tokens
    redis.call('HSET', key, 'minute', minute, 'rp', w[1], 'rc', w[2], 'tp', w[3], 'tc', w[4])
    redis.call('PEXPIRE', key, ${WINDOW_TTL_MS})
  end
  for i = 5, runsJob and #KEYS or 4 do
    if redis.call('EXISTS', KEYS[i]) == 1 then redis.call('HINCRBY', KEYS[i], 'requests', 1) end
  end
end
return {verdict, minute, elapsed, k[1], k[2], o[1], o[2], k[3], k[4], o[3], o[4], freeMs, usedUp}
`)

/**
 * Corrects a charge. Tokens charged too much are given back only where they still count.
 *
 * KEYS: as above; ARGV: tokens to add, minute of the charge, name of the lease, then the amounts to
 *       add to each existing counter
 */
const SETTLE = defineScript(`${LEASE_FUNCTIONS}
local delta, minute = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 1, 2 do
  local at = tonumber(redis.call('HGET', KEYS[i], 'minute') or '-9')
  local field = at == minute and 'tc' or at == minute + 1 and 'tp' or delta > 0 and at > 0 and 'tc'
  if field and redis.call('HINCRBY', KEYS[i], field, delta) < 0 then
    redis.call('HSET', KEYS[i], field, 0)
  end
end
if ARGV[3] ~= '' then
  release(KEYS[3], ARGV[3])
  release(KEYS[4], ARGV[3])
end
local fields = {${AMOUNT_NAMES}}
for i = 5, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    for j = 1, #fields do redis.call('HINCRBY', KEYS[i], fields[j], ARGV[3 + j]) end
  end
end
`)

/** Creates a counter unless it exists; KEYS: the counter, ARGV: its TTL and amounts. */
const FILL = defineScript(`
if redis.call('EXISTS', KEYS[1]) == 1 then return end
local fields = {${AMOUNT_NAMES}}
for j = 1, #fields do redis.call('HSET', KEYS[1], fields[j], ARGV[1 + j]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
`)

/** The request's key and organization. */
export interface LimitSubject {
  readonly organizationId: string
  /** The key, or the user behind an access token. */
  readonly credentialId: string
  /** The calendar day (UTC), such as `2026-07-31`. */
  readonly day: string
}

/** Returns the calendar day (UTC) of a time. */
export function dayOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10)
}

/** The decision of the limits about a request. */
export interface Charge {
  /**
   * `reserved`: the running jobs may use up the rest of a quota.
   * `unknown`: a counter is missing and must first be filled from the usage record.
   */
  readonly verdict: 'admitted' | 'requests' | 'tokens' | 'jobs' | 'reserved' | 'quota' | 'unknown'
  /** The charged minute, needed to correct the charge. */
  readonly minute: number
  readonly elapsedMs: number
  readonly requests: readonly Window[]
  readonly tokens: readonly Window[]
  /**
   * Milliseconds until the first lease of a job ends unless it is renewed; with verdict `jobs` or
   * `reserved`.
   */
  readonly leaseLeftMs: number
  /** The index of the exceeded quota, in the order of the counters and their amounts. */
  readonly usedUp: number
}

/** The limits of one request; 0 sets none. */
export interface RequestLimits extends LimitsConfig {
  /** Requests of its key that may run jobs at the same time. */
  readonly concurrentJobsOfKey: number
  /** The quotas of each counter. */
  readonly quotas: readonly Amounts[]
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
    limits.concurrentJobsOfKey,
    ...limits.quotas.flatMap(inWholeNumbers),
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
    leaseLeftMs: at(10),
    usedUp: at(11),
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
    /** The amounts to add to the counters of the quotas. */
    readonly used: Amounts
  },
): Promise<void> {
  const { minute, tokensToAdd, lease, used } = bill
  await runScript(redis, SETTLE, keysOf(prefix, subject), [
    tokensToAdd,
    minute,
    lease,
    ...inWholeNumbers(used),
  ])
}

/** Adds the usage of batch lines and background jobs, which are not charged, to the counters. */
export async function addUsage(
  store: Pick<LimitStore, 'redis' | 'prefix'>,
  subject: LimitSubject,
  used: Amounts,
): Promise<void> {
  await settle(store, subject, { minute: 0, tokensToAdd: 0, lease: '', used })
}

/** Creates a counter unless it exists. */
export async function fillCounter(
  { redis, prefix }: Pick<LimitStore, 'redis' | 'prefix'>,
  subject: LimitSubject,
  { counter, used }: { readonly counter: Counter; readonly used: Amounts },
): Promise<void> {
  const key = counterKey(prefix, subject, counter)
  await runScript(redis, FILL, [key], [COUNTER_TTL_MS[counter.period], ...inWholeNumbers(used)])
}

/** Reads the amounts of a counter; undefined if it does not exist. */
export async function readCounter(
  { redis, prefix }: Pick<LimitStore, 'redis' | 'prefix'>,
  subject: LimitSubject,
  counter: Counter,
): Promise<Amounts | undefined> {
  const found = await redis.hmget(counterKey(prefix, subject, counter), ...AMOUNTS)
  if (found.includes(null)) return undefined
  const [requests = 0, tokens = 0, cost = 0] = found.map(Number)
  return { requests, tokens, cost: cost / COST_PARTS }
}

const COUNTER_TTL_MS = { day: 2 * 86_400_000, month: 40 * 86_400_000 }
/** Costs are counted in billionths, because sums of fractions are not exact. */
const COST_PARTS = 1e9

/** A cost in whole parts. */
export function costPartsOf(cost: number): number {
  return Math.round(cost * COST_PARTS)
}

function inWholeNumbers({ requests, tokens, cost }: Amounts): number[] {
  return [requests, tokens, costPartsOf(cost)]
}

function counterKey(
  prefix: string,
  { organizationId, credentialId, day }: LimitSubject,
  { of, period }: Counter,
): string {
  const name = of === 'api_key' ? credentialId : organizationId
  return `${prefix}:limits:${of}:${name}:${period === 'day' ? day : day.slice(0, 7)}`
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
  const { organizationId, credentialId } = subject
  const [jobsOfOrganization, jobsOfKey] = leasesKeys(prefix, subject)
  return [
    `${prefix}:limits:credential:${credentialId}`,
    `${prefix}:limits:organization:${organizationId}`,
    jobsOfOrganization,
    jobsOfKey,
    ...COUNTERS.map((counter) => counterKey(prefix, subject, counter)),
  ]
}
