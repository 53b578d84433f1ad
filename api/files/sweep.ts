import type { Clock } from '#shared/clock.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import type { Files } from './file-store.ts'

// Longer than any upload may take: older objects without a row are orphans.
const ORPHAN_AGE_MS = 6 * 3600 * 1000
const BATCH = 500

/** Deletes stored objects without a file row. Returns their number. */
export async function sweepOrphans(options: {
  readonly files: Files
  readonly store: ObjectStore
  readonly clock: Clock
}): Promise<number> {
  const { files, store, clock } = options
  await files.deleteExpired()
  await files.deleteOfDeletedOrganizations()
  let swept = 0
  let batch: string[] = []
  const sweepBatch = async () => {
    const known = await files.knownKeys(batch)
    for (const key of batch.filter((candidate) => !known.has(candidate))) {
      await store.delete(key)
      swept += 1
    }
    batch = []
  }
  for await (const { key, modifiedAtMs } of store.list('files/')) {
    if (clock.now() - modifiedAtMs > ORPHAN_AGE_MS) batch.push(key)
    if (batch.length === BATCH) await sweepBatch()
  }
  await sweepBatch()
  return swept
}
