import { rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { Queue } from 'bullmq'
import { Redis } from 'ioredis'
import { Client } from 'pg'

import { queueKeys } from '#shared/queue/keys.ts'
import { listWorkers } from '#shared/queue/liveness.ts'
import { scrape, sumOf } from '#test/support/metrics-text.ts'
import { toyRequest } from '#test/support/queue.ts'

import { clip, QUEUE_DEPTH_MAX, type WatchedStack } from './stack.ts'

/** Something that goes wrong, for as long as it is needed. */
export interface Fault {
  /** A step that runs once. */
  begin?(stack: WatchedStack): Promise<void>
  /** Runs repeatedly while the fault lasts. */
  goOn?(stack: WatchedStack): Promise<void>
  /** Makes it good again. */
  end?(stack: WatchedStack): Promise<void>
}

const PATIENCE_MS = 60_000
const EMBEDDING = { model: 'tiny-embed', input: 'a text for which there is no worker' }

/** The fault of each alert. */
export const FAULTS: Readonly<Record<string, () => Fault>> = {
  MillraceServerErrors: () => brokenStorage,
  MillraceErrorBudgetBurn: () => brokenStorage,
  MillraceApiMissing: () => ({
    async begin(stack) {
      stack.isApiScraped = false
    },
    async end(stack) {
      stack.isApiScraped = true
    },
  }),
  MillraceQueueOld: () => strandedJob(),
  MillraceMailFails: () => brokenMail,
  MillraceNoWorker: () => crowd(2),
  MillraceJobsRefused: () => crowd(QUEUE_DEPTH_MAX + 16),
  MillraceQueueWaitHigh: () => ({ goOn: runOldJob }),
  MillraceFirstTokenSlow: () => ({ goOn: runOldJob }),
  MillraceJobsFail: () => ({
    async goOn({ post }) {
      // The client waits for a second, and there is no worker.
      const headers = { 'x-stainless-timeout': '1' }
      await post('/v1/embeddings', EMBEDDING, { headers })
    },
  }),
  MillraceStorageFails: () => brokenStorage,
  MillraceDependencyDown: () => brokenStorage,
  MillraceDatabasePoolFull: () => lockedUsers(),
  MillracePasswordPoolSaturated: () => ({
    async goOn(stack) {
      const { post, tiers } = stack
      const email = 'storm@example.test'
      const storm = Array.from({ length: 80 }, () =>
        post('/token?grant_type=password', { email, password: 'a wrong password' }),
      )
      const all = Promise.allSettled(storm)
      const isStorming = async () =>
        sumOf(await scrape(tiers.metricsUrl), 'millrace_password_hashes_waiting') > 20
      await Promise.race([eventually(isStorming), all])
    },
  }),
  MillraceEventLoopBlocked: () => ({
    async goOn(stack) {
      const pid = await pidOfWorker(stack)
      process.kill(pid, 'SIGSTOP')
      await pause(2000)
      process.kill(pid, 'SIGCONT')
    },
  }),
  MillraceTargetDown: () => killedWorker(),
  MillraceJobsResubmitted: () => killedWorker(5),
  MillraceRedisUnreachable: () => ({
    begin: ({ redis }) => redis.kill(),
    async end({ redis, post }) {
      await redis.start()
      const chat = { model: 'tiny-chat', prompt: 'Once', max_tokens: 2 }
      await eventually(async () => (await post('/v1/completions', chat)).ok)
    },
  }),
}

const brokenMail: Fault = {
  begin: async ({ mail }) => mail.refuseAll(true),
  async goOn({ post }) {
    const email = `${Math.random()}@example.test`
    await post('/signup', { email, password: 'a long enough password' })
  },
  end: async ({ mail }) => mail.refuseAll(false),
}

const brokenStorage: Fault = {
  async begin({ folder }) {
    await rename(join(folder, 'objects'), join(folder, 'objects-away'))
    await writeFile(join(folder, 'objects'), 'no folder')
  },
  async goOn({ upload }) {
    const file = new File(['{"text":"a document"}\n'], 'documents.jsonl')
    await upload('/v1/files', { purpose: 'search', file })
  },
  async end({ folder }) {
    await rm(join(folder, 'objects'))
    await rename(join(folder, 'objects-away'), join(folder, 'objects'))
  },
}

/** Requests that wait for a model without a worker. */
function crowd(size: number): Fault {
  const abort = new AbortController()
  const waiting: Promise<unknown>[] = []
  return {
    async goOn({ post, tiers }) {
      for (let n = 0; n < size; n += 1) {
        waiting.push(post('/v1/embeddings', EMBEDDING, { signal: abort.signal }).catch(() => {}))
      }
      const inFlight = async () => sumOf(await scrape(tiers.metricsUrl), 'millrace_jobs_under_way')
      // Those that come at once are counted against each other, so fewer than the bound may wait.
      await eventually(async () => (await inFlight()) > 0)
    },
    async end() {
      abort.abort()
      await Promise.all(waiting)
    },
  }
}

/** Puts a job into the queue that has waited for a minute already. */
async function runOldJob({ redis, keyPrefix, worker }: WatchedStack): Promise<void> {
  const ended = async () =>
    sumOf(await scrape(worker.metricsUrl), 'millrace_job_runs_total', { kind: 'completion' })
  const before = await ended()
  const connection = new Redis(redis.url, { maxRetriesPerRequest: null })
  const queue = new Queue('completion.tiny-chat', { connection, prefix: keyPrefix })
  const jobId = `job_${Math.random().toString(36).slice(2)}`
  await queue.add(
    'completion',
    {
      version: 1,
      jobId,
      epoch: 1,
      kind: 'completion',
      modelId: 'tiny-chat',
      organizationId: 'org',
      replyTo: `${keyPrefix}:replies:nobody`,
      isOwnerless: true,
      enqueuedAtMs: Date.now() - 60_000,
      deadlineAtMs: Date.now() + 60_000,
      input: toyRequest('Once upon a time', 4).input,
    },
    { jobId: `${jobId}-1`, priority: 1, removeOnComplete: true },
  )
  await eventually(async () => (await ended()) > before)
  await queue.close()
  connection.disconnect()
}

/** A job that has waited for ten minutes in a queue without a worker. */
function strandedJob(): Fault {
  const withQueue = async ({ redis, keyPrefix }: WatchedStack, use: (queue: Queue) => unknown) => {
    const connection = new Redis(redis.url, { maxRetriesPerRequest: null })
    const queue = new Queue('embedding.tiny-embed', { connection, prefix: keyPrefix })
    await use(queue)
    await queue.close()
    connection.disconnect()
  }
  const jobId = 'stranded-1'
  return {
    begin: (stack) =>
      withQueue(stack, (queue) =>
        queue.add('embedding', {}, { jobId, priority: 1, timestamp: Date.now() - 600_000 }),
      ),
    end: (stack) => withQueue(stack, (queue) => queue.remove(jobId)),
  }
}

/** A transaction of another connection keeps every query of the users waiting. */
function lockedUsers(): Fault {
  let client: Client
  let waiting: Promise<unknown> = Promise.resolve()
  return {
    async begin({ databaseUrl, post, tiers }) {
      client = new Client({ connectionString: databaseUrl })
      await client.connect()
      await client.query('begin; lock table users in access exclusive mode')
      const login = { email: 'someone@example.test', password: 'a long enough password' }
      waiting = Promise.all([1, 2, 3, 4, 5, 6].map(() => post('/token?grant_type=password', login)))
      const pending = async () =>
        sumOf(await scrape(tiers.metricsUrl), 'db_client_connection_pending_requests')
      await eventually(async () => (await pending()) > 0)
    },
    async end() {
      await client.query('rollback')
      await client.end()
      await waiting
    },
  }
}

/** A worker is killed, with so many jobs aboard; another takes its place afterwards. */
function killedWorker(jobs = 0): Fault {
  let answers: Promise<Response>[] = []
  return {
    async begin({ upload, worker, tiers }) {
      const file = await clip('en-long.flac')
      const before = sumOf(await scrape(tiers.metricsUrl), 'millrace_job_resubmissions_total')
      answers = Array.from({ length: jobs }, () =>
        upload('/v1/audio/transcriptions', { model: 'tiny-whisper', file }),
      )
      const running = async () =>
        sumOf(await scrape(worker.metricsUrl), 'millrace_worker_jobs_running')
      await eventually(async () => (await running()) === jobs)
      await worker.kill()
      const again = async () =>
        sumOf(await scrape(tiers.metricsUrl), 'millrace_job_resubmissions_total')
      await eventually(async () => (await again()) - before >= jobs)
    },
    async end(stack) {
      stack.worker = await stack.tiers.startWorker()
      for (const answer of await Promise.all(answers)) {
        if (!answer.ok) throw new Error(`a job was lost with its worker: ${await answer.text()}`)
      }
    },
  }
}

async function pidOfWorker({ redis, keyPrefix }: WatchedStack): Promise<number> {
  const connection = new Redis(redis.url)
  const [heartbeat] = await listWorkers(connection, queueKeys(keyPrefix))
  connection.disconnect()
  if (heartbeat === undefined) throw new Error('no worker is alive')
  return heartbeat.pid
}

/** Waits until something holds, for as long as a busy machine may need. */
async function eventually(holds: () => Promise<boolean>): Promise<void> {
  const until = performance.now() + PATIENCE_MS
  while (!(await holds())) {
    if (performance.now() > until) throw new Error('it never came to hold')
    await pause(20)
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
