import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { inject } from 'vitest'

import { freshPrefix } from './queue.ts'
import { createDatabase } from './services.ts'

/** Where tiers that are tried keep what they have: a database, a folder and keys of their own. */
export async function openFaultPlace(name: string) {
  const database = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), `millrace-${name}-`))
  const keyPrefix = freshPrefix()
  return {
    settings: { databaseUrl: database.url, redisUrl: inject('redisUrl'), folder, keyPrefix },
    /** Stops the tiers, and then removes what they had. */
    async close(tiers: { stop(): Promise<unknown> }): Promise<void> {
      await tiers.stop()
      await database.drop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
