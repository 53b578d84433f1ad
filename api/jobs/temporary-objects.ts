import type { Readable } from 'node:stream'

import { randomId } from '#shared/ids.ts'
import type { Logger } from '#shared/logger.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

/** The prefix of objects that only the job of one request reads; they are swept after an hour. */
const PREFIX = 'temporary'

/** A unique key for a temporary object. */
export function newTemporaryKey(): string {
  return `${PREFIX}/${randomId('')}`
}

/** Objects that a request stores for its job and deletes at its end. */
export class TemporaryObjects {
  readonly #store: ObjectStore
  readonly #log: Logger
  readonly #keys: string[] = []

  constructor({ store, log }: { readonly store: ObjectStore; readonly log: Logger }) {
    this.#store = store
    this.#log = log
  }

  /** Stores bytes under a new key. */
  async put(
    body: Readable | Buffer,
    signal?: AbortSignal,
    key = newTemporaryKey(),
  ): Promise<{ readonly key: string; readonly bytes: number }> {
    const { bytes } = await this.#store.put(key, body, signal === undefined ? {} : { signal })
    this.#keys.push(key)
    return { key, bytes }
  }

  /** Deletes all stored objects; those that cannot be deleted now are swept later. */
  async discard(): Promise<void> {
    for (const key of this.#keys.splice(0)) {
      await this.#store.delete(key).catch((error: unknown) => {
        const reason = error instanceof Error ? error.message : String(error)
        this.#log.warn({ operation: 'temporary.discard', reason }, 'left to be swept')
      })
    }
  }
}
