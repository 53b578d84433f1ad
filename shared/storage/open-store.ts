import type { StorageConfig } from '../config/infra.ts'
import { openDirectoryStore } from './directory-store.ts'
import type { ObjectStore } from './object-store.ts'
import { openS3Store } from './s3-store.ts'

/** Opens the store that the configuration names. */
export function openObjectStore(config: StorageConfig): ObjectStore {
  return config.driver === 's3' ? openS3Store(config) : openDirectoryStore(config.path)
}
