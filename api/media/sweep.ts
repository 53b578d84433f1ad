import type { Clock } from '#shared/clock.ts'
import { STAGED, type ObjectStore } from '#shared/storage/object-store.ts'

// Addresses are valid for an hour and are given out shortly after their picture was written; no
// request runs longer than that either.
const AGE_MS_MAX = 65 * 60_000
const PREFIXES = ['media/', 'temporary/', STAGED]

/** Deletes pictures whose addresses have expired and what dead requests and processes left. Returns how many. */
export async function sweepMedia(options: {
  readonly store: ObjectStore
  readonly clock: Clock
}): Promise<number> {
  const { store, clock } = options
  let swept = 0
  for (const prefix of PREFIXES) {
    for await (const { key, modifiedAtMs } of store.list(prefix)) {
      if (clock.now() - modifiedAtMs <= AGE_MS_MAX) continue
      await store.delete(key)
      swept += 1
    }
  }
  return swept
}
