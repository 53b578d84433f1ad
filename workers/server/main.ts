import { setTimeout as sleep } from 'node:timers/promises'

import type { Redis } from 'ioredis'
import type { Registry } from 'prom-client'

import { type Catalogue, type CatalogueModel, queuesOf, servingIdOf } from '#shared/catalogue.ts'
import { systemClock } from '#shared/clock.ts'
import { type Env, loadWorkerConfig, type WorkerTierConfig } from '#shared/config/config.ts'
import { queueName } from '#shared/contracts/job.ts'
import { Dependencies } from '#shared/dependencies.ts'
import { LiveCatalogue } from '#shared/live-catalogue.ts'
import { loadCatalogue } from '#shared/load-catalogue.ts'
import { createLogger, type Logger } from '#shared/logger.ts'
import { readVersion } from '#shared/process.ts'
import { redisChecks } from '#shared/queue/checks.ts'
import { checkRedis, openRedis } from '#shared/queue/connection.ts'
import { openContentCipher } from '#shared/queue/content-cipher.ts'
import { queueKeys } from '#shared/queue/keys.ts'
import { type ObjectStore, storageCheck } from '#shared/storage/object-store.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { observeStore } from '#shared/telemetry/observe-store.ts'
import { openTelemetry } from '#shared/telemetry/telemetry.ts'
import { ensureModel, modelCacheDir } from '#workers/models/fetcher.ts'
import type { PullProgress } from '#workers/models/hub-cache.ts'
import { MODEL_RESIDENCY, Residency } from '#workers/models/residency.ts'
import {
  type OpenModel,
  type OpenTools,
  PROCESSORS,
  type ProcessorRow,
} from '#workers/processors/index.ts'
import { leaveProcess, trimMemory } from '#workers/runtime/c-library.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import {
  createWorkerMetrics,
  registerWorkerGauges,
  type WorkerMetrics,
} from '#workers/telemetry/metrics.ts'
import { createRunObserver } from '#workers/telemetry/run-observer.ts'
import { SpanSettler } from '#workers/telemetry/span-settler.ts'

import { openHealthServer } from './health-server.ts'
import { type ServedModel, WorkerHost, type WorkerHostOptions } from './worker-host.ts'
import { type HostPlace, WorkerHosts } from './worker-hosts.ts'

// The heartbeat of an owner expires after 1.5 seconds.
const OWNER_SETTLE_MS = 2000
/** Native memory that is not released by then is left to the operating system. */
const RELEASE_MS = 1000

/** A running worker. */
interface RunningWorker {
  readonly healthPort: number
  /** Drains and releases everything; idempotent. */
  stop(): Promise<void>
  /** Ends the process, even while native calls run. */
  leave(status: number): never
}

/** Starts a worker: configuration → catalogue → models → queues → heartbeat. */
export async function runWorker(env: Env): Promise<RunningWorker> {
  const config = loadWorkerConfig(env)
  const log = createLogger({ ...config.log, base: { tier: 'worker' } })
  const listed = await loadCatalogue(config.inference.catalogueFile)
  const version = await readVersion()
  const telemetry = await openTelemetry(config.telemetry, { tier: 'worker', version }, log)
  const { registry, tracing } = telemetry
  const metrics = createWorkerMetrics(registry)
  const storage = observeStore(await openObjectStore(config.infra.storage), registry, tracing)
  const redis = await openRedis(config.infra.redisUrl, 'worker', log)
  await checkRedis(redis)
  const keys = queueKeys(config.infra.redisPrefix)
  const catalogue = await new LiveCatalogue(listed, { redis, keys, log }).open()
  requireKnown(catalogue, config.inference.worker.modelIds)
  const served = chooseModels(catalogue, config, log)
  const runtime = openRuntime()
  const stopping = new AbortController()
  const pulls = new Map<string, PullProgress>()
  const residency = new Residency<OpenModel>({
    ...MODEL_RESIDENCY,
    bytesMax: config.inference.worker.memoryBytesMax,
    open: opener(config, { runtime, storage, metrics, log, pulls, signal: stopping.signal }),
    log,
  })
  const { hosts, settlers } = await openHosts(config, {
    redis,
    served,
    residency,
    version,
    log,
    metrics,
    tracing,
    pullOf: (modelId) => pulls.get(modelId),
    failing: () => dependencies.failing,
  })
  const watched = { redis, further: hosts.further, storage, log, signal: stopping.signal }
  const dependencies = watchDependencies(config, watched)
  const health = await openHealth(hosts, { config, registry, log })
  await hosts.start()
  catalogue.onChange(() => hosts.follow(chooseModels(catalogue, config, log)))
  const { workerIds } = hosts
  const queues = served.map(({ model }) => queueName(model.kind, model.id))
  log.info({ operation: 'worker.start', workerIds, queues }, 'worker started')
  let stopped: Promise<void> | undefined
  const stop = async (): Promise<void> => {
    catalogue.close()
    await hosts.drain(config.inference.worker.drainTimeoutSeconds * 1000)
    // Aborted downloads resume at the next start.
    stopping.abort()
    for (const settler of settlers) settler.flush()
    await health.close()
    hosts.disconnect()
    redis.disconnect()
    // A model load or a long decode step cannot be interrupted.
    const released = residency.close().then(() => runtime.close())
    await Promise.race([released, sleep(RELEASE_MS)])
    await telemetry.close()
    log.info({ operation: 'worker.stop', workerIds }, 'worker stopped')
  }
  return {
    healthPort: health.port,
    stop: () => (stopped ??= stop()),
    leave: leaveProcess,
  }
}

type HostTools = Pick<
  WorkerHostOptions,
  'redis' | 'served' | 'residency' | 'version' | 'log' | 'pullOf' | 'failing'
> &
  Pick<Parameters<typeof createRunObserver>[0], 'metrics' | 'tracing'>

/** Opens the hosts of the worker; the spans of runs are settled on the Redis of their queue. */
async function openHosts(config: WorkerTierConfig, tools: HostTools) {
  const { metrics, tracing, ...common } = tools
  const clock = systemClock
  const cipher = openContentCipher(config.infra.encryptionKeys)
  const settlers: SpanSettler[] = []
  const hosts = await WorkerHosts.open({
    ...common,
    infra: config.infra,
    limits: config.inference.worker,
    openHost(place) {
      const settler = createSettler(config, place)
      settlers.push(settler)
      const observer = createRunObserver({ metrics, tracing, settler, clock })
      return new WorkerHost({
        ...common,
        ...place,
        clock,
        cipher,
        observer,
        onLoaded: trimMemory,
      })
    },
  })
  return { hosts, settlers }
}

interface WatchTools {
  readonly redis: Redis
  /** Every further Redis with queues of this worker. */
  readonly further: WorkerHosts['further']
  readonly storage: ObjectStore
  readonly log: Logger
  readonly signal: AbortSignal
}

/** Checks the services of the worker until the signal. */
function watchDependencies(
  { infra }: WorkerTierConfig,
  { redis, further, storage, log, signal }: WatchTools,
): Dependencies {
  const ofQueues = further.flatMap((each) => redisChecks(each.redis, each))
  const checks = [...redisChecks(redis, infra), ...ofQueues, storageCheck(storage)]
  const dependencies = new Dependencies(checks, { clock: systemClock, log })
  dependencies.watch(signal)
  return dependencies
}

function createSettler(
  { telemetry }: WorkerTierConfig,
  { redis, keys }: Pick<HostPlace, 'redis' | 'keys'>,
): SpanSettler {
  return new SpanSettler({
    delayMs: telemetry.tracing.exportDelayMs + OWNER_SETTLE_MS,
    isOwnerAlive: async (replyTo) => (await redis.exists(keys.owner(replyTo))) === 1,
  })
}

/** Serves the probes and metrics of the worker. */
function openHealth(
  hosts: WorkerHosts,
  { config, registry, log }: { config: WorkerTierConfig; registry: Registry; log: Logger },
) {
  registerWorkerGauges(registry, () => hosts.queues)
  return openHealthServer({
    port: config.inference.worker.metricsPort,
    unserved: () => hosts.unserved,
    metrics: config.telemetry.metrics,
    registry,
    log,
  })
}

function requireKnown(catalogue: Catalogue, modelIds: readonly string[]): void {
  for (const modelId of modelIds) {
    if (catalogue.find(modelId) === undefined) {
      throw new Error(`MILLRACE_WORKER_MODELS names "${modelId}", which is not in the catalogue`)
    }
  }
}

/** The catalogue models that this worker is configured to serve and has a processor for. */
function chooseModels(
  catalogue: Catalogue,
  { inference }: Pick<WorkerTierConfig, 'inference'>,
  log: Logger,
): ServedModel[] {
  const { kinds, modelIds } = inference.worker
  const wanted = new Set(
    modelIds.map((modelId) => {
      const found = catalogue.find(modelId)
      return found && servingIdOf(found)
    }),
  )
  return queuesOf(catalogue).flatMap((model) => {
    if (kinds.length > 0 && !kinds.includes(model.kind)) return []
    if (wanted.size > 0 && !wanted.has(model.id)) return []
    const row = findProcessor(model)
    if (row === undefined) {
      log.warn({ modelId: model.id, kind: model.kind }, 'no processor for this kind: not served')
      return []
    }
    return [{ model, slots: slotsOf(model, row).slots }]
  })
}

interface OpenerTools {
  readonly runtime: ReturnType<typeof openRuntime>
  readonly storage: ObjectStore
  readonly metrics: WorkerMetrics
  readonly log: Logger
  /** The downloads in flight, by model. */
  readonly pulls: Map<string, PullProgress>
  /** Aborts running downloads. */
  readonly signal: AbortSignal
}

function opener(
  config: WorkerTierConfig,
  { runtime, storage, metrics, log, pulls, signal }: OpenerTools,
): (model: CatalogueModel) => Promise<OpenModel> {
  return async (model) => {
    const labels = { kind: model.kind, gen_ai_request_model: model.id }
    const batches = metrics.batchSize.labels(labels)
    const steps = metrics.stepTokens.labels(labels)
    const row = findProcessor(model)
    if (row === undefined) throw new Error(`no processor for models of kind ${model.kind}`)
    const { hub } = config.inference
    const fetchOptions = { cacheDir: modelCacheDir(config), hub, storage, log, signal }
    const folder = await ensureModel(model, {
      ...fetchOptions,
      onProgress: (progress) => pulls.set(model.id, progress),
    }).finally(() => pulls.delete(model.id))
    return row.open(model, {
      folder,
      ...slotsOf(model, row),
      runtime,
      storage,
      fetchOptions,
      config: config.inference.worker,
      clock: systemClock,
      log,
      onBatch(size, tokens) {
        batches.observe(size)
        if (tokens !== undefined) steps.observe(tokens)
      },
    })
  }
}

function findProcessor(model: CatalogueModel): ProcessorRow | undefined {
  return PROCESSORS.find(({ kind }) => kind === model.kind)
}

/** A number in the catalogue is fixed. */
function slotsOf(model: CatalogueModel, row: ProcessorRow): Pick<OpenTools, 'slots' | 'slotsMax'> {
  const { slots = row.slots, slots: slotsMax = row.slotsMax ?? row.slots } = model.options
  return { slots, slotsMax }
}
