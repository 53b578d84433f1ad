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

/** An installation with some API processes in front of one worker. */
interface Installation {
  /** The cost of one round of requests, per request. */
  measure(): Promise<{ readonly cpuMs: number; readonly redisBytes: number }>
  close(): Promise<void>
}

/**
 * Four API processes, each with as many streams as the one of the other side has: processor time of
 * the API and bytes through Redis, per completion. Read from /proc, so on Linux alone.
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
    const found = sides.map(() => ({ cpuMs: [] as number[], redisBytes: [] as number[] }))
    for (let round = 0; round <= ROUNDS; round += 1) {
      for (const [at, side] of sides.entries()) {
        const { cpuMs, redisBytes } = await side.measure()
        if (round === 0) continue
        found[at]?.cpuMs.push(cpuMs)
        found[at]?.redisBytes.push(redisBytes)
      }
    }
    const figure = (name: string, unit: string, of: 'cpuMs' | 'redisBytes'): Figure => ({
      name: `${name} per completion of ${TOKENS} tokens, ${MANY} API processes ÷ one`,
      unit,
      target: { atMost: 1.05 },
      ours: quantile(found[0]?.[of] ?? [], 0.5),
      theirs: quantile(found[1]?.[of] ?? [], 0.5),
    })
    return [
      figure('processor time of the API', 'ms', 'cpuMs'),
      figure('bytes through Redis', 'bytes', 'redisBytes'),
    ]
  } finally {
    for (const close of closers.toReversed()) await close()
    await rm(folder, { recursive: true, force: true })
  }
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
    await tiers.startToyWorker(MANY * CONCURRENCY_EACH)
    const ask = async (index: number): Promise<void> => {
      const service = {
        url: `${apis[index % count]?.url}/v1`,
        headers: { authorization: `Bearer ${API_KEY}` },
      }
      const body = { model: 'toy', prompt: `stepMs=${STEP_MS}`, max_tokens: TOKENS }
      const text = textOf(await timeStream(service, body, { agent }))
      if (text !== toyText(TOKENS)) throw new Error('a wrong text')
    }
    return {
      async measure() {
        const readAll = async () => ({
          cpuMs: apis.reduce((sum, { pid }) => sum + cpuMsOf(pid), 0),
          bytes: await bytesOf(admin),
        })
        const before = await readAll()
        await ratePerSecond(count * CONCURRENCY_EACH, TURNS, ask)
        const after = await readAll()
        const asked = count * CONCURRENCY_EACH * TURNS
        return {
          cpuMs: (after.cpuMs - before.cpuMs) / asked,
          redisBytes: (after.bytes - before.bytes) / asked,
        }
      },
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

async function bytesOf(redis: Redis): Promise<number> {
  const info = await redis.info('stats')
  const read = (name: string): number => Number(new RegExp(`${name}:(\\d+)`).exec(info)?.[1])
  return read('total_net_input_bytes') + read('total_net_output_bytes')
}
