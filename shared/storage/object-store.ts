import type { Readable } from 'node:stream'

import type { Dependency } from '#shared/dependencies.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

/** Bytes under keys. A key becomes visible only when all of its bytes are stored. */
export interface ObjectStore {
  /**
   * Stores a stream of unknown length. If the stream fails or `signal` aborts, the object never
   * becomes visible. Resolves with the number of bytes.
   */
  put(key: string, body: Readable | Buffer, options?: PutOptions): Promise<{ bytes: number }>
  /** The bytes of a key, or of the inclusive `range`. Throws `notFound` when there is none. */
  get(key: string, range?: { readonly start: number; readonly end?: number }): Promise<StoredObject>
  /** Size and age of a key, or undefined. */
  head(key: string): Promise<ObjectInfo | undefined>
  /** Removes a key; a missing one is not an error. */
  delete(key: string): Promise<void>
  /** Everything below a prefix, in key order. */
  list(prefix: string): AsyncIterable<ObjectInfo>
  /** Rejects when the store cannot be reached. */
  check(): Promise<void>
  close(): void
}

/**
 * Prefix of incomplete objects. A directory store writes here first; leftovers of killed processes
 * and incomplete multipart uploads are listed and deleted under this prefix only.
 */
export const STAGED = '.staging/'

/**
 * All objects of this service have one of these prefixes; other objects of a shared bucket are
 * never touched.
 */
export const OWN_PREFIXES = ['files/', 'fine-tuning/', 'media/', 'temporary/'] as const

/** Metadata stored with an object. */
export interface PutOptions {
  readonly contentType?: string
  readonly signal?: AbortSignal
}

/** Metadata that is known without reading the object. */
export interface ObjectInfo {
  readonly key: string
  readonly bytes: number
  readonly modifiedAtMs: number
}

/** An object and its bytes. */
interface StoredObject {
  readonly body: Readable
  /** Bytes of the complete object, independent of the range. */
  readonly totalBytes: number
}

/** Reads a complete object. Throws before reading when it exceeds `bytesMax`. */
export async function readObject(
  store: ObjectStore,
  key: string,
  bytesMax: number,
): Promise<Buffer> {
  const { body, totalBytes } = await store.get(key)
  if (totalBytes > bytesMax) {
    body.destroy()
    throw new Error(`object ${key} has ${totalBytes} bytes, more than ${bytesMax}`)
  }
  const chunks: Buffer[] = []
  for await (const chunk of body) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks)
}

/** Throws unless the key consists of plain segments, so that no key escapes its store. */
export function assertPlainKey(key: string): void {
  const isPlain = key
    .split('/')
    .every((segment) => /^[A-Za-z0-9._-]+$/.test(segment) && !/^\.+$/.test(segment))
  if (!isPlain || key.length > 512) throw new Error(`"${key}" is not an object key`)
}

/** The error for full storage. Clients may retry, because space can become free. */
export function storageFull(cause: unknown): ServiceError {
  return failure.overloaded('The storage of this service is full. Try again later.', {
    code: 'storage_full',
    retryAfterSeconds: 30,
    cause,
  })
}

/** The check of the storage that both tiers perform. */
export function storageCheck(store: ObjectStore): Dependency {
  return {
    name: 'storage',
    isRequired: false,
    remedy: 'check S3_ENDPOINT, S3_BUCKET, its region and keys',
    check: () => store.check(),
  }
}
