import { Readable } from 'node:stream'

import { expect } from 'vitest'

import { openFiles } from '#api/files/file-store.ts'
import { filesPlugin } from '#api/files/routes.ts'
import { systemClock } from '#shared/clock.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import { createLogger, type Logger } from '#shared/logger.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import { it } from '#test/support/services.ts'
import { openV1App } from '#test/support/v1-app.ts'

const FITTING_BYTES = 1024 * 1024

/** Passes on what fits, then fails as writing to a full disk does. */
async function* onFullDisk(body: Readable, code: string) {
  let bytes = 0
  for await (const chunk of body) {
    bytes += (chunk as Buffer).length
    if (bytes > FITTING_BYTES) throw Object.assign(new Error(`${code}: write`), { code })
    yield chunk
  }
}

it.for(['ENOSPC', 'EDQUOT'])(
  'an upload that meets %s is refused for now and leaves nothing',
  async (code, { database, folder }) => {
    const stored = openDirectoryStore(folder)
    const store: ObjectStore = {
      ...stored,
      put: (key, body, options) =>
        stored.put(key, Readable.from(onFullDisk(body as Readable, code)), options),
    }
    const files = openFiles(database.db, fileTables(''))
    const warnings: unknown[] = []
    const log: Logger = Object.assign(Object.create(createLogger({ level: 'silent' })), {
      warn: (fields: object, message: string) => warnings.push({ ...fields, message }),
    })
    const options = { files, store, clock: systemClock, storageBytesMax: 2 ** 30 }
    const surfaces = [filesPlugin({ ...options, onChange: () => {} })]
    const { app, call } = await openV1App(database, surfaces, { log })
    const upload = (bytes: number) => {
      const body = new FormData()
      body.set('purpose', 'user_data')
      body.set('file', new Blob([Buffer.alloc(bytes)]), 'a.bin')
      return call('/files', { method: 'POST', body })
    }
    const refused = await upload(8 * FITTING_BYTES)
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '30'])
    expect(await refused.json()).toEqual({
      error: {
        message: 'The storage of this service is full. Try again later.',
        type: 'overloaded_error',
        param: null,
        code: 'storage_full',
      },
    })
    // The client learns no cause; the operator does.
    expect(warnings).toMatchObject([
      { reason: `Error: ${code}: write`, message: 'a service is in trouble' },
    ])
    expect(await Array.fromAsync(store.list(''))).toEqual([])
    expect(await Array.fromAsync(store.list('.staging/'))).toEqual([])
    // A shorter file still fits, and a failed upload was not charged.
    expect((await upload(FITTING_BYTES / 2)).status).toBe(200)
    const [{ organizationId } = { organizationId: '' }] = await database.db
      .select()
      .from(fileTables('').storage)
    expect(await files.usedBytes(organizationId)).toBe(FITTING_BYTES / 2)
    await app.close()
  },
)
