import { availableParallelism } from 'node:os'

import type { Clock } from '#shared/clock.ts'
import type { PasswordConfig } from '#shared/config/auth-policies.ts'
import { failure } from '#shared/errors.ts'
import { Turns } from '#shared/turns.ts'

import { inventArgon2id, isCurrentHash } from './argon2.ts'
import { createHashThreads } from './hash-threads.ts'
import { isKnownPasswordHash } from './password-hashes.ts'

/** Hashes and checks passwords on a bounded pool. */
export interface PasswordHasher {
  hash(password: string): Promise<string>
  /**
   * Checks a password. Without a `hash` it takes as long and returns false. `needsUpgrade` is true
   * for a right password whose hash is of an older kind.
   */
  verify(
    password: string,
    hash: string | undefined,
  ): Promise<{ readonly isRight: boolean; readonly needsUpgrade: boolean }>
  /** The numbers of running and waiting computations. */
  load(): { readonly running: number; readonly waiting: number }
}

/** How long a hash may wait before it is computed. */
interface Patience {
  readonly clock: Clock
  /** A request that waited longer has been answered with 503, so its result is not needed. */
  readonly waitMsMax: number
}

/**
 * argon2id with the configured parameters. Older kinds are verified and reported for an upgrade.
 */
export function createPasswordHasher(config: PasswordConfig, patience: Patience): PasswordHasher {
  const concurrency = config.hashConcurrency || availableParallelism()
  const { inPool, load } = createPool({
    concurrency,
    waitingMax: config.hashQueueMax,
    ...patience,
  })
  const threads = createHashThreads(concurrency)
  // For an unknown user the password is compared with a decoy hash.
  const decoy = inventArgon2id(config.argon2)
  return {
    hash: (password) => inPool(() => threads.hash(password, config.argon2)),
    load,
    async verify(password, stored = decoy) {
      const isCurrent = isCurrentHash(stored, config.argon2)
      // The configured cost is always permitted.
      const isComparable = isCurrent || isKnownPasswordHash(stored)
      const isRight = await inPool(() => threads.verify(password, isComparable ? stored : decoy))
      return { isRight, needsUpgrade: isRight && !isCurrent }
    },
  }
}

interface Pool {
  readonly inPool: <T>(work: () => Promise<T>) => Promise<T>
  readonly load: PasswordHasher['load']
}

function createPool(
  limits: Patience & { readonly concurrency: number; readonly waitingMax: number },
): Pool {
  const { clock, waitMsMax, concurrency, waitingMax } = limits
  const turns = new Turns(concurrency)
  const inPool: Pool['inPool'] = async (work) => {
    const sinceMs = clock.monotonic()
    if (turns.running >= concurrency && turns.waiting >= waitingMax) throw tooMany()
    return turns.run(async () => {
      // Under constant overload, work that is already too late would only delay the rest.
      if (clock.monotonic() - sinceMs > waitMsMax) throw tooMany()
      return work()
    })
  }
  return { inPool, load: () => ({ running: turns.running, waiting: turns.waiting }) }
}

function tooMany(): Error {
  return failure.overloaded('Too many sign-ins at once, please retry after a moment.', {
    code: 'over_capacity',
    retryAfterSeconds: 1,
  })
}
