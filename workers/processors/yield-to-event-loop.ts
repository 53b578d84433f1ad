import { setImmediate } from 'node:timers/promises'

import type { Clock } from '#shared/clock.ts'

// Short against the heartbeat of a worker and against one step of the engines beside it.
const TURN_MS = 10

/**
 * For loops that compute without waiting: lets everything else in the process have its turn once the
 * loop has run for a while.
 */
export function yieldToEventLoop(clock: Clock): () => Promise<void> {
  let startedAtMs = clock.monotonic()
  return async () => {
    if (clock.monotonic() - startedAtMs < TURN_MS) return
    await setImmediate()
    startedAtMs = clock.monotonic()
  }
}
