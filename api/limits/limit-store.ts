import type { Redis } from 'ioredis'

import type { LimitsConfig } from '#shared/config/limits.ts'
import { defineScript, runScript } from '#shared/queue/connection.ts'

import { LEASE_MS } from './leases.ts'
import type { Window } from './windows.ts'

const WINDOW_TTL_MS = 120_000

/**
 * Charges a request, or says which limit refuses it; a refused request is not charged.
 *
 * KEYS: window of the key, window of the organization, its running jobs, its tokens of the month
 * ARGV: limits of requests (key, organization) and tokens (key, organization), tokens to charge,
 *       jobs at a time, name of the lease (empty when no job is run), its milliseconds, monthly tokens
 * Returns: verdict, minute, milliseconds of it, then previous and current of each of the windows in
 *          the order of their limits, tokens of the month (-1 when not known), milliseconds until
 *          the first lease ends
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
local k, o = load(KEYS[1]), load(KEYS[2])
local tokens, runsJob = tonumber(ARGV[5]), ARGV[7] ~= ''
local month = tonumber(redis.call('GET', KEYS[4]) or '-1')
local verdict, freeMs = 'admitted', 0
if runsJob and tonumber(ARGV[9]) > 0 and month >= tonumber(ARGV[9]) then verdict = 'month'
elseif over(ARGV[1], k[1], k[2], 1) or over(ARGV[2], o[1], o[2], 1) then verdict = 'requests'
elseif runsJob and (over(ARGV[3], k[3], k[4], tokens) or over(ARGV[4], o[3], o[4], tokens)) then
  verdict = 'tokens'
elseif runsJob and tonumber(ARGV[6]) > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
  if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[6]) then
    verdict = 'jobs'
    freeMs = tonumber(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]) - now
  else
    redis.call('ZADD', KEYS[3], now + tonumber(ARGV[8]), ARGV[7])
    redis.call('PEXPIRE', KEYS[3], ARGV[8])
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
if ARGV[3] ~= '' then redis.call('ZREM', KEYS[3], ARGV[3]) end
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

/** The answer of the windows about a request. */
export interface Charge {
  readonly verdict: 'admitted' | 'requests' | 'tokens' | 'jobs' | 'month'
  /** The minute that was charged, for its correction. */
  readonly minute: number
  readonly elapsedMs: number
  readonly requests: readonly Window[]
  readonly tokens: readonly Window[]
  /** Undefined when the counter has to be filled from the usage record. */
  readonly monthlyTokens: number | undefined
  /** Milliseconds until the first lease of a job ends unless it is renewed; with verdict `jobs`. */
  readonly leaseLeftMs: number
}

/** Charges a request in one round trip. An empty lease runs no job and is charged no tokens. */
export async function charge(
  { redis, prefix, limits }: LimitStore,
  subject: LimitSubject,
  wanted: { readonly tokens: number; readonly lease: string },
): Promise<Charge> {
  const { requestsPerMinute: requests, tokensPerMinute: tokens } = limits
  const answer = (await runScript(redis, CHARGE, keysOf(prefix, subject), [
    ...[requests.key, requests.organization, tokens.key, tokens.organization],
    ...[wanted.tokens, limits.concurrentJobs, wanted.lease, LEASE_MS, limits.monthlyTokens],
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

/** Corrects a charge by what was really used, and gives its lease back. */
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
    ...[tokensToAdd, minute, lease, tokensOfMonth],
  ])
}

const MONTH_TTL_MS = 40 * 86_400_000

/** Fills the counter of the month, unless another process has done so. */
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

/** Adds what batches took, which no request is charged for, to the tokens of the month. */
export async function addToMonth(
  store: Pick<LimitStore, 'redis' | 'prefix'>,
  subject: LimitSubject,
  tokens: number,
): Promise<void> {
  const bill = { minute: 0, tokensToAdd: 0, lease: '', tokensOfMonth: tokens }
  await settle(store, subject, bill)
}

/** Where the windows are kept and what their limits are. */
export interface LimitStore {
  readonly redis: Redis
  readonly prefix: string
  readonly limits: LimitsConfig
}

/** The sorted set with the leases of an organization's running jobs. */
export function leasesKey(prefix: string, organizationId: string): string {
  return `${prefix}:limits:jobs:${organizationId}`
}

function keysOf(prefix: string, subject: LimitSubject): readonly string[] {
  const { organizationId, credentialId, month } = subject
  return [
    `${prefix}:limits:credential:${credentialId}`,
    `${prefix}:limits:organization:${organizationId}`,
    leasesKey(prefix, organizationId),
    `${prefix}:limits:month:${organizationId}:${month}`,
  ]
}
