import { scrypt, timingSafeEqual } from 'node:crypto'
import { availableParallelism } from 'node:os'

import bcrypt from 'bcryptjs'

import type { Clock } from '#shared/clock.ts'
import type { PasswordConfig } from '#shared/config/auth-policies.ts'
import { failure } from '#shared/errors.ts'

import {
  ARGON2_FORMAT,
  hashArgon2id,
  inventArgon2id,
  isCurrentHash,
  readArgon2,
  verifyArgon2,
} from './argon2.ts'
import { FIREBASE_FORMAT, verifyFirebaseScrypt } from './firebase-scrypt.ts'
import { createHashThreads, type ComputeArgon2 } from './hash-threads.ts'

/** Hashes and checks passwords on a bounded pool. */
export interface PasswordHasher {
  hash(password: string): Promise<string>
  /**
   * `hash` undefined means there is nothing to compare with; it takes as long and answers false.
   * `needsUpgrade` is true for a right password whose hash is of an older kind.
   */
  verify(
    password: string,
    hash: string | undefined,
  ): Promise<{ readonly isRight: boolean; readonly needsUpgrade: boolean }>
  /** Computations under way, and those that wait for a place. */
  load(): { readonly running: number; readonly waiting: number }
}

interface Scheme {
  readonly format: RegExp
  /** False for parameters that would keep the machine busy: hashes may come from outside. */
  isBearable(hash: string): boolean
  verify(password: string, hash: string, compute: ComputeArgon2): Promise<boolean>
}

// A malformed hash is nobody's password, and nobody's failure either.
const nobodys = (): boolean => false

// Hashes that other servers wrote.
const SCHEMES: readonly Scheme[] = [
  {
    format: ARGON2_FORMAT,
    isBearable: (hash) => {
      const made = readArgon2(hash)
      return (
        made !== undefined &&
        made.memoryKib <= ARGON2_MEMORY_KIB_MAX &&
        made.memoryKib * made.passes <= ARGON2_WORK_KIB_MAX &&
        made.passes <= ARGON2_PASSES_MAX &&
        made.parallelism <= ARGON2_LANES_MAX
      )
    },
    verify: (password, hash, compute) => verifyArgon2(compute, password, hash),
  },
  {
    format: /^\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}$/,
    isBearable: (hash) => Number(hash.slice(4, 6)) <= BCRYPT_COST_MAX,
    verify: (password, hash) => bcrypt.compare(password, hash).catch(nobodys),
  },
  {
    format: FIREBASE_FORMAT,
    isBearable: (hash) => isBearableScrypt(hash, 'n'),
    verify: (password, hash) => verifyFirebaseScrypt(password, hash).catch(nobodys),
  },
  {
    format: /^\$scrypt\$ln=\d+,r=\d+,p=\d+\$[^$]+\$[^$]+$/,
    isBearable: (hash) => isBearableScrypt(hash, 'ln'),
    verify: (password, hash) => verifyScrypt(password, hash).catch(nobodys),
  },
]

const ARGON2_MEMORY_KIB_MAX = 1024 * 1024
const ARGON2_WORK_KIB_MAX = 4 * ARGON2_MEMORY_KIB_MAX
const ARGON2_PASSES_MAX = 64
const ARGON2_LANES_MAX = 64
const BCRYPT_COST_MAX = 15

/** True when `hash` is of a kind that `verify` understands. */
export function isKnownPasswordHash(hash: string): boolean {
  return hash.length <= HASH_CHARACTERS_MAX && findScheme(hash) !== undefined
}

const HASH_CHARACTERS_MAX = 1024

/** How long a hash may wait for its turn. */
export interface Patience {
  readonly clock: Clock
  /** Whoever waited longer has been told to come back: nobody would read the result. */
  readonly waitMsMax: number
}

/** argon2id with the configured parameters; older kinds are verified and reported for an upgrade. */
export function createPasswordHasher(config: PasswordConfig, patience: Patience): PasswordHasher {
  const concurrency = config.hashConcurrency || availableParallelism()
  const { inPool, load } = createPool({
    concurrency,
    waitingMax: config.hashQueueMax,
    ...patience,
  })
  const compute = createHashThreads(concurrency)
  const hash = (password: string): Promise<string> =>
    inPool(() => hashArgon2id(compute, password, config.argon2))
  // An unknown user is compared with the password of nobody.
  const nobody = inventArgon2id(config.argon2)
  return {
    hash,
    load,
    async verify(password, stored) {
      const scheme = stored === undefined ? undefined : findScheme(stored)
      // What the settings ask for is bearable, however much it is.
      const isCurrent = stored !== undefined && isCurrentHash(stored, config.argon2)
      if (stored === undefined || (scheme === undefined && !isCurrent)) {
        await inPool(() => verifyArgon2(compute, password, nobody))
        return { isRight: false, needsUpgrade: false }
      }
      const isRight = await inPool(() => {
        if (scheme === undefined) return verifyArgon2(compute, password, stored)
        return scheme.verify(password, stored, compute)
      })
      return { isRight, needsUpgrade: isRight && !isCurrent }
    },
  }
}

function findScheme(hash: string): Scheme | undefined {
  return SCHEMES.find((scheme) => scheme.format.test(hash) && scheme.isBearable(hash))
}

// An imported hash must not exhaust the machine: 2^21 blocks of 128 bytes, all lanes together.
const SCRYPT_WORK_MAX = 2 ** 21

function isBearableScrypt(hash: string, exponent: 'n' | 'ln'): boolean {
  const [r, p] = [parameterOf(hash, 'r'), parameterOf(hash, 'p')]
  return 2 ** parameterOf(hash, exponent) * r * p <= SCRYPT_WORK_MAX
}

function parameterOf(hash: string, name: string): number {
  return Number(new RegExp(`[$,]${name}=(\\d+)`).exec(hash)?.[1] ?? 0)
}

/** `$scrypt$ln=14,r=8,p=1$salt$hash` with base64 fields. */
async function verifyScrypt(password: string, hash: string): Promise<boolean> {
  const match = /^\$scrypt\$ln=(\d+),r=(\d+),p=(\d+)\$([^$]+)\$([^$]+)$/.exec(hash)
  if (!match) return false
  const [, ln, r, p, salt = '', key = ''] = match
  const cost = 2 ** Number(ln)
  const expected = Buffer.from(key, 'base64')
  const options = { N: cost, r: Number(r), p: Number(p), maxmem: 512 * 1024 * 1024 }
  const actual = await new Promise<Buffer>((resolve, reject) => {
    scrypt(password, Buffer.from(salt, 'base64'), expected.length, options, (error, derived) =>
      error ? reject(error) : resolve(derived),
    )
  })
  return timingSafeEqual(actual, expected)
}

interface Pool {
  readonly inPool: <T>(work: () => Promise<T>) => Promise<T>
  readonly load: PasswordHasher['load']
}

function createPool(
  limits: Patience & { readonly concurrency: number; readonly waitingMax: number },
): Pool {
  const { clock, waitMsMax } = limits
  const waiting: (() => void)[] = []
  let running = 0
  const inPool: Pool['inPool'] = async (work) => {
    const sinceMs = clock.monotonic()
    if (running >= limits.concurrency) {
      if (waiting.length >= limits.waitingMax) throw tooMany()
      // The finished work hands its place over, so `running` stays as it is.
      await new Promise<void>((resolve) => waiting.push(resolve))
    } else {
      running += 1
    }
    try {
      // In a storm that lasts, work that comes too late would only make the rest late too.
      if (clock.monotonic() - sinceMs > waitMsMax) throw tooMany()
      return await work()
    } finally {
      const next = waiting.shift()
      if (next === undefined) running -= 1
      else next()
    }
  }
  return { inPool, load: () => ({ running, waiting: waiting.length }) }
}

function tooMany(): Error {
  return failure.overloaded('Too many sign-ins at once, please retry after a moment.', {
    code: 'over_capacity',
    retryAfterSeconds: 1,
  })
}
