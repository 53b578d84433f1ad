import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import { startRedis } from '#launcher/embedded/redis.ts'
import { type FaultTiers, openFaultTiers, type TierProcess } from '#test/support/fault-tiers.ts'
import { API_KEY, startTiers, type Tiers } from '#test/support/tiers.ts'

/** A whole installation in processes of its own: what a client sees. */
export interface BenchService {
  readonly api: TierProcess
  /** The address with `/v1`. */
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  close(): Promise<void>
}

/** One model of a catalogue. */
export interface ServedModel {
  readonly id: string
  readonly kind: string
  readonly source: string
  readonly capabilities?: readonly string[]
}

/** Databases of its own, and the processes that are started on them. */
export interface BenchTiers {
  readonly tiers: FaultTiers
  close(): Promise<void>
}

/** Starts the databases; `envOf` puts what the processes need into the folder and names it. */
export async function openBenchTiers(
  envOf: (folder: string) => Promise<Readonly<Record<string, string>>>,
): Promise<BenchTiers> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  const env = await envOf(folder)
  const redis = await startRedis(folder, { password: 'bench', onProgress: () => {} })
  const postgres = await startPostgres(folder, { password: 'bench' })
  const tiers = openFaultTiers({
    databaseUrl: postgres.url,
    redisUrl: redis.url,
    keyPrefix: 'bench',
    folder,
    env,
  })
  const close = async (): Promise<void> => {
    await tiers.stop()
    await redis.stop()
    await postgres.stop()
    await rm(folder, { recursive: true, force: true })
  }
  return { tiers, close }
}

/** Starts databases, an API process and, if there are models, a worker that serves them. */
export async function openService(
  models: readonly ServedModel[],
  env: Readonly<Record<string, string>> = {},
): Promise<BenchService> {
  const { tiers, close } = await openBenchTiers(async (folder) => {
    const catalogue = join(folder, 'models.json')
    await writeFile(catalogue, JSON.stringify({ models }))
    return { MILLRACE_CATALOGUE: catalogue, MILLRACE_WORKER_MODELS: '', ...env }
  })
  try {
    const api = await tiers.startApi()
    if (models.length > 0) await tiers.startWorker({ MILLRACE_INTRA_OP_THREADS: '' })
    return { api, close, url: `${api.url}/v1`, headers: { authorization: `Bearer ${API_KEY}` } }
  } catch (error) {
    await close()
    throw error
  }
}

/** Databases of its own, and both tiers with the models that ship. */
export interface ShippedTiers {
  readonly tiers: Tiers
  readonly databaseUrl: string
  close(): Promise<void>
}

/** Starts databases and both tiers with the models that ship. */
export async function openShippedTiers(
  env: Readonly<Record<string, string>> = {},
): Promise<ShippedTiers> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  const redis = await startRedis(folder, { password: 'bench', onProgress: console.error })
  const postgres = await startPostgres(folder, { password: 'bench' })
  const [databaseUrl, redisUrl] = [postgres.url, redis.url]
  const tiers = await startTiers({ env, databaseUrl, redisUrl, keyPrefix: 'bench', folder })
  const close = async (): Promise<void> => {
    await tiers.stop()
    await redis.stop()
    await postgres.stop()
    await rm(folder, { recursive: true, force: true })
  }
  return { tiers, databaseUrl, close }
}

/** The answer of the service as JSON. Throws when it is a refusal. */
export async function postJson(
  { url, headers }: BenchService,
  path: string,
  body: object,
): Promise<unknown> {
  const answer = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}: ${text.slice(0, 300)}`)
  return JSON.parse(text)
}
