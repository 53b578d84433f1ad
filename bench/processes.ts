import { mkdtemp, rm } from 'node:fs/promises'
import { Agent } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Redis } from 'ioredis'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import { startRedis } from '#launcher/embedded/redis.ts'
import { openFaultTiers, type TierProcess, toyCatalogue } from '#test/support/fault-tiers.ts'
import { cpuMsOf } from '#test/support/process-use.ts'
import { API_KEY } from '#test/support/tiers.ts'
import { toyText } from '#test/support/toy-worker.ts'

import type { Figure } from './figure.ts'
import { ratePerSecond } from './support/people.ts'
import { quantile } from './support/quantile.ts'
import { textOf, timeStream } from './support/token-stream.ts'

const MANY = 4
const CONCURRENCY_EACH = 8 // streams at a time of every API process
const TURNS = 8
const ROUNDS = 5
const TOKENS = 32
const STEP_MS = 10

/** The cost of one completion: processor time in milliseconds, and bytes. */
interface Cost {
  readonly apiMs: number
  readonly workerMs: number
  readonly redisMs: number
  readonly redisBytes: number
}

/** An installation with some API processes in front of one worker. */
interface Installation {
  /** The cost of one round of requests, per request. */
  measure(tokens: number): Promise<Cost>
  close(): Promise<void>
}

/**
 * Four API processes, each with as many streams as the one of the other side has: processor time of
 * the API, the queue's part of the worker and Redis, and bytes through Redis, per completion. Read
 * from /proc, so on Linux alone.
 */
export async function benchProcesses(): Promise<readonly Figure[]> {
  if (process.platform !== 'linux') return []
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  const postgres = await startPostgres(folder, { password: 'bench' })
  const closers: (() => Promise<unknown>)[] = [() => postgres.stop()]
  try {
    const sides: Installation[] = []
    for (const count of [MANY, 1]) {
      const side = await openInstallation(postgres.url, join(folder, `${count}`), count)
      closers.push(() => side.close())
      sides.push(side)
    }
    return [...(await compare(sides, TOKENS)), ...(await compare(sides, 1))]
  } finally {
    for (const close of closers.toReversed()) await close()
    await rm(folder, { recursive: true, force: true })
  }
}

async function compare(sides: readonly Installation[], tokens: number): Promise<Figure[]> {
  const costs: Cost[][] = sides.map(() => [])
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const [at, side] of sides.entries()) {
      const cost = await side.measure(tokens)
      if (round > 0) costs[at]?.push(cost)
    }
  }
  const figure = (name: string, unit: string, of: keyof Cost): Figure => {
    const [ours = 0, theirs = 0] = costs.map((list) =>
      quantile(
        list.map((cost) => cost[of]),
        0.5,
      ),
    )
    return {
      name: `${name} per completion of ${tokens} tokens, ${MANY} API processes ÷ one`,
      unit,
      target: { atMost: 1.05 },
      ours,
      theirs,
    }
  }
  return [
    figure('processor time of the API', 'ms', 'apiMs'),
    figure("processor time of the worker's side of the queue", 'ms', 'workerMs'),
    figure('processor time of Redis', 'ms', 'redisMs'),
    figure('bytes through Redis', 'bytes', 'redisBytes'),
  ]
}

async function openInstallation(
  databaseUrl: string,
  folder: string,
  count: number,
): Promise<Installation> {
  const redis = await startRedis(folder, { password: 'bench', onProgress: () => {} })
  const admin = new Redis(redis.url)
  const tiers = openFaultTiers({
    databaseUrl,
    redisUrl: redis.url,
    keyPrefix: 'bench',
    folder,
    env: await toyCatalogue(folder),
  })
  const agent = new Agent({ keepAlive: true })
  const close = async (): Promise<void> => {
    agent.destroy()
    admin.disconnect()
    await tiers.stop()
    await redis.stop()
  }
  try {
    const apis: TierProcess[] = []
    while (apis.length < count) apis.push(await tiers.startApi())
    const worker = await tiers.startToyWorker(MANY * CONCURRENCY_EACH)
    const ask = async (index: number, tokens: number): Promise<void> => {
      const service = {
        url: `${apis[index % count]?.url}/v1`,
        headers: { authorization: `Bearer ${API_KEY}` },
      }
      const body = { model: 'toy', prompt: `stepMs=${STEP_MS}`, max_tokens: tokens }
      const text = textOf(await timeStream(service, body, { agent }))
      if (text !== toyText(tokens)) throw new Error('a wrong text')
    }
    return {
      async measure(tokens) {
        const readAll = async () => ({
          apiMs: apis.reduce((sum, { pid }) => sum + cpuMsOf(pid), 0),
          workerMs: cpuMsOf(worker.child.pid ?? 0),
          ...(await readRedis(admin)),
        })
        const before = await readAll()
        await ratePerSecond(count * CONCURRENCY_EACH, TURNS, (index) => ask(index, tokens))
        const after = await readAll()
        const asked = count * CONCURRENCY_EACH * TURNS
        const per = (name: keyof Cost): number => (after[name] - before[name]) / asked
        return {
          apiMs: per('apiMs'),
          workerMs: per('workerMs'),
          redisMs: per('redisMs'),
          redisBytes: per('redisBytes'),
        }
      },
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

async function readRedis(redis: Redis): Promise<Pick<Cost, 'redisMs' | 'redisBytes'>> {
  const info = `${await redis.info('stats')}${await redis.info('cpu')}`
  const read = (name: string): number => Number(new RegExp(`${name}:([\\d.]+)`).exec(info)?.[1])
  return {
    redisMs: 1000 * (read('used_cpu_user') + read('used_cpu_sys')),
    redisBytes: read('total_net_input_bytes') + read('total_net_output_bytes'),
  }
}
