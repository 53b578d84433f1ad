import type { Clock } from '#shared/clock.ts'
import { type ObjectStore, STAGED } from '#shared/storage/object-store.ts'

// URLs are valid for an hour and are issued shortly after their image was written; no job runs
// longer than that.
const JOB_AGE_MS_MAX = 65 * 60_000
// Longer than any upload may take.
const UPLOAD_AGE_MS_MAX = 6 * 3_600_000
const AGES_MS_MAX = {
  'media/': JOB_AGE_MS_MAX,
  'temporary/': JOB_AGE_MS_MAX,
  [STAGED]: UPLOAD_AGE_MS_MAX,
}

/**
 * Deletes images with expired URLs and leftovers of failed requests and processes. Returns their
 * number.
 */
export async function sweepMedia(options: {
  readonly store: ObjectStore
  readonly clock: Clock
}): Promise<number> {
  const { store, clock } = options
  let swept = 0
  for (const [prefix, ageMsMax] of Object.entries(AGES_MS_MAX)) {
    for await (const { key, modifiedAtMs } of store.list(prefix)) {
      if (clock.now() - modifiedAtMs <= ageMsMax) continue
      await store.delete(key)
      swept += 1
    }
  }
  return swept
}
