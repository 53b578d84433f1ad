import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import { Pool } from 'pg'
import { describe, expect } from 'vitest'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import {
  areWhole,
  BROKEN_PATHS,
  createEndpoint,
  followJob,
  startJob,
  startReceiver,
} from '#test/support/fault-jobs.ts'
import { openFaultProxy } from '#test/support/fault-proxy.ts'
import { isFull, report, scale } from '#test/support/fault-report.ts'
import { openToyTiers, type ToyTiers, timeUntil } from '#test/support/fault-toy.ts'
import { sleep } from '#test/support/fault-world.ts'
import { startRedis, type ToyProcess } from '#test/support/queue.ts'
import { createRandom } from '#test/support/random.ts'
import { it } from '#test/support/services.ts'

const JOBS = scale(1000, 24)
const FOLLOWED = scale(50, 6)
const PROCESSES = scale(3, 2)
const TOKENS = 40
const STEP_MS = scale(100, 50)
const KILL_INTERVAL_MS = scale(5000, 1000)
const KILLS_MAX = scale(1000, 4)
const TIMEOUT_MS = 600_000
const ENV = { MILLRACE_WEBHOOKS_ALLOW_PRIVATE: 'true' }
const random = createRandom()
const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T

interface Installation {
  readonly tiers: ToyTiers
  readonly pool: Pool
  readonly pickUrl: () => string
}

/** Runs jobs while something is broken, and counts what their clients and receivers saw. */
async function runJobs(
  { tiers, pool, pickUrl }: Installation,
  disturb: (isOver: () => boolean) => Promise<number>,
) {
  const receiver = await startReceiver()
  try {
    await createEndpoint(tiers.api.url, `${receiver.base}/good`)
    for (const path of BROKEN_PATHS) await createEndpoint(tiers.api.url, receiver.base + path)
    const ids: string[] = []
    for (let n = 0; n < JOBS; n += 1) ids.push(await startJob(pickUrl(), TOKENS, STEP_MS))
    let isOver = false
    const disturbances = disturb(() => isOver)
    const following = ids.slice(0, FOLLOWED).map((id) => followJob(id, pickUrl))
    const open = "select count(*)::int as n from jobs where state in ('queued', 'in_progress')"
    await timeUntil(async () => {
      await sleep(200)
      const found = await pool.query<{ n: number }>(open).catch(() => undefined)
      return found?.rows[0]?.n === 0
    }, TIMEOUT_MS / 2)
    isOver = true
    const count = await disturbances
    const live = await Promise.all(following)
    const read: (readonly string[])[] = []
    for (const id of ids) read.push(await followJob(id, () => tiers.api.url))
    await timeUntil(() => ids.every((id) => receiver.received.has(id)), 60_000)
    const { rows } = await pool.query<{ state: string; n: number }>(
      'select state, count(*)::int as n from jobs group by state',
    )
    return {
      disturbances: count,
      states: Object.fromEntries(rows.map(({ state, n }) => [state, n])),
      'followed without gap or repeat': live.filter((one) => areWhole(one, TOKENS)).length,
      'read afterwards without gap or repeat': read.filter((one) => areWhole(one, TOKENS)).length,
      'jobs announced': receiver.received.size,
      'different events of one job': [...receiver.received.values()].filter((s) => s.size > 1)
        .length,
    }
  } finally {
    await receiver.close()
  }
}

const EXPECTED = {
  states: { completed: JOBS },
  'followed without gap or repeat': FOLLOWED,
  'read afterwards without gap or repeat': JOBS,
  'jobs announced': JOBS,
  'different events of one job': 0,
}

describe('background jobs', () => {
  it('R28: end once while API and worker processes are killed', { timeout: TIMEOUT_MS }, async ({
    databaseUrl,
    redisUrl,
    keyPrefix,
    folder,
  }) => {
    const settings = { databaseUrl, redisUrl, keyPrefix, folder, env: ENV }
    const tiers = await openToyTiers(settings)
    const pool = new Pool({ connectionString: databaseUrl, max: 1 })
    try {
      const apis = [tiers.api]
      while (apis.length < PROCESSES) apis.push(await tiers.startApi())
      const workers: ToyProcess[] = []
      while (workers.length < PROCESSES) workers.push(await tiers.startToyWorker())
      const kills = async (isOver: () => boolean): Promise<number> => {
        let count = 0
        while (count < KILLS_MAX) {
          await sleep(KILL_INTERVAL_MS)
          if (isOver()) return count
          count += 1
          if (count % 2 === 0) {
            workers.shift()?.kill('SIGKILL')
            workers.push(await tiers.startToyWorker())
          } else {
            // The first one stays for the clients that only ask.
            apis.splice(1, 1)[0]?.kill('SIGKILL')
            apis.push(await tiers.startApi())
          }
        }
        return count
      }
      const seen = await runJobs({ tiers, pool, pickUrl: () => pick(apis).url }, kills)
      const usage = 'select count(*)::int as n, sum(completion_tokens)::int as tokens from usage'
      const charged = { n: JOBS, tokens: JOBS * TOKENS }
      await expect.poll(async () => (await pool.query(usage)).rows[0]).toEqual(charged)
      report('R28 killed', { ...seen, states: JSON.stringify(seen.states), ...charged })
      expect(seen).toMatchObject(EXPECTED)
    } finally {
      await pool.end()
      await tiers.stop()
    }
  })

  // In a run of everything, `test/integration/jobs/event-log.test.ts` loses the events alone.
  it.runIf(isFull)(
    'R28: end once while Redis is flushed and Postgres restarted',
    {
      timeout: TIMEOUT_MS,
    },
    async ({ keyPrefix, folder }) => {
      const redis = await startRedis()
      let postgres = await startPostgres(folder, { password: 'test' })
      const proxy = await openFaultProxy(Number(new URL(postgres.url).port))
      const at = new URL(postgres.url)
      at.port = String(proxy.port)
      const settings = { databaseUrl: at.href, redisUrl: redis.url, keyPrefix, folder, env: ENV }
      const tiers = await openToyTiers(settings)
      const pool = new Pool({ connectionString: at.href, max: 1 })
      pool.on('error', () => {})
      try {
        for (let n = 0; n < PROCESSES; n += 1) await tiers.startToyWorker()
        const other = await tiers.startApi()
        const urls = [tiers.api.url, other.url]
        const seen = await runJobs({ tiers, pool, pickUrl: () => pick(urls) }, async () => {
          await sleep(KILL_INTERVAL_MS)
          await tiers.redis.flushall()
          await sleep(KILL_INTERVAL_MS)
          const file = await readFile(join(folder, 'postgres/postmaster.pid'), 'utf8')
          process.kill(Number(file.split('\n')[0]), 'SIGQUIT')
          await sleep(KILL_INTERVAL_MS)
          await postgres.stop()
          postgres = await startPostgres(folder, { password: 'test' })
          proxy.retarget(Number(new URL(postgres.url).port))
          return 2
        })
        report('R28 flushed and restarted', { ...seen, states: JSON.stringify(seen.states) })
        expect(seen).toMatchObject(EXPECTED)
      } finally {
        await pool.end()
        await tiers.stop()
        await postgres.stop()
        await proxy.close()
        await redis.close()
      }
    },
  )
})
