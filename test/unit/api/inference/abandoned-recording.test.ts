import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'

import { afterEach, beforeEach, expect, it } from 'vitest'

import type { Logger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'

import { clip, MODEL } from './audio-surface.ts'
import { formBody } from './forms.ts'
import { API_KEY, openSurface } from './surface.ts'

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-given-up-'))
})
afterEach(() => rm(folder, { recursive: true }))

it('a client that disconnects while its recording is stored is not a fault of the server', async () => {
  const { store, received, abandoned } = neverDone(openDirectoryStore(folder))
  const { log, messages } = keepingErrors()
  const { app, submitter } = await openSurface(undefined, { store, log })
  const base = await app.listen({ port: 0, host: '127.0.0.1' })
  const client = new AbortController()
  const asked = fetch(`${base}/v1/audio/transcriptions`, {
    method: 'POST',
    body: new Uint8Array(formBody([clip(), MODEL])),
    headers: {
      authorization: `Bearer ${API_KEY}`,
      'content-type': 'multipart/form-data; boundary=boundary-of-the-tests',
    },
    signal: client.signal,
  })
  await received
  client.abort()
  await expect(asked).rejects.toThrow()
  await abandoned
  // The route finishes within the next turns of the event loop.
  for (let turn = 0; turn < 100; turn += 1) await nextTurn()
  await app.close()
  expect(messages).toEqual([])
  expect(submitter.requests).toEqual([])
  expect(await Array.fromAsync(openDirectoryStore(folder).list('temporary/'))).toEqual([])
})

/**
 * A store that receives every byte of a put and never completes it, until it is abandoned; and when
 * it had the bytes, and when it was abandoned.
 */
function neverDone(store: ObjectStore): {
  store: ObjectStore
  received: Promise<void>
  abandoned: Promise<void>
} {
  const received = Promise.withResolvers<void>()
  const abandoned = Promise.withResolvers<void>()
  const put: ObjectStore['put'] = (key, body, options = {}) => {
    async function* held(): AsyncGenerator<Buffer> {
      yield* Buffer.isBuffer(body) ? [body] : body
      received.resolve()
      if (options.signal !== undefined) await once(options.signal, 'abort')
    }
    return store.put(key, Readable.from(held()), options).finally(abandoned.resolve)
  }
  return { store: { ...store, put }, received: received.promise, abandoned: abandoned.promise }
}

/** A logger that keeps the messages of what went wrong. */
function keepingErrors(): { log: Logger; messages: string[] } {
  const messages: string[] = []
  const drop = (): void => {}
  const keep = (_fields: object, message: string): void => {
    messages.push(message)
  }
  const log: Logger = {
    fatal: keep,
    error: keep,
    warn: drop,
    info: drop,
    debug: drop,
    child: () => log,
  }
  return { log, messages }
}
