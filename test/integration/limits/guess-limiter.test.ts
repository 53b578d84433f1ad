import { Redis } from 'ioredis'
import { expect } from 'vitest'

import { createGuessLimiter } from '#api/limits/guess-limiter.ts'
import type { ServiceError } from '#shared/errors.ts'
import { createLogger } from '#shared/logger.ts'
import { createRandom } from '#test/support/random.ts'
import { it } from '#test/support/services.ts'

const CONFIG = { perAccount: 3, perAccountEverywhere: 5, perNetwork: 8, waitSecondsMax: 600 }
const GUESSES = 600
// Sixteenths of the longest time in which a failure expires, so that all counts are exact.
const PAUSE_MS = 56_250
const PAUSES = [0, 0, 0, 0, 0, 1, 4, 12]

it('delays guesses alike by the counts in Redis and, while it is away, by those of the process', async ({
  redisUrl,
  keyPrefix,
}) => {
  const redis = new Redis(redisUrl)
  const away = { eval: () => Promise.reject(new Error('away')) }
  let nowMs = 1_000_000
  const limiters = [redis, away].map((counts) =>
    createGuessLimiter({
      redis: counts,
      keyPrefix,
      config: CONFIG,
      clock: { now: () => nowMs, monotonic: () => nowMs },
      log: createLogger({ level: 'silent' }),
    }),
  )
  const random = createRandom()
  const drawOf = <T>(all: readonly T[]): T => all[Math.floor(random() * all.length)] as T
  const answers = { right: 0, wrong: 0, delayed: 0 }
  for (let number = 0; number < GUESSES; number += 1) {
    nowMs += drawOf(PAUSES) * PAUSE_MS
    const kind = 'password' as const
    const guess = { kind, account: drawOf(['one', 'two']), network: drawOf(['a', 'b', 'c']) }
    const outcome = random() < 0.1 ? 'right' : 'wrong'
    const [shared, own] = await Promise.all(
      limiters.map((limiter) =>
        limiter
          .judge(
            guess,
            async () => outcome,
            (found) => found === 'right',
          )
          .catch((error: ServiceError) => error.retryAfterSeconds),
      ),
    )
    expect({ number, answer: own }).toEqual({ number, answer: shared })
    answers[shared === 'right' || shared === 'wrong' ? shared : 'delayed'] += 1
  }
  expect(Object.values(answers).every((count) => count > 5)).toBe(true)
  redis.disconnect()
})
