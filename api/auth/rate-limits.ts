import type { Clock } from '#shared/clock.ts'
import type { RateLimit, RateLimitsConfig } from '#shared/config/auth-rate-limits.ts'
import { ServiceError } from '#shared/errors.ts'
import { isPublicAddress } from '#shared/net/private-addresses.ts'

import type { AuthRequest } from './context.ts'
import { authFailure } from './errors.ts'
import { sha256 } from './secrets.ts'

/** The part of the Redis client that limits need. */
export interface RateLimitRedis {
  eval(
    script: string,
    numberOfKeys: number,
    ...keysAndArguments: (string | number)[]
  ): Promise<unknown>
}

/** Limits per client; each route has its own bucket. */
const REQUEST_LIMITS = [
  'tokenRefresh',
  'verify',
  'otp',
  'anonymousUsers',
  'mfaChallengeAndVerify',
  'passkey',
] as const

/** The name of a limit per client. */
export type RequestLimit = (typeof REQUEST_LIMITS)[number]

/**
 * Limits per user or second factor. Changes, sign-ins and sign-outs add entries to the audit log.
 */
const ACCOUNT_LIMITS = {
  changes: 'userChanges',
  'sign-ins': 'userChanges',
  'sign-outs': 'userChanges',
  enrolments: 'mfaChallengeAndVerify',
  verifications: 'mfaChallengeAndVerify',
} as const

type AccountLimit = keyof typeof ACCOUNT_LIMITS

/** All networks together may use this many times the limit of one. */
const NETWORKS_SHARE = 10

/** The counted channels of the server-wide limits. */
type SendChannel = 'email' | 'sms'

/** The request that causes a message. */
type Sender = Pick<AuthRequest, 'ip' | 'network' | 'caller'>

/** Counts in Redis, so that all API processes together keep every limit. */
export interface RateLimits {
  /**
   * Throws 429 when the client of this address has emptied the bucket. A bucket for several clients
   * is larger by their number.
   */
  takeRequest(limit: RequestLimit, bucket: string, address: string, clients?: number): Promise<void>
  /**
   * Throws 429 when the network has emptied its bucket of this user or factor, or all networks
   * together have emptied theirs: another person who knows the password does not lock the user out.
   */
  takeOfAccount(
    limit: AccountLimit,
    account: { readonly id: string; readonly network: string },
  ): Promise<void>
  /**
   * Throws 429 when the hourly limit of messages is reached; otherwise counts one. A public network
   * may cause as many messages as remain for all others, so one network alone gets half.
   */
  takeSend(channel: SendChannel, sender: Sender): Promise<void>
  /** Like `takeSend`, but does not count. */
  checkSend(channel: SendChannel, sender: Sender): Promise<void>
  /** Throws 429 when the same was requested for this contact, or user, within the gap. */
  takeContact(
    purpose: string,
    contact: string,
    gapSeconds: number,
    channel?: SendChannel,
  ): Promise<void>
}

/** Rate limits on Redis; keys begin with `keyPrefix`. */
export function createRateLimits(options: {
  readonly redis: RateLimitRedis
  readonly keyPrefix: string
  readonly config: RateLimitsConfig
  readonly clock: Clock
}): RateLimits {
  const { redis, config, clock } = options
  const key = (...parts: string[]): string => `${options.keyPrefix}${parts.join(':')}`
  const window = async (
    name: string,
    limit: RateLimit,
    { cost = 1, share = '' } = {},
  ): Promise<number> => {
    const lengthMs = limit.windowSeconds * 1000
    const taken = [clock.now(), lengthMs, limit.count, cost, share] as const
    return Number(await redis.eval(TAKE_FROM_WINDOW, 1, name, ...taken))
  }
  const take = async (name: string, limit: RateLimit, clients = 1): Promise<void> => {
    const perMs = (clients * limit.count) / (limit.windowSeconds * 1000)
    const size = clients * limit.burst
    const waitMs = Number(await redis.eval(TAKE_FROM_BUCKET, 1, name, clock.now(), perMs, size))
    if (waitMs > 0) {
      throw authFailure('over_request_rate_limit', { retryAfterSeconds: waitMs / 1000 })
    }
  }
  const send = async (channel: SendChannel, sender: Sender, cost: number): Promise<void> => {
    const limit = channel === 'email' ? config.emailSent : config.smsSent
    const waitMs = await window(key('send', channel), limit, { cost, share: shareOf(sender) })
    if (waitMs > 0) throw authFailure(SEND_FAILURES[channel], { retryAfterSeconds: waitMs / 1000 })
  }
  return {
    async takeRequest(limit, bucket, address, clients) {
      const name = key('request', bucket, sha256(address).toString('base64url'))
      await take(name, config[limit], clients)
    },
    async takeOfAccount(limit, { id, network }) {
      const size = config[ACCOUNT_LIMITS[limit]]
      if (size === config.userChanges && size.count === 0) return
      const name = key('account', limit, id)
      try {
        await take(`${name}:${sha256(network).toString('base64url')}`, size)
        await take(name, size, NETWORKS_SHARE)
      } catch (error) {
        // Users can sign in while Redis is unreachable; the guess limiter reports that it is.
        if (error instanceof ServiceError || limit !== 'sign-ins') throw error
      }
    },
    takeSend: (channel, sender) => send(channel, sender, 1),
    checkSend: (channel, sender) => send(channel, sender, 0),
    async takeContact(purpose, contact, gapSeconds, channel = 'email') {
      if (gapSeconds <= 0) return
      const name = key('contact', purpose, sha256(contact).toString('base64url'))
      const waitMs = await window(name, { count: 1, windowSeconds: gapSeconds, burst: 0 })
      if (waitMs > 0) throw tooSoon(channel, waitMs / 1000)
    },
  }
}

/**
 * The network whose share of the messages a request uses; empty for administrators, and for the
 * address of an untrusted proxy or of this machine, which all clients have.
 */
function shareOf({ ip, network, caller }: Sender): string {
  if (caller?.kind === 'admin') return ''
  if (network === ip && !isPublicAddress(ip)) return ''
  // One customer often has all the /64 networks of a /48.
  const site = /^(?:[^:]+:){3}/.exec(network)?.[0] ?? network
  return sha256(site).toString('base64url')
}

/** 429 for asking again within the gap of one user. */
export function tooSoon(channel: SendChannel, waitSeconds: number): Error {
  const seconds = Math.max(1, Math.ceil(waitSeconds))
  return authFailure(SEND_FAILURES[channel], {
    message: `For security purposes, you can only request this after ${seconds} seconds.`,
    retryAfterSeconds: seconds,
  })
}

const SEND_FAILURES = {
  email: 'over_email_send_rate_limit',
  sms: 'over_sms_send_rate_limit',
} as const

/**
 * Takes one from a bucket that refills evenly: never more than burst at once nor more than the rate
 * over time, for all callers together.
 * KEYS[1] bucket; ARGV[1] now (ms), [2] refill per ms, [3] burst.
 * Returns 0, or the milliseconds until the next one.
 */
const TAKE_FROM_BUCKET = `
local now, rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local state = redis.call('HMGET', KEYS[1], 'level', 'at')
local at = tonumber(state[2]) or now
local level = math.min(burst, (tonumber(state[1]) or burst) + math.max(0, now - at) * rate)
local wait = 0
if level >= 1 then level = level - 1
elseif rate > 0 then wait = math.ceil((1 - level) / rate)
else wait = 3600000 end
redis.call('HSET', KEYS[1], 'level', tostring(level), 'at', math.max(now, at))
if rate > 0 then redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate) + 1000)
else redis.call('PEXPIRE', KEYS[1], 3600000) end
return wait`

/**
 * Counts in fixed windows that begin with their first use: at most ARGV[3] per window, and for a
 * share not more than remain for the others.
 * KEYS[1] window; ARGV[1] now (ms), [2] length (ms), [3] limit, [4] cost (0 only reads),
 * [5] name of the share, or empty.
 * Returns 0, or the milliseconds until the window ends.
 */
const TAKE_FROM_WINDOW = `
local now, length, limit, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local share = ARGV[5] ~= '' and 'share:' .. ARGV[5]
local state = redis.call('HMGET', KEYS[1], 'since', 'used', share or '')
local since, used, own = tonumber(state[1]), tonumber(state[2]) or 0, tonumber(state[3]) or 0
if since == nil or now >= since + length then
  since, used, own = now, 0, 0
  if cost > 0 then redis.call('DEL', KEYS[1]) end
end
if used + (share and own or 0) + math.max(cost, 1) > limit then
  return math.max(1, since + length - now)
end
if cost > 0 then
  redis.call('HSET', KEYS[1], 'since', since, 'used', used + cost)
  if share then redis.call('HSET', KEYS[1], share, own + cost) end
  redis.call('PEXPIRE', KEYS[1], math.ceil(length))
end
return 0`
