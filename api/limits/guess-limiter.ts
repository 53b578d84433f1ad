import { createHash } from 'node:crypto'

import type { Clock } from '#shared/clock.ts'
import type { GuessesConfig } from '#shared/config/auth-rate-limits.ts'
import { failure } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import { createGuessMemory, type GuessAction, type GuessRule } from './guess-memory.ts'

/** The kinds of credential checks, each with its own counters. */
type CredentialKind = 'password' | 'code' | 'factor' | 'admin_token' | 'api_key'

/** One attempt with a credential. */
export interface Guess {
  readonly kind: CredentialKind
  /** The account as the client names it, whether or not it exists: the answer must be the same. */
  readonly account: string
  /** An IPv4 address or an IPv6 /64, from `clientOf`. */
  readonly network: string
}

/** Delays clients that guess credentials. */
export interface GuessLimiter {
  /**
   * Runs a credential check and counts its outcome. Throws 429 while the client has to wait, even
   * for a correct credential. The wait is read again after the check, so that only the allowed ones
   * of many simultaneous guesses are answered.
   */
  judge<T>(guess: Guess, check: () => Promise<T>, isRight: (result: T) => boolean): Promise<T>
}

/** The part of the Redis client that the limiter needs. */
interface GuessRedis {
  eval(
    script: string,
    numberOfKeys: number,
    ...keysAndArguments: (string | number)[]
  ): Promise<unknown>
}

const FIRST_WAIT_MS = 5000
const MINUTE_MS = 60_000
const KNOWN_MS = 30 * 24 * 60 * MINUTE_MS
/** The longest time that an attack from many networks may delay a sign-in from a new network. */
const ACCOUNT_WAIT_MS_MAX = MINUTE_MS

/**
 * Counts failures per account and network, per account, and per network. After a number of free
 * failures each further one doubles the wait, up to a limit; counts decrease evenly over time.
 *
 * An attacker must not be able to lock the owner out, so only the count of one account in one
 * network is strict. The count of one account in all networks starts to delay far later and for a
 * minute at most. Neither that count nor the network's applies where the account signed in within
 * the last 30 days, so that neighbours in the network and attackers elsewhere do not delay the
 * owner there. Links in mails are too long to guess and are never delayed. A success resets the
 * counts of the account but not that of the network, which an attacker's own account could
 * otherwise reset.
 *
 * The counts are in Redis, shared by all API processes. While Redis is unreachable each process
 * counts in its own memory, starting from zero.
 */
export function createGuessLimiter(options: {
  readonly redis: GuessRedis
  readonly keyPrefix: string
  readonly config: GuessesConfig
  readonly clock: Clock
  readonly log: Logger
}): GuessLimiter {
  const { redis, keyPrefix, config, clock, log } = options
  const rules = rulesOf(config)
  const memory = createGuessMemory(rules)
  let isAway = false
  const apply = async (guess: Guess, action: GuessAction): Promise<number> => {
    const keys = keysOf(keyPrefix, guess)
    try {
      const waitMs = await redis.eval(
        APPLY,
        keys.length,
        ...keys,
        clock.now(),
        action,
        KNOWN_MS,
        FIRST_WAIT_MS,
        ...rules.flatMap(({ free, decayMs, waitMsMax }) => [free, decayMs, waitMsMax]),
      )
      isAway = false
      return Number(waitMs)
    } catch (error) {
      if (!isAway) log.warn({ operation: 'limits.guesses', err: error }, 'guesses counted locally')
      isAway = true
      return memory.apply(keys, action, clock.now())
    }
  }
  const must = async (guess: Guess, action: GuessAction): Promise<void> => {
    const waitMs = await apply(guess, action)
    if (waitMs > 0) throw tooManyGuesses(waitMs)
  }
  return {
    async judge(guess, check, isRight) {
      await must(guess, 'look')
      const result = await check()
      await must(guess, isRight(result) ? 'right' : 'wrong')
      return result
    },
  }
}

/** The rules in the order of the keys: account in network, account, network. */
function rulesOf(config: GuessesConfig): readonly GuessRule[] {
  const { perAccount, perAccountEverywhere, perNetwork, waitSecondsMax } = config
  const waitMsMax = waitSecondsMax * 1000
  const common = { firstWaitMs: FIRST_WAIT_MS, knownMs: KNOWN_MS }
  return [
    { ...common, free: perAccount, decayMs: 15 * MINUTE_MS, waitMsMax },
    {
      ...common,
      free: perAccountEverywhere,
      decayMs: MINUTE_MS,
      waitMsMax: Math.min(waitMsMax, ACCOUNT_WAIT_MS_MAX),
    },
    { ...common, free: perNetwork, decayMs: MINUTE_MS, waitMsMax },
  ]
}

function keysOf(keyPrefix: string, { kind, account, network }: Guess): string[] {
  const [who, where] = [digestOf(account), digestOf(network)]
  // A client that repeats a revoked API key must not block sign-ins of its network.
  const family = kind === 'api_key' ? 'keys' : 'people'
  return [
    `${keyPrefix}guesses:pair:${kind}:${who}:${where}`,
    `${keyPrefix}guesses:account:${kind}:${who}`,
    `${keyPrefix}guesses:network:${family}:${where}`,
    `${keyPrefix}guesses:known:${kind}:${who}:${where}`,
  ]
}

// Account names are hashed, so that Redis does not contain them.
function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 22)
}

function tooManyGuesses(waitMs: number): Error {
  return failure.rateLimited('Request rate limit reached', {
    code: 'over_request_rate_limit',
    retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1000)),
  })
}

/*
 * The same as guess-memory.ts. KEYS: the three counts, the mark of a known pair. ARGV: now, action,
 * milliseconds a pair stays known, first wait, then free failures, milliseconds after which one
 * failure decays and longest wait of each count. Returns the milliseconds to wait, 0 for none.
 */
const APPLY = `
local now, action = tonumber(ARGV[1]), ARGV[2]
local binding = redis.call('EXISTS', KEYS[4]) == 1 and 1 or 3
local counts, wait = {}, 0
for i = 1, 3 do
  counts[i] = redis.call('HMGET', KEYS[i], 'level', 'at', 'release')
  if i <= binding then wait = math.max(wait, (tonumber(counts[i][3]) or 0) - now) end
end
if wait > 0 or action == 'look' then return math.ceil(wait) end
if action == 'right' then
  redis.call('DEL', KEYS[1], KEYS[2])
  redis.call('SET', KEYS[4], '1', 'PX', ARGV[3])
  return 0
end
for i = 1, 3 do
  local free, decay, longest = tonumber(ARGV[2 + 3 * i]), tonumber(ARGV[3 + 3 * i]), tonumber(ARGV[4 + 3 * i])
  local at = tonumber(counts[i][2]) or now
  local level = math.max(0, (tonumber(counts[i][1]) or 0) - math.max(0, now - at) / decay) + 1
  local over = math.ceil(level) - free + 1
  local release = tonumber(counts[i][3]) or 0
  if over > 0 then release = now + math.min(longest, tonumber(ARGV[4]) * 2 ^ (over - 1)) end
  redis.call('HSET', KEYS[i], 'level', tostring(level), 'at', now, 'release', release)
  redis.call('PEXPIRE', KEYS[i], math.ceil(level * decay + longest))
end
return 0`
