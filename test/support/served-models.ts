import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { inject } from 'vitest'

import { openFaultTiers } from './fault-tiers.ts'
import { freshPrefix } from './queue.ts'
import { createDatabase } from './services.ts'
import { API_KEY } from './tiers.ts'

/**
 * Starts an API process that offers these models, and a worker that serves some of them, with a
 * database, a key prefix and a folder that end with them.
 */
export async function serveModels(models: readonly object[], served: readonly string[]) {
  const database = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-models-'))
  const catalogue = join(folder, 'models.json')
  await writeFile(catalogue, JSON.stringify({ models }))
  const tiers = openFaultTiers({
    databaseUrl: database.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: freshPrefix(),
    env: { MILLRACE_CATALOGUE: catalogue, MILLRACE_WORKER_MODELS: served.join(',') },
  })
  const close = async (): Promise<void> => {
    await tiers.stop()
    await database.drop()
    await rm(folder, { recursive: true, force: true })
  }
  try {
    const [{ url }] = await Promise.all([tiers.startApi(), tiers.startWorker()])
    return { post: (path: string, body: object) => post(`${url}${path}`, body), close }
  } catch (error) {
    await close()
    throw error
  }
}

async function post(url: string, body: object): Promise<{ status: number; body: unknown }> {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  return { status: answer.status, body: await answer.json() }
}
