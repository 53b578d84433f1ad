import type { Readable } from 'node:stream'

import { PassThroughBytes, passThrough } from '#api/http/pass-through.ts'
import { randomId } from '#shared/ids.ts'
import type { Logger } from '#shared/logger.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import type { HeldBytes } from './held-bytes.ts'

/** The prefix of objects that only the job of one request reads; they are swept after an hour. */
const PREFIX = 'temporary'

/** A unique key for a temporary object. */
export function newTemporaryKey(): string {
  return `${PREFIX}/${randomId('')}`
}

/** The storage of temporary objects. */
export interface TemporaryServices {
  readonly store: ObjectStore
  readonly log: Logger
  /** Limits the stored images and recordings of unfinished requests. */
  readonly temporaryBytes: HeldBytes
}

/** Objects that a request stores for its job and deletes at its end. */
export class TemporaryObjects {
  readonly #store: ObjectStore
  readonly #log: Logger
  readonly #keys: string[] = []
  readonly #holding: ReturnType<HeldBytes['open']>

  constructor({ store, log, temporaryBytes }: TemporaryServices, organizationId: string) {
    this.#store = store
    this.#log = log
    this.#holding = temporaryBytes.open(organizationId)
  }

  /** Stores bytes under a new key. Throws when unfinished requests store too many bytes. */
  async put(
    body: Readable | Buffer,
    signal?: AbortSignal,
    key = newTemporaryKey(),
  ): Promise<{ readonly key: string; readonly bytes: number }> {
    const counted = this.#count(body)
    const { bytes } = await this.#store.put(key, counted, signal === undefined ? {} : { signal })
    this.#keys.push(key)
    return { key, bytes }
  }

  #count(body: Readable | Buffer): Readable | Buffer {
    const add = (chunk: Buffer): void => this.#holding.add(chunk.length)
    if (!Buffer.isBuffer(body)) return passThrough(body, new PassThroughBytes(add))
    add(body)
    return body
  }

  /** Deletes all stored objects; those that cannot be deleted now are swept later. */
  async discard(): Promise<void> {
    for (const key of this.#keys.splice(0)) {
      await this.#store.delete(key).catch((error: unknown) => {
        const reason = error instanceof Error ? error.message : String(error)
        this.#log.warn({ operation: 'temporary.discard', reason }, 'left to be swept')
      })
    }
    this.#holding.end()
  }
}
