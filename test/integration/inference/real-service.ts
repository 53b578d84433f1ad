import { randomUUID } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { inject } from 'vitest'

import { openSubmitter } from '#api/jobs/submit.ts'
import { type CatalogueModel, parseCatalogue } from '#shared/catalogue.ts'
import { systemClock } from '#shared/clock.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import { openDatabase } from '#shared/db/client.ts'
import { ensureDefaultOrganization } from '#shared/db/organizations.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { createLogger } from '#shared/logger.ts'
import { listenForCancels } from '#shared/queue/cancellation.ts'
import { openRedis } from '#shared/queue/connection.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { listWorkers, WORKER_HEARTBEAT_MS, writeHeartbeat } from '#shared/queue/liveness.ts'
import { ReplyWriter } from '#shared/queue/reply-writer.ts'
import { createDatabase } from '#test/support/services.ts'
import { openSurface } from '#test/unit/api/inference/surface.ts'
import { openAdapterLibrary } from '#workers/adapters/adapter-library.ts'
import { writePeftAdapter } from '#workers/adapters/peft-files.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { processCompletion } from '#workers/processors/completion.ts'
import { createCompletionModel } from '#workers/processors/completion-model.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { type Execute, JobRunner } from '#workers/server/job-runner.ts'
import { QueueServer } from '#workers/server/queue-server.ts'
import type { ObservedRun } from '#workers/telemetry/run-observer.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

const SLOTS = 4
const ADAPTER = join(mkdtempSync(join(tmpdir(), 'millrace-real-')), 'adapter')
const CATALOGUE = parseCatalogue({
  models: [
    {
      id: 'tiny-chat',
      kind: 'completion',
      source: 'models/tiny-chat',
      capabilities: ['chat', 'completion', 'edit', 'search'],
      adapters: [{ id: 'tiny-chat-tuned', source: ADAPTER, aliases: ['tuned'] }],
    },
  ],
})
const log = createLogger({ level: 'silent' })

/** The whole way from a socket to a model: real keys, queue, worker and engine in one process. */
export interface RealService {
  readonly baseURL: string
  readonly apiKey: string
  /** Sequences that the engine has in its slots or before them. */
  numBusy(): number
  /** Every run of a job, by job id: a job that was run again is there again. */
  readonly runs: readonly string[]
  close(): Promise<void>
}

export async function openRealService(): Promise<RealService> {
  const keys = queueKeys(`test-${randomUUID().slice(0, 8)}`)
  const redisUrl = inject('redisUrl')
  const worker = await startWorker(redisUrl, keys)
  const redis = await openRedis(redisUrl, 'producer', log)
  const reader = await openRedis(redisUrl, 'reader', log)
  const submitter = await openSubmitter({
    redis,
    reader,
    keys,
    queueDepthMax: 100,
    queuedBytesMax: 64 * 1024 * 1024,
    clock: systemClock,
    log,
  })
  const { url, drop } = await createDatabase()
  const database = openDatabase({ url, maxPoolSize: 5, logger: log })
  const tables = organizationTables('')
  const apiKeys = openApiKeys(database.db, tables)
  const organizationId = await ensureDefaultOrganization(database.db, tables)
  const rights = { scopes: null, modelIds: null, expiresAt: null }
  const { secret } = await apiKeys.create({ organizationId, name: 'test', ...rights })
  const { app } = await openSurface(undefined, {
    submitter,
    catalogue: CATALOGUE,
    workers: () => listWorkers(redis, keys),
    apiKeys,
    clock: systemClock,
    log,
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  return {
    baseURL: `http://127.0.0.1:${port}/v1`,
    apiKey: secret,
    numBusy: worker.numBusy,
    runs: worker.runs,
    async close() {
      app.server.closeAllConnections()
      await app.close()
      await submitter.close()
      await worker.close()
      redis.disconnect()
      await database.close()
      await drop()
    },
  }
}

async function startWorker(redisUrl: string, keys: ReturnType<typeof queueKeys>) {
  const redis = await openRedis(redisUrl, 'worker', log)
  const subscriber = await openRedis(redisUrl, 'worker', log)
  const runtime = openRuntime()
  const folder = join(import.meta.dirname, '../../../models/tiny-chat')
  const engine = await openTextEngine({ runtime, folder, slots: SLOTS, intraOpThreads: 1 })
  writeAdapter()
  const adapters = openAdapterLibrary({
    bytesMax: 0,
    rankMax: 8,
    log,
    fetchOptions: {} as never,
    fit: (adapter) => engine.fitAdapter(adapter),
  })
  const text = await loadTextModel(folder, systemClock)
  const model = createCompletionModel(engine, text, { adapters })
  const clock = systemClock
  const workerId = randomUUID()
  const writer = new ReplyWriter(redis, log, (replyTo) => runner.cancelOwner(replyTo))
  const runs: string[] = []
  const observer = {
    begin({ jobId }: JobEnvelope): ObservedRun {
      runs.push(jobId)
      const ignore = () => {}
      const ignored = { started: ignore, tokens: ignore, result: ignore, end: ignore }
      return { ...ignored, within: (work) => work() }
    },
  }
  const runner = new JobRunner({ redis, keys, writer, workerId, clock, log, observer })
  await listenForCancels(subscriber, keys, { onCancel: (id) => runner.cancel(id), log })
  const execute: Execute = (envelope, tools) =>
    processCompletion(envelope as never, { ...tools, model, clock } as never)
  const { id, kind } = CATALOGUE.models[0] as CatalogueModel
  const common = { redis, keys, runner, execute, clock, log }
  const server = new QueueServer({ ...common, kind, modelId: id, slots: SLOTS })
  const queue = { kind, modelId: id, isReady: true, slots: SLOTS, waiting: 0, active: 0 }
  const rates = { jobsPerSecond: 0, tokensPerSecond: 0, cacheUse: 0 }
  const about = { version: '0', nodeVersion: '', pid: 0, hostname: '', startedAtMs: 0 }
  const sendHeartbeat = () =>
    writeHeartbeat(redis, keys, {
      ...about,
      workerId,
      isDraining: false,
      queues: [{ ...queue, ...rates }],
    })
  await sendHeartbeat()
  const timer = setInterval(() => void sendHeartbeat().catch(() => {}), WORKER_HEARTBEAT_MS)
  return {
    runs,
    numBusy: () => runner.numRunning,
    async close() {
      clearInterval(timer)
      await server.close()
      writer.close()
      redis.disconnect()
      subscriber.disconnect()
      await engine.close()
      await runtime.close()
      rmSync(ADAPTER, { recursive: true })
    },
  }
}

/** An adapter that changes every answer. */
function writeAdapter(): void {
  const a = Float32Array.from({ length: 2 * 192 }, (_, at) => Math.sin(at))
  const layer = { inSize: 192, outSize: 192, a, b: a.toReversed() }
  const modules = new Map([['model.layers.2.self_attn.o_proj', layer]])
  mkdirSync(ADAPTER, { recursive: true })
  for (const [name, bytes] of Object.entries(writePeftAdapter({ rank: 2, alpha: 2, modules }))) {
    writeFileSync(join(ADAPTER, name), bytes)
  }
}
