import type { Catalogue } from '#shared/catalogue.ts'
import { systemClock, type Clock } from '#shared/clock.ts'
import type { Config } from '#shared/config/config.ts'
import { ensureBootstrapKey, openApiKeys, type ApiKeyStore } from '#shared/db/api-keys.ts'
import { openDatabase, type Database } from '#shared/db/client.ts'
import { migrate, MIGRATIONS_FOLDER } from '#shared/db/migrate.ts'
import { activityTables } from '#shared/db/schema/activities.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import { organizationTables, type OrganizationTables } from '#shared/db/schema/organizations.ts'
import { usageTables } from '#shared/db/schema/usage.ts'
import { loadCatalogue } from '#shared/load-catalogue.ts'
import type { Logger } from '#shared/logger.ts'
import { checkRedis, openRedis } from '#shared/queue/connection.ts'
import { queueKeys, type QueueKeys } from '#shared/queue/keys.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { openActivities, type Activities } from './activities/activities.ts'
import { openBatches, type Batches } from './batches/batch-store.ts'
import { openBatchLines, type BatchLines } from './batches/line-store.ts'
import { openFiles, type Files } from './files/files.ts'
import { openSubmitter, type OpenSubmitter } from './inference/submit.ts'
import { meterJobs } from './usage/metered-submitter.ts'
import { openUsageRecord, type UsageRecord } from './usage/usage-record.ts'
import { UsageWriter } from './usage/usage-writer.ts'

type RedisConnection = Awaited<ReturnType<typeof openRedis>>

/** Every collaborator of the API tier, built once. */
export interface Services {
  readonly config: Config
  readonly clock: Clock
  readonly log: Logger
  readonly catalogue: Catalogue
  readonly database: Database
  readonly organizationTables: OrganizationTables
  readonly apiKeys: ApiKeyStore
  readonly redis: RedisConnection
  readonly queueKeys: QueueKeys
  /** Every job that goes through it is written to the usage record. */
  readonly submitter: OpenSubmitter
  readonly usage: UsageRecord
  readonly usageWriter: UsageWriter
  readonly store: ObjectStore
  readonly files: Files
  readonly activities: Activities
  readonly batches: Batches
  readonly batchLines: BatchLines
  /** Closes everything in the reverse order of opening. */
  close(): Promise<void>
}

/**
 * Connects to the database, Redis and object storage, applies the migrations and opens the way into
 * the queues. What was opened is closed again when a later step fails.
 */
export async function openServices(config: Config, log: Logger): Promise<Services> {
  const closers: (() => unknown)[] = []
  const close = async () => {
    for (const closer of closers.splice(0).reverse()) await closer()
  }
  try {
    const catalogue = await loadCatalogue(config.inference.catalogueFile)
    const database = openDatabase({ ...config.database, logger: log })
    closers.push(() => database.close())
    const tables = await prepareDatabase(config, database, log)
    const usage = openUsageRecord(database.db, usageTables(config.database.tablePrefix))
    const usageWriter = new UsageWriter(usage, log)
    closers.push(() => usageWriter.close())
    const redis = await openRedis(config.infra.redisUrl, 'producer', log)
    closers.push(() => redis.disconnect())
    await checkRedis(redis)
    const reader = await openRedis(config.infra.redisUrl, 'reader', log)
    closers.push(() => reader.disconnect())
    const store = openObjectStore(config.infra.storage)
    closers.push(() => store.close())
    const keys = queueKeys(config.infra.redisPrefix)
    const { queueDepthMax } = config.inference
    const submitter = await openSubmitter({
      redis,
      reader,
      keys,
      queueDepthMax,
      clock: systemClock,
      log,
    })
    closers.push(() => submitter.close())
    const { tablePrefix } = config.database
    return {
      ...{ config, log, catalogue, database, redis, store, usage, usageWriter, close },
      submitter: meterJobs(submitter, { writer: usageWriter, clock: systemClock }),
      clock: systemClock,
      queueKeys: keys,
      organizationTables: tables,
      apiKeys: openApiKeys(database.db, tables),
      files: openFiles(database.db, fileTables(tablePrefix)),
      batches: openBatches(database.pool, tablePrefix),
      batchLines: openBatchLines(database.pool, tablePrefix),
      activities: openActivities(database.db, activityTables(tablePrefix)),
    }
  } catch (error) {
    await close()
    throw error
  }
}

async function prepareDatabase(
  config: Config,
  database: Database,
  log: Logger,
): Promise<OrganizationTables> {
  const { tablePrefix } = config.database
  await migrate({ pool: database.pool, folder: MIGRATIONS_FOLDER, tablePrefix, logger: log })
  const tables = organizationTables(tablePrefix)
  const { bootstrapApiKey } = config.inference
  if (bootstrapApiKey !== '') await ensureBootstrapKey(database.db, tables, bootstrapApiKey)
  return tables
}
