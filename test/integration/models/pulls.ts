import { join } from 'node:path'

import type { CatalogueModel } from '#shared/catalogue.ts'
import { createLogger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import type { StoredOptions } from '#workers/models/stored-cache.ts'

import type { TestHub } from './hub-server.ts'

/** An entry of the catalogue for a model of texts. */
export function modelOf(source: string, options: CatalogueModel['options'] = {}): CatalogueModel {
  return {
    id: 'a-model',
    kind: 'completion',
    source,
    options,
    aliases: [],
    ownedBy: 'hub',
    created: 0,
    capabilities: [],
  }
}

/** Pulls from a hub of the tests into a folder. */
export function fetchOptionsOf(
  hub: TestHub,
  folder: string,
  more: Partial<StoredOptions> = {},
): StoredOptions {
  return {
    cacheDir: join(folder, 'cache'),
    hub: { endpoint: hub.endpoint, accessToken: '', isOffline: false },
    storage: openDirectoryStore(join(folder, 'objects')),
    log: createLogger({ level: 'silent' }),
    ...more,
  }
}
