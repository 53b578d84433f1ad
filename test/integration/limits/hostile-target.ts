import { randomUUID } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { expect, inject } from 'vitest'

import { quantile, report } from '#test/support/fault-report.ts'
import { openFaultTiers, type TierProcess } from '#test/support/fault-tiers.ts'
import { residentMib } from '#test/support/process-use.ts'
import { createDatabase } from '#test/support/services.ts'
import { IMAGE_MODEL, TEXT_MODELS } from '#test/support/small-models.ts'
import { API_KEY } from '#test/support/tiers.ts'
import { type WatchedProcess, watchProcess } from '#test/support/watched-process.ts'

const MODELS = join(import.meta.dirname, '../../../models')
// Garbage of a few bodies that was not collected yet is not growth; a body that is kept is.
const GROWTH_MIB_MAX = 128

/** How a request was answered. */
export interface Refusal {
  readonly status: number
  readonly param: string | null | undefined
  readonly code: string | null | undefined
}

/** A real API process and a real worker with a model of every kind, to be badly treated. */
export interface Target {
  readonly api: TierProcess
  readonly worker: TierProcess
  readonly watched: { readonly api: WatchedProcess; readonly worker: WatchedProcess }
  /** Posts below `/v1`; an answer that is no error has no `param`. */
  post(
    path: string,
    body: NonNullable<RequestInit['body']>,
    headers?: Record<string, string>,
  ): Promise<Refusal>
  /** Runs something after which both processes must live on, hardly larger than before. */
  unharmed(act: () => Promise<void>): Promise<void>
  close(): Promise<void>
}

/** Opens the console of the API process. */
export const ADMIN_TOKEN = 'the-admin-token-of-the-tests'

export const JSON_HEADERS = { 'content-type': 'application/json' }

/** Starts both processes, the API with additional settings. */
export async function openTarget(env: Readonly<Record<string, string>> = {}): Promise<Target> {
  const database = await createDatabase()
  const folder = await mkdtemp(join(tmpdir(), 'millrace-hostile-'))
  const catalogue = join(folder, 'models.json')
  await writeFile(catalogue, JSON.stringify({ models: CATALOGUE }))
  const tiers = openFaultTiers({
    databaseUrl: database.url,
    redisUrl: inject('redisUrl'),
    folder,
    keyPrefix: `hostile-${randomUUID().slice(0, 8)}`,
    env: {
      MILLRACE_CATALOGUE: catalogue,
      MILLRACE_WORKER_MODELS: '',
      MILLRACE_ADMIN_TOKEN: ADMIN_TOKEN,
      ...env,
    },
  })
  const watched = { api: await watchProcess(), worker: await watchProcess() }
  const api = await tiers.startApi(watched.api.env)
  const worker = await tiers.startWorker(watched.worker.env)
  const refusedAfterMs: number[] = []
  const growthMib: number[] = []
  const loopDelayMs: number[] = []
  const post: Target['post'] = async (path, body, headers = {}) => {
    const from = performance.now()
    const answer = await fetch(`${api.url}/v1${path}`, {
      method: 'POST',
      body,
      headers: { authorization: `Bearer ${API_KEY}`, ...headers },
    })
    const { error } = (await answer.json().catch(() => ({}))) as { error?: Omit<Refusal, 'status'> }
    if (answer.status >= 400) refusedAfterMs.push(performance.now() - from)
    return { status: answer.status, param: error?.param, code: error?.code }
  }
  return {
    api,
    worker,
    watched,
    post,
    async unharmed(act) {
      const before = [residentMib(api.pid), residentMib(worker.pid)] as const
      await watched.api.loopDelayMs()
      await act()
      loopDelayMs.push(await watched.api.loopDelayMs())
      growthMib.push(residentMib(api.pid) - before[0])
      expect([api.isRunning(), worker.isRunning()]).toEqual([true, true])
      expect(residentMib(api.pid) - before[0]).toBeLessThan(GROWTH_MIB_MAX)
      expect(residentMib(worker.pid) - before[1]).toBeLessThan(GROWTH_MIB_MAX)
      const fine = JSON.stringify({ model: 'embed', input: 'Still here.' })
      expect((await post('/embeddings', fine, JSON_HEADERS)).status).toBe(200)
    },
    async close() {
      report('hostile requests', {
        refused: refusedAfterMs.length,
        'refused after p50 ms': quantile(refusedAfterMs, 0.5),
        'at most ms': Math.max(...refusedAfterMs),
        'loop of the API held up p50 ms': quantile(loopDelayMs, 0.5),
        'held up at most ms': Math.max(...loopDelayMs),
        'API growth at most MiB': Math.max(...growthMib),
      })
      await tiers.stop()
      await database.drop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

const CATALOGUE = [
  ...TEXT_MODELS,
  IMAGE_MODEL,
  { id: 'speech', kind: 'audio', source: join(MODELS, 'tiny-whisper') },
  {
    id: 'moderation',
    kind: 'embedding',
    source: join(MODELS, 'tiny-moderation'),
    capabilities: ['classify'],
  },
]
