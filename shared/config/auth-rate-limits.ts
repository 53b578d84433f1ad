import { parseDurationMs } from '#shared/clock.ts'

import type { EnvReader } from './env-reader.ts'

/** `count` requests per window. The bucket refills evenly and holds at most `burst`. */
export interface RateLimit {
  readonly count: number
  readonly windowSeconds: number
  readonly burst: number
}

/** Failed credential checks that are answered without a delay. */
export interface GuessesConfig {
  /** Failures of one account from one network. */
  readonly perAccount: number
  /** Failures of one account from all networks. */
  readonly perAccountEverywhere: number
  /** Failures from one network for all accounts together. */
  readonly perNetwork: number
  readonly waitSecondsMax: number
}

/** Rate limits of the user server. */
export interface RateLimitsConfig {
  /** The header that identifies clients, in lower case; empty where limits count networks alone. */
  readonly header: string
  /** Mails per hour for the whole server; a count of 0 sends none. */
  readonly emailSent: RateLimit
  /** Text messages per hour for the whole server. */
  readonly smsSent: RateLimit
  readonly tokenRefresh: RateLimit
  /** Refreshes of one session; 0 sets no limit. */
  readonly sessionRefreshesPerHour: number
  readonly verify: RateLimit
  readonly otp: RateLimit
  readonly anonymousUsers: RateLimit
  readonly mfaChallengeAndVerify: RateLimit
  readonly passkey: RateLimit
  /** Changes, sign-ins and sign-outs of one user; a count of 0 sets no limit. */
  readonly userChanges: RateLimit
  /** Wrong guesses after which a one-time code is void. */
  readonly otpAttemptsMax: number
  readonly guesses: GuessesConfig
}

const MINUTE = 60
const HOUR = 3600
const BURST = 30
/** Changes that one user makes at once, as when a client saves every step of a form. */
const CHANGES_BURST = 100

/** Reads the rate limits. */
export function readRateLimitsConfig(env: EnvReader): RateLimitsConfig {
  env.section('User server: rate limits')
  const read = (name: string, about: string, fallback: Omit<RateLimit, 'burst'>): RateLimit =>
    readLimit(env, name, { about, ...fallback, burst: BURST })
  const perFiveMinutes = (count: number) => ({ count, windowSeconds: 5 * MINUTE })
  return {
    header: env.headerName('AUTH_RATE_LIMIT_HEADER', {
      about:
        'header that identifies clients for rate limits; if unset, only sign-ups, one-time codes and the start of sign-ins by provider or passkey are limited, per public network and at ten times the limit',
    }),
    emailSent: readLimit(env, 'AUTH_RATE_LIMIT_EMAIL_SENT', {
      about: 'mails per hour; one public network may cause as many as remain, half alone',
      count: 30,
      windowSeconds: HOUR,
      burst: 0,
    }),
    smsSent: readLimit(env, 'AUTH_RATE_LIMIT_SMS_SENT', {
      about: 'text messages per hour; one public network may cause as many as remain, half alone',
      count: 30,
      windowSeconds: HOUR,
      burst: 0,
    }),
    tokenRefresh: read(
      'AUTH_RATE_LIMIT_TOKEN_REFRESH',
      '/token and /authorize (sign-ins with a provider), per 5 minutes',
      perFiveMinutes(150),
    ),
    sessionRefreshesPerHour: env.int('MILLRACE_SESSION_REFRESHES_PER_HOUR', {
      about: 'refreshes of one session per hour, from all clients; 0 sets no limit',
      fallback: 1000,
      max: 100_000,
    }),
    verify: read('AUTH_RATE_LIMIT_VERIFY', '/verify per 5 minutes', perFiveMinutes(30)),
    otp: read(
      'AUTH_RATE_LIMIT_OTP',
      'each of sign-up, recovery, resend and one-time codes per 5 minutes',
      perFiveMinutes(30),
    ),
    anonymousUsers: read('AUTH_RATE_LIMIT_ANONYMOUS_USERS', 'anonymous sign-ins per hour', {
      count: 30,
      windowSeconds: HOUR,
    }),
    passkey: read(
      'AUTH_RATE_LIMIT_PASSKEY',
      'each step of a sign-in by passkey per 5 minutes',
      perFiveMinutes(30),
    ),
    mfaChallengeAndVerify: read(
      'AUTH_MFA_RATE_LIMIT_CHALLENGE_AND_VERIFY',
      'each of enrollments, challenges and verifications of second factors per minute',
      { count: 15, windowSeconds: MINUTE },
    ),
    userChanges: {
      count: env.int('MILLRACE_USER_CHANGES_PER_HOUR', {
        about:
          'changes of one user per hour from one network, such as of metadata, second factors and passkeys, and as many sign-ins and sign-outs; ten times as many from all networks; 0 sets no limit',
        fallback: 1000,
        max: 100_000,
      }),
      windowSeconds: HOUR,
      burst: CHANGES_BURST,
    },
    otpAttemptsMax: env.int('MILLRACE_OTP_ATTEMPTS_MAX', {
      about: 'wrong guesses after which a one-time code is void',
      fallback: 10,
      min: 1,
    }),
    guesses: readGuessesConfig(env),
  }
}

function readGuessesConfig(env: EnvReader): GuessesConfig {
  const count = (name: string, about: string, fallback: number): number =>
    env.int(name, { about, fallback, min: 1, max: 1e9 })
  return {
    perAccount: count(
      'MILLRACE_FAILURES_PER_ACCOUNT',
      'failed credential checks of one account from one network, after which each failure doubles the wait',
      10,
    ),
    perAccountEverywhere: count(
      'MILLRACE_FAILURES_PER_ACCOUNT_EVERYWHERE',
      'the same for one account from all networks together',
      100,
    ),
    perNetwork: count(
      'MILLRACE_FAILURES_PER_NETWORK',
      'the same for one network (an IPv4 address or an IPv6 /64) and all accounts',
      50,
    ),
    waitSecondsMax: env.seconds('MILLRACE_FAILURE_WAIT_MAX', {
      about: 'the longest wait after failed credential checks',
      fallback: 900,
    }),
  }
}

// `30` keeps the usual window, `30/10m` names its own.
function readLimit(
  env: EnvReader,
  name: string,
  fallback: RateLimit & { readonly about: string },
): RateLimit {
  const { about, ...limit } = fallback
  const text = env.string(name, {
    about: `${about}; 30/10m names another window`,
    fallback: String(limit.count),
  })
  const [count = '', window] = text.split('/')
  const windowMs = window === undefined ? limit.windowSeconds * 1000 : parseDurationMs(window)
  if (!/^\d+(\.\d+)?$/.test(count) || windowMs === undefined || windowMs <= 0) {
    env.problem(`${name} must be a number such as 30, or 30/10m, not "${text}"`)
    return limit
  }
  return { ...limit, count: Number(count), windowSeconds: windowMs / 1000 }
}
