import { Readable } from 'node:stream'

import { expect } from 'vitest'

import { openFiles } from '#api/files/file-store.ts'
import { filesPlugin } from '#api/files/routes.ts'
import { openUploads } from '#api/files/upload-store.ts'
import { systemClock } from '#shared/clock.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { it } from '#test/support/services.ts'
import { openV1App } from '#test/support/v1-app.ts'

const FILE_BYTES = 1024 * 1024
const ALLOWANCE_BYTES = 2.5 * FILE_BYTES
const UPLOADS = 30

it('uploads at once take no more memory than one after another', async ({ database, folder }) => {
  const stored = await openObjectStore({ driver: 'directory', path: folder })
  let begun = 0
  let held = 0
  let heldMax = 0
  /** Every upload lies there with what it has until the last one has begun. */
  const store: ObjectStore = {
    ...stored,
    async put(key, body, options) {
      begun += 1
      let bytes = 0
      async function* watched() {
        for await (const chunk of body as AsyncIterable<Buffer>) {
          bytes += chunk.length
          held += chunk.length
          heldMax = Math.max(heldMax, held)
          yield chunk
        }
        await expect.poll(() => begun).toBe(UPLOADS)
      }
      try {
        return await stored.put(key, Readable.from(watched(), { objectMode: false }), options)
      } finally {
        held -= bytes
      }
    },
  }
  const files = openFiles(database.db, fileTables(''))
  const options = { files, store, clock: systemClock, onChange: () => {} }
  const { app, call } = await openV1App(database, [
    filesPlugin({ ...options, storageBytesMax: ALLOWANCE_BYTES }),
  ])
  const upload = async () => {
    const body = new FormData()
    body.set('purpose', 'user_data')
    body.set('file', new Blob([Buffer.alloc(FILE_BYTES)]), 'a.bin')
    return (await call('/files', { method: 'POST', body })).status
  }
  const statuses = await Promise.all(Array.from({ length: UPLOADS }, upload))
  expect(statuses.filter((status) => status === 200)).toHaveLength(2)
  expect(statuses.filter((status) => status === 400)).toHaveLength(UPLOADS - 2)
  // A refused upload is aborted a moment later.
  expect(heldMax).toBeLessThan(UPLOADS * FILE_BYTES * 0.5)
  expect(await files.usedBytes('org-one')).toBe(2 * FILE_BYTES)
  expect(await Array.fromAsync(store.list(''))).toHaveLength(2)
  expect(await upload()).toBe(400)
  await app.close()
})

it('files are bounded in number, also those that are sent in parts', async ({ database }) => {
  const tables = fileTables('')
  const files = openFiles(database.db, tables)
  const uploads = openUploads(database.db, tables)
  const organizationId = 'org-many'
  await database.pool.query("insert into organizations (id, name) values ('org-many', 'Many')")
  const file = { organizationId, filename: 'a', purpose: 'user_data', bytes: 1 }
  const publish = (id: string) =>
    files.publish({ ...file, id, objectKey: id, sha256: Buffer.alloc(32) }, FILE_BYTES)
  await publish('file-1')
  await database.pool.query(
    `insert into files select (jsonb_populate_record(f, jsonb_build_object('id', 'file-' || n,
        'object_key', 'file-' || n))).* from files f, generate_series(2, 999) n`,
  )
  expect((await publish('file-1000'))?.id).toBe('file-1000')
  expect(await publish('file-1001')).toBeUndefined()
  const upload = { ...file, id: 'upload-1', retentionSeconds: null }
  await expect(uploads.begin(upload, FILE_BYTES)).rejects.toMatchObject({
    code: 'storage_limit_exceeded',
  })
  await files.remove(organizationId, 'file-7')
  expect((await publish('file-1001'))?.id).toBe('file-1001')
})
