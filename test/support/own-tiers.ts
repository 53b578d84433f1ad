import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { inject } from 'vitest'

import { freshPrefix } from './queue.ts'
import { createDatabase } from './services.ts'
import { startTiers, type TierPlace, type Tiers } from './tiers.ts'

/** Starts one API process, with a database, a key prefix and a folder that end with it. */
export async function startOwnTiers(
  env: Readonly<Record<string, string>>,
): Promise<Tiers & Omit<TierPlace, 'env'>> {
  const { url, drop } = await createDatabase()
  const place = {
    databaseUrl: url,
    redisUrl: inject('redisUrl'),
    keyPrefix: freshPrefix(),
    folder: await mkdtemp(join(tmpdir(), 'millrace-tiers-')),
  }
  const tiers = await startTiers({ ...place, env })
  return {
    ...tiers,
    ...place,
    async stop() {
      await tiers.stop()
      await drop()
      await rm(place.folder, { recursive: true, force: true })
    },
  }
}
