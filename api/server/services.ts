import { type Activities, openActivities } from '#api/activities/activity-store.ts'
import { type Batches, openBatches } from '#api/batches/batch-store.ts'
import { type BatchLines, openBatchLines } from '#api/batches/line-store.ts'
import { IncidentLog } from '#api/console/incident-log.ts'
import { IncidentWatch } from '#api/console/incident-watch.ts'
import { SeriesLog } from '#api/console/series-log.ts'
import { type Files, openFiles } from '#api/files/file-store.ts'
import { openUploads, type Uploads } from '#api/files/upload-store.ts'
import { HeldBytes } from '#api/jobs/held-bytes.ts'
import { JobQueues } from '#api/jobs/job-queues.ts'
import type { QuotaServices } from '#api/limits/quotas.ts'
import type { ApiTelemetry } from '#api/telemetry/open-telemetry.ts'
import { createUsageMeter } from '#api/usage/usage-meter.ts'
import { openUsageRecord, type UsageRecord } from '#api/usage/usage-store.ts'
import { type Clock, systemClock } from '#shared/clock.ts'
import type { Config } from '#shared/config/config.ts'
import { type ApiKeyStore, ensureBootstrapKey, openApiKeys } from '#shared/db/api-keys.ts'
import { type Database, fitPool, openDatabase } from '#shared/db/client.ts'
import { requireWrites } from '#shared/db/hosts.ts'
import { MIGRATIONS_FOLDER, migrate } from '#shared/db/migrate.ts'
import { preparePooler } from '#shared/db/pooler.ts'
import { type ListReads, openListReads } from '#shared/db/replica.ts'
import { activityTables } from '#shared/db/schema/activities.ts'
import { batchTables } from '#shared/db/schema/batches.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import { type OrganizationTables, organizationTables } from '#shared/db/schema/organizations.ts'
import { usageTables } from '#shared/db/schema/usage.ts'
import { Dependencies, type Dependency } from '#shared/dependencies.ts'
import { LiveCatalogue } from '#shared/live-catalogue.ts'
import { loadCatalogue } from '#shared/load-catalogue.ts'
import type { Logger } from '#shared/logger.ts'
import { redisChecks } from '#shared/queue/checks.ts'
import { checkRedis, openRedis } from '#shared/queue/connection.ts'
import { type ContentCipher, openContentCipher } from '#shared/queue/content-cipher.ts'
import { type QueueKeys, queueKeys } from '#shared/queue/keys.ts'
import { type ObjectStore, storageCheck } from '#shared/storage/object-store.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { observePool } from '#shared/telemetry/observe-pool.ts'
import { observeStore } from '#shared/telemetry/observe-store.ts'

import { type Background, openBackground } from './background.ts'
import { type Outboxes, openOutboxes } from './outboxes.ts'
import { openQuotas } from './quotas.ts'

type RedisConnection = Awaited<ReturnType<typeof openRedis>>

/** The collaborators of the API tier, each created once. */
export interface Services {
  readonly config: Config
  readonly clock: Clock
  readonly log: Logger
  readonly catalogue: LiveCatalogue
  readonly database: Database
  /** Queries of lists, on the read replica where there is one. */
  readonly lists: ListReads
  readonly organizationTables: OrganizationTables
  readonly apiKeys: ApiKeyStore
  readonly redis: RedisConnection
  readonly queueKeys: QueueKeys
  /** Encrypts request content in Redis; undefined without a key. */
  readonly cipher: ContentCipher | undefined
  /** Limits the stored images and recordings of unfinished requests. */
  readonly temporaryBytes: HeldBytes
  /** Submits jobs to their queues, and records the usage of each. */
  readonly submitter: JobQueues
  readonly usage: UsageRecord
  readonly quotas: QuotaServices
  readonly usageWriter: Outboxes['usageWriter']
  readonly activityWriter: Outboxes['activityWriter']
  /** Recent errors and slow requests, for administrators. */
  readonly incidents: IncidentLog
  readonly incidentWatch: IncidentWatch
  /** The numbers of the last hour and day, for the console. */
  readonly series: SeriesLog
  readonly store: ObjectStore
  readonly files: Files
  readonly uploads: Uploads
  readonly activities: Activities
  readonly batches: Batches
  readonly batchLines: BatchLines
  readonly background: Background
  readonly dependencies: Dependencies
  /** Closes everything in the reverse order of opening. */
  close(): Promise<void>
}

/**
 * Connects to the database, Redis and object storage, applies the migrations and opens the job
 * submitter. Closes everything that was opened when a later step fails.
 */
export async function openServices(
  config: Config,
  log: Logger,
  telemetry: ApiTelemetry,
): Promise<Services> {
  const { registry, tracing, jobs } = telemetry
  const { opened, close } = createClosers()
  try {
    const listed = await loadCatalogue(config.inference.catalogueFile)
    const database = opened(openDatabase({ ...config.database, logger: log }))
    observePool(database.pool, registry, tracing)
    const tables = await prepareDatabase(config, database, log)
    const lists = opened(openLists(config, database, log, telemetry))
    const redis = await openRedis(config.infra.redisUrl, 'producer', log)
    opened({ close: () => redis.disconnect() })
    await checkRedis(redis)
    const keys = queueKeys(config.infra.redisPrefix)
    const catalogue = opened(await new LiveCatalogue(listed, { redis, keys, log }).open())
    const cipher = openContentCipher(config.infra.encryptionKeys)
    const opening = { config, database, lists, redis, cipher, log, catalogue }
    const records = openRecords({ ...opening, organizationTables: tables })
    opened(records.usageWriter)
    opened(records.activityWriter)
    const meter = createUsageMeter({ writer: records.usageWriter, clock: systemClock })
    const store = observeStore(await openObjectStore(config.infra.storage), registry, tracing)
    opened(store)
    const background = openBackground(opening)
    const watch = openWatch({ config, redis, log })
    opened(watch.incidents)
    opened(watch.series)
    const submitter = opened(
      await JobQueues.open(config.infra, redis, {
        clock: systemClock,
        log,
        cipher,
        ...config.inference,
        mayKeepInput: async (id) => !(await background.jobs.storesNothing(id)),
        observers: [jobs, meter, watch.incidentWatch.jobs],
      }),
    )
    return {
      ...opening,
      store,
      close,
      background,
      submitter,
      ...records,
      ...watch,
      dependencies: openDependencies({ database, lists, redis, submitter, store, config, log }),
      clock: systemClock,
      queueKeys: keys,
      organizationTables: tables,
      apiKeys: openApiKeys(database.db, tables, config.limits.anonymous),
      ...openStores(config, { database, lists, cipher }),
    }
  } catch (error) {
    await close()
    throw error
  }
}

/** Collects opened resources, and closes them in reverse order. */
function createClosers() {
  const parts: { close(): unknown }[] = []
  return {
    opened<Part extends { close(): unknown }>(part: Part): Part {
      parts.push(part)
      return part
    },
    async close(): Promise<void> {
      for (const part of parts.splice(0).reverse()) await part.close()
    },
  }
}

type Opened = Pick<Services, 'config' | 'database' | 'lists' | 'redis' | 'cipher' | 'log'>

/** Usage and activities, and the outboxes that write them. */
function openRecords(opened: Opened & Pick<Services, 'catalogue' | 'organizationTables'>) {
  const { config, database, lists } = opened
  const { tablePrefix } = config.database
  const usage = openUsageRecord(database.db, usageTables(tablePrefix), lists.db)
  const activities = openActivities(database.db, activityTables(tablePrefix), {
    lists: lists.db,
    bytesMax: config.content.activitiesBytesMax,
  })
  const prefix = config.infra.redisPrefix
  const clock = systemClock
  return {
    usage,
    activities,
    ...openOutboxes({ ...opened, usage, activities, prefix }),
    quotas: openQuotas({ ...opened, usage, clock }),
  }
}

/** The incidents and figures of the last day, for the console. */
function openWatch({ config, ...opened }: Pick<Services, 'config' | 'redis' | 'log'>) {
  const prefix = config.infra.redisPrefix
  const incidents = new IncidentLog({ ...opened, prefix })
  const series = new SeriesLog({ ...opened, prefix })
  const slowMs = config.server.slowRequestSeconds * 1000
  return { incidents, series, incidentWatch: new IncidentWatch(incidents, { series, slowMs }) }
}

type DependencyParts = Pick<
  Services,
  'database' | 'lists' | 'redis' | 'submitter' | 'store' | 'config' | 'log'
>

function openDependencies({
  database,
  lists,
  redis,
  submitter,
  store,
  config,
  log,
}: DependencyParts): Dependencies {
  const list: Dependency[] = [
    {
      name: 'database',
      isRequired: false,
      remedy: 'check DATABASE_URL, and that Postgres runs and takes writes',
      check: () => requireWrites(database.pool),
    },
    ...redisChecks(redis, config.infra),
    ...submitter.further.flatMap((server) => redisChecks(server.redis, server)),
    storageCheck(store),
  ]
  const { replica } = lists
  if (replica !== undefined) {
    list.push({
      name: 'database_replica',
      isRequired: false,
      remedy: 'check DATABASE_REPLICA_URL and its replication: the primary serves lists',
      async check() {
        if (replica.fault !== undefined) throw replica.fault
      },
    })
  }
  return new Dependencies(list, { clock: systemClock, log })
}

function openStores(
  config: Config,
  { database: { db }, lists, cipher }: Pick<Services, 'database' | 'lists' | 'cipher'>,
): Pick<Services, 'files' | 'uploads' | 'batches' | 'batchLines' | 'temporaryBytes'> {
  const { tablePrefix } = config.database
  const { storedBytesMax } = config.content
  const tables = batchTables(tablePrefix)
  return {
    files: openFiles(db, fileTables(tablePrefix), lists.db),
    uploads: openUploads(db, fileTables(tablePrefix)),
    batches: openBatches(db, tables, { cipher, lists: lists.db, storedBytesMax }),
    batchLines: openBatchLines(db, tables, cipher),
    temporaryBytes: new HeldBytes(config.inference.temporaryBytesMax),
  }
}

function openLists(
  { database: settings }: Config,
  primary: Database,
  logger: Logger,
  { registry, tracing }: ApiTelemetry,
): ListReads {
  const { replicaUrl, maxPoolSize, replicaLagSecondsMax: lagSecondsMax } = settings
  const lists = openListReads({
    primary,
    replicaUrl,
    maxPoolSize,
    lagSecondsMax,
    logger,
    clock: systemClock,
  })
  if (lists.replica !== undefined) observePool(lists.replica.pool, registry, tracing)
  return lists
}

async function prepareDatabase(
  config: Config,
  database: Database,
  log: Logger,
): Promise<OrganizationTables> {
  const { tablePrefix } = config.database
  await preparePooler(config.database.url, log)
  if (config.database.maxPoolSize === 0) await fitPool(database.pool)
  await migrate({ pool: database.pool, folder: MIGRATIONS_FOLDER, tablePrefix, logger: log })
  const tables = organizationTables(tablePrefix)
  const { bootstrapApiKey } = config.inference
  if (bootstrapApiKey !== '') await ensureBootstrapKey(database.db, tables, bootstrapApiKey)
  return tables
}
