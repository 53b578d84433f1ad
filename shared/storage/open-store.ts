import type { StorageConfig } from '#shared/config/infra.ts'

import type { ObjectStore } from './object-store.ts'

/** Opens the store that the configuration names; the other driver is not loaded. */
export async function openObjectStore(config: StorageConfig): Promise<ObjectStore> {
  if (config.driver === 's3') return (await import('./s3-store.ts')).openS3Store(config)
  return (await import('./directory-store.ts')).openDirectoryStore(config.path)
}
