import { randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { openBatches } from '#api/batches/batch-store.ts'
import { BatchDriver, type DriverServices } from '#api/batches/driver.ts'
import { openBatchLines } from '#api/batches/line-store.ts'
import { batchesPlugin } from '#api/batches/routes.ts'
import { openFiles } from '#api/files/file-store.ts'
import { filesPlugin } from '#api/files/routes.ts'
import type { ExecuteBatchable } from '#api/inference/batchable.ts'
import { buildApp } from '#api/server/app.ts'
import { v1Plugin } from '#api/v1/plugin.ts'
import { systemClock } from '#shared/clock.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import { type Database, openDatabase } from '#shared/db/client.ts'
import { ensureDefaultOrganization } from '#shared/db/organizations.ts'
import { batchTables } from '#shared/db/schema/batches.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { createLogger } from '#shared/logger.ts'
import { ContentCipher } from '#shared/queue/content-cipher.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import { serverConfig } from '#test/support/server-config.ts'
import { createDatabase } from '#test/support/services.ts'

/** How much the organization of the tests may store. */
export const STORAGE_BYTES_MAX = 2 ** 30

/** The model and the tokens of each answered line. */
export const LINE_USE = {
  modelId: 'tiny-chat',
  usage: { promptTokens: 5, completionTokens: 3, reasoningTokens: 1, cachedTokens: 2 },
}

/** Bytes of lines that it may have. */
export const STORED_BYTES_MAX = 2 ** 24

/** Files and batches behind a socket, on a real database; the requests themselves are played. */
export interface BatchService {
  readonly baseURL: string
  readonly apiKey: string
  readonly database: Database
  readonly store: ObjectStore
  /** Answers the requests of the batches; replaced by tests. */
  execute: (request: Parameters<ExecuteBatchable>[0]) => Promise<object | string>
  /** Another process that works at the batches. */
  startDriver(overrides?: Partial<DriverServices>): BatchDriver
  newKey(scopes: readonly string[] | null): Promise<string>
  close(): Promise<void>
}

export async function openBatchService(): Promise<BatchService> {
  const log = createLogger({ level: 'silent' })
  const cipher = new ContentCipher(['a key of the tests'])
  const folder = await mkdtemp(join(tmpdir(), 'millrace-batches-'))
  const { url, drop } = await createDatabase()
  const database = openDatabase({ url, maxPoolSize: 20, logger: log })
  const tables = organizationTables('')
  const organizationId = await ensureDefaultOrganization(database.db, tables)
  const apiKeys = openApiKeys(database.db, tables)
  const newKey = async (scopes: readonly string[] | null): Promise<string> =>
    (
      await apiKeys.create({
        organizationId,
        name: randomUUID(),
        scopes: scopes === null ? null : [...scopes],
        modelIds: null,
        expiresAt: null,
      })
    ).secret
  const store = openDirectoryStore(folder)
  const files = openFiles(database.db, fileTables(''))
  const batches = openBatches(database.db, batchTables(''), {
    cipher,
    storedBytesMax: STORED_BYTES_MAX,
  })
  const lines = openBatchLines(database.db, batchTables(''), cipher)
  const surfaces = [
    filesPlugin({
      files,
      store,
      clock: systemClock,
      storageBytesMax: STORAGE_BYTES_MAX,
      onChange() {},
    }),
    batchesPlugin({ batches, files, clock: systemClock, storageBytesMax: STORAGE_BYTES_MAX }),
  ]
  const app = await buildApp({
    server: serverConfig(),
    version: '0',
    publicUrl: 'http://127.0.0.1',
    log,
    health: { dependencies: { states: async () => [] }, isDraining: () => false },
    surfaces: [
      { prefixes: ['/v1'], plugin: v1Plugin({ apiKeys, clock: systemClock, log }, surfaces) },
    ],
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const service: BatchService = {
    baseURL: `http://127.0.0.1:${port}/v1`,
    apiKey: await newKey(null),
    store,
    database,
    execute: async () => ({}),
    startDriver: (overrides) =>
      new BatchDriver({
        batches,
        lines,
        files,
        store,
        log,
        execute: async (request) => ({ body: await service.execute(request), ...LINE_USE }),
        ...overrides,
      }),
    newKey,
    async close() {
      app.server.closeAllConnections()
      await app.close()
      await database.close()
      await drop()
      await rm(folder, { recursive: true })
    },
  }
  return service
}
