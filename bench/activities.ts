import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Client } from 'pg'

import { openActivities } from '#api/activities/activity-store.ts'
import { activitiesPlugin } from '#api/activities/routes.ts'
import { createLimiter } from '#api/limits/limiter.ts'
import { startPostgres } from '#launcher/embedded/postgres.ts'
import { systemClock } from '#shared/clock.ts'
import { openDatabase } from '#shared/db/client.ts'
import { MIGRATIONS_FOLDER, migrate } from '#shared/db/migrate.ts'
import { activityTables } from '#shared/db/schema/activities.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { NO_LIMITS, NOTHING_USED } from '#test/support/limits.ts'
import { log, startRedis } from '#test/support/queue.ts'
import { openV1App } from '#test/support/v1-app.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'

const BATCH = 100
const BATCHES_PER_ROUND = 50
const REQUESTS = 200

/**
 * A batch of activities through HTTP against a bare insert of as many rows into a table of the same
 * columns, keys and indexes, and how many commands to Redis the limiter adds to a request.
 */
export async function benchActivities(): Promise<readonly Figure[]> {
  const redis = await startRedis()
  const closers: (() => unknown)[] = [() => redis.close()]
  try {
    const url = await openBenchDatabase(closers)
    const database = openDatabase({ url, maxPoolSize: 5, logger: log })
    closers.push(() => database.close())
    await migrate({ pool: database.pool, folder: MIGRATIONS_FOLDER, tablePrefix: '', logger: log })
    const connection = await openRedis(redis.url, 'producer', log)
    closers.push(() => connection.disconnect())
    const activities = openActivities(database.db, activityTables(''))
    const limit = { key: 10_000_000, organization: 10_000_000 }
    const limiter = createLimiter({
      redis: connection,
      prefix: 'bench',
      clock: systemClock,
      log,
      limits: {
        ...NO_LIMITS,
        requestsPerMinute: limit,
        tokensPerMinute: limit,
        concurrentJobs: 1000,
      },
      ...NOTHING_USED,
    })
    const surface = await openV1App(
      database,
      [activitiesPlugin({ activities, clock: systemClock })],
      { gates: [limiter] },
    )
    closers.push(() => surface.app.close())
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    closers.push(() => agent.destroy())
    const send = () => post(`${surface.base}/v1/activities`, { agent, secret: surface.key })
    return [await batchFigure(url, send, closers), await limiterFigure(redis.url, send, closers)]
  } finally {
    for (const close of closers.toReversed()) await close()
  }
}

async function openBenchDatabase(closers: (() => unknown)[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'))
  closers.push(() => rm(folder, { recursive: true, force: true }))
  const postgres = await startPostgres(folder, { password: 'bench' })
  closers.push(() => postgres.stop())
  return postgres.url
}

async function batchFigure(
  url: string,
  send: () => Promise<void>,
  closers: (() => unknown)[],
): Promise<Figure> {
  const sql = new Client({ connectionString: url })
  await sql.connect()
  closers.push(() => sql.end())
  await sql.query('create table bare (like activities including all)')
  const perSecond = async (work: () => Promise<unknown>): Promise<number> => {
    const startedAt = performance.now()
    for (let i = 0; i < BATCHES_PER_ROUND; i += 1) await work()
    return (BATCHES_PER_ROUND * BATCH * 1000) / (performance.now() - startedAt)
  }
  const measured = await alternate(
    () => perSecond(send),
    () => perSecond(() => sql.query(...bareInsert())),
  )
  return {
    name: 'POST /v1/activities with 100 ÷ bare multi-row insert of the same rows',
    unit: 'rows/s',
    ...measured,
    target: { atLeast: 0.5 },
  }
}

function bareInsert(): [string, unknown[]] {
  const values: unknown[] = []
  const rows = batchOf(BATCH).map((activity) => {
    const id = randomUUID()
    const now = new Date()
    values.push('org-one', id, activity.type, activity.actor, activity.object, now, now)
    values.push(JSON.stringify({ ...activity, id }))
    const first = values.length - 7
    return `(${Array.from({ length: 8 }, (_, i) => `$${first + i}`).join(',')})`
  })
  const columns = 'organization_id, id, type, actor_id, object_id, published, created_at, activity'
  return [`insert into bare (${columns}) values ${rows.join(',')}`, values]
}

function batchOf(size: number) {
  return Array.from({ length: size }, (_, i) => ({
    type: 'View',
    actor: `user:${i % 7}`,
    object: `https://example.test/documents/${i}`,
    summary: 'Somebody looked at a document for a while and left it again.',
    'x:place': { page: i, line: 2 * i },
  }))
}

/** Counts commands from outside the server: those that its scripts run are not round trips. */
async function limiterFigure(
  url: string,
  send: () => Promise<void>,
  closers: (() => unknown)[],
): Promise<Figure> {
  const watcher = await openRedis(url, 'producer', log)
  closers.push(() => watcher.disconnect())
  const monitor = await watcher.monitor()
  closers.push(() => monitor.disconnect())
  let commands = 0
  monitor.on('monitor', (_time: string, _args: string[], source: string) => {
    if (source !== 'lua') commands += 1
  })
  for (let i = 0; i < REQUESTS; i += 1) await send()
  await new Promise((resolve) => setTimeout(resolve, 100))
  return {
    name: 'round trips to Redis that the limiter adds ÷ requests',
    unit: 'in all',
    ours: commands,
    theirs: REQUESTS,
    target: { atMost: 1 },
  }
}

function post(url: string, { agent, secret }: { agent: Agent; secret: string }): Promise<void> {
  const body = JSON.stringify({ activities: batchOf(BATCH) })
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${secret}`,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    }
    const call = request(url, { method: 'POST', agent, headers }, (response) => {
      response.resume()
      response.on('end', () => {
        if (response.statusCode === 201) resolve()
        else reject(new Error(`answered ${response.statusCode}`))
      })
    })
    call.on('error', reject)
    call.end(body)
  })
}
