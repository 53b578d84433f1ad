import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { Pool } from 'pg'

import { startPostgres } from '#launcher/embedded/postgres.ts'
import { post } from '#test/support/fault-client.ts'
import { openFaultTiers, toyCatalogue } from '#test/support/fault-tiers.ts'
import { startRedis } from '#test/support/queue.ts'

import type { Figure } from './figure.ts'
import { alternate } from './rounds.ts'
import { quantile } from './support/quantile.ts'

const REQUESTS = 200
const WARM_UP_ROUNDS = 10
const QUEUED = 100_000
const ENDPOINTS = 20
const DELIVERIES = 4000
const DISPATCHED_PER_SECOND = 500
const DAY_MS = 86_400_000
const BODY = { model: 'toy', prompt: 'noop', max_tokens: 1 }

/** An API process with a toy worker, and the database behind it. */
interface Installation {
  readonly url: string
  readonly pool: Pool
}

/**
 * The cost of creating a background job, the cost of many queued ones for other requests, and the
 * rate at which webhooks leave.
 */
export async function benchBackground(): Promise<readonly Figure[]> {
  const closers: (() => Promise<unknown>)[] = []
  try {
    const busy = await openInstallation(closers)
    const idle = await openInstallation(closers)
    const submits = await alternate(
      () => p50Of(() => submit(idle, Date.now() + DAY_MS)),
      () => p50Of(() => ask(idle)),
    )
    await idle.pool.query('delete from jobs')
    await fill(busy)
    // The other process has compiled its code for the requests above.
    for (let round = 0; round < WARM_UP_ROUNDS; round += 1) await p50Of(() => ask(busy))
    const crowded = await alternate(
      () => p50Of(() => ask(busy)),
      () => p50Of(() => ask(idle)),
    )
    return [
      {
        name: 'background submit ÷ synchronous no-op, p50',
        unit: 'ms',
        ...submits,
        target: { atMost: 1.5 },
      },
      {
        name: `synchronous no-op with ${QUEUED} queued background jobs ÷ without, p50`,
        unit: 'ms',
        ...crowded,
        target: { atMost: 1.05 },
      },
      {
        name: `webhooks to ${ENDPOINTS} endpoints ÷ ${DISPATCHED_PER_SECOND} a second`,
        unit: 'a second',
        ours: await dispatchRate(idle),
        theirs: DISPATCHED_PER_SECOND,
        target: { atLeast: 1 },
      },
    ]
  } finally {
    for (const close of closers.toReversed()) await close()
  }
}

async function openInstallation(closers: (() => Promise<unknown>)[]): Promise<Installation> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-background-bench-'))
  closers.push(() => rm(folder, { recursive: true, force: true }))
  const postgres = await startPostgres(folder, { password: 'bench' })
  closers.push(() => postgres.stop())
  const redis = await startRedis()
  closers.push(() => redis.close())
  const tiers = openFaultTiers({
    databaseUrl: postgres.url,
    redisUrl: redis.url,
    folder,
    keyPrefix: `bench-${randomBytes(4).toString('hex')}`,
    env: {
      ...(await toyCatalogue(folder)),
      MILLRACE_WEBHOOKS_ALLOW_PRIVATE: 'true',
      MILLRACE_BACKGROUND_JOBS_MAX: String(2 * QUEUED),
    },
  })
  closers.push(() => tiers.stop())
  const api = await tiers.startApi()
  await tiers.startToyWorker()
  const pool = new Pool({ connectionString: postgres.url, max: 1 })
  closers.push(() => pool.end())
  return { url: api.url, pool }
}

async function p50Of(request: () => Promise<void>): Promise<number> {
  const times: number[] = []
  for (let n = 0; n < REQUESTS; n += 1) {
    const from = performance.now()
    await request()
    times.push(performance.now() - from)
  }
  return quantile(times, 0.5)
}

async function ask({ url }: Installation): Promise<void> {
  const answer = await post(url, '/v1/completions', BODY)
  if (answer.status !== 200) throw new Error(`a request was answered ${answer.status}`)
  await answer.arrayBuffer()
}

/** Makes a job that begins later, so that running it is not measured. */
async function submit({ url }: Installation, notBeforeMs: number): Promise<void> {
  const headers = {
    prefer: 'respond-async',
    'x-millrace-not-before': String(Math.floor(notBeforeMs / 1000)),
  }
  const answer = await post(url, '/v1/completions', BODY, { headers })
  if (answer.status !== 202) throw new Error(`a job was answered ${answer.status}`)
  await answer.arrayBuffer()
}

/** Copies one job of the installation until so many are queued. */
async function fill(installation: Installation): Promise<void> {
  await submit(installation, Date.now() + DAY_MS)
  const { rows } = await installation.pool.query<{ column_name: string }>(
    `select column_name from information_schema.columns
     where table_name = 'jobs' and column_name <> 'id' order by ordinal_position`,
  )
  const columns = rows.map(({ column_name: name }) => `"${name}"`).join(', ')
  await installation.pool.query(
    `insert into jobs (id, ${columns}) select 'job_copy_' || n, ${columns}
     from jobs, generate_series(1, ${QUEUED}) n`,
  )
  // As a database is some time after its jobs came.
  await installation.pool.query('vacuum (analyze) jobs')
  await installation.pool.query('checkpoint')
}

/** Webhooks that leave in a second; all become due when their endpoints are enabled. */
async function dispatchRate({ url, pool }: Installation): Promise<number> {
  let received = 0
  const done = Promise.withResolvers<void>()
  const receiver = createServer((request, response) => {
    request.resume()
    request.once('end', () => {
      response.writeHead(204).end()
      received += 1
      if (received === DELIVERIES) done.resolve()
    })
  })
  receiver.listen(0, '127.0.0.1')
  await once(receiver, 'listening')
  const { port } = receiver.address() as AddressInfo
  const ids: string[] = []
  for (let n = 0; n < ENDPOINTS; n += 1) {
    const body = { url: `http://127.0.0.1:${port}/${n}`, events: ['webhook.test'] }
    const answer = await post(url, '/v1/webhook_endpoints', body)
    ids.push(((await answer.json()) as { readonly id: string }).id)
  }
  await pool.query('update webhook_endpoints set disabled_at = now()')
  await pool.query(
    `with made as (
       insert into webhook_events (id, organization_id, type, data)
       select 'evt_bench_' || n, organization_id, 'webhook.test', '{}'
       from generate_series(1, ${DELIVERIES}) n, webhook_endpoints where id = $1 returning id
     )
     insert into webhook_deliveries (id, endpoint_id, event_id)
     select 'whd_' || id, ($2::text[])[1 + (row_number() over ()) % ${ENDPOINTS}], id from made`,
    [ids[0], ids],
  )
  await pool.query('analyze webhook_deliveries')
  const from = performance.now()
  await pool.query('update webhook_endpoints set disabled_at = null')
  await done.promise
  const seconds = (performance.now() - from) / 1000
  receiver.close()
  receiver.closeAllConnections()
  return DELIVERIES / seconds
}
