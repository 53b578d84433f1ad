import type { Readable } from 'node:stream'

import { failure, type ServiceError } from '../errors.ts'

/** Bytes under keys. A key becomes visible only when all of its bytes are stored. */
export interface ObjectStore {
  /**
   * Stores a stream of unknown length. Nothing becomes visible when the stream fails or `signal`
   * aborts. Resolves with the number of bytes.
   */
  put(key: string, body: Readable | Buffer, options?: PutOptions): Promise<{ bytes: number }>
  /** The bytes of a key, or of the inclusive `range`. Throws `notFound` when there is none. */
  get(key: string, range?: { readonly start: number; readonly end?: number }): Promise<StoredObject>
  /** Size and age of a key, or undefined. */
  head(key: string): Promise<ObjectInfo | undefined>
  /** Removes a key; a missing one is no error. */
  delete(key: string): Promise<void>
  /** Everything below a prefix, in key order. */
  list(prefix: string): AsyncIterable<ObjectInfo>
  /** Rejects when the store cannot be reached. */
  check(): Promise<void>
  close(): void
}

/**
 * Where a local directory keeps what is being written. What a killed process left there, or in an
 * upload in parts to S3, is listed below this prefix alone, and deleted by the names listed.
 */
export const STAGED = '.staging/'

/** Below these lies everything that we write: in a bucket that others use, the rest is theirs. */
export const OWN_PREFIXES = ['files/', 'media/', 'temporary/'] as const

/** What is said of an object when it is stored. */
export interface PutOptions {
  readonly contentType?: string
  readonly signal?: AbortSignal
}

/** What is known of an object without reading it. */
export interface ObjectInfo {
  readonly key: string
  readonly bytes: number
  readonly modifiedAtMs: number
}

/** An object and its bytes. */
export interface StoredObject {
  readonly body: Readable
  /** Bytes of the whole object, whatever the range. */
  readonly totalBytes: number
}

/** All bytes of an object. Throws beyond `bytesMax`, before reading them. */
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

/** Throws unless the key is made of plain segments, so that no key leaves its store. */
export function assertPlainKey(key: string): void {
  const isPlain = key
    .split('/')
    .every((segment) => /^[A-Za-z0-9._-]+$/.test(segment) && !/^\.+$/.test(segment))
  if (!isPlain || key.length > 512) throw new Error(`"${key}" is not an object key`)
}

/** The refusal of what there is no room for; clients try again, for somebody may make some. */
export function storageFull(cause: unknown): ServiceError {
  return failure.overloaded('The storage of this service is full. Try again later.', {
    code: 'storage_full',
    retryAfterSeconds: 30,
    cause,
  })
}
