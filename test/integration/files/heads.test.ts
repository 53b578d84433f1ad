import { randomBytes } from 'node:crypto'

import { expect } from 'vitest'

import { openFiles } from '#api/files/file-store.ts'
import { filesPlugin } from '#api/files/routes.ts'
import { systemClock } from '#shared/clock.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { it } from '#test/support/services.ts'
import { openV1App } from '#test/support/v1-app.ts'

const BYTES = 20 * 1024 * 1024

it('states the size of a file without reading it', async ({ database, folder }) => {
  const stored = await openObjectStore({ driver: 'directory', path: folder })
  let opened = 0
  const store: ObjectStore = {
    ...stored,
    get(key, range) {
      opened += 1
      return stored.get(key, range)
    },
  }
  const files = openFiles(database.db, fileTables(''))
  const options = { files, store, clock: systemClock, storageBytesMax: 2 ** 30, onChange: () => {} }
  const { app, call } = await openV1App(database, [filesPlugin(options)])
  const body = new FormData()
  body.set('purpose', 'user_data')
  body.set('file', new Blob([randomBytes(BYTES)]), 'a.bin')
  const { id } = (await (await call('/files', { method: 'POST', body })).json()) as { id: string }
  const head = await call(`/files/${id}/content`, { method: 'HEAD' })
  expect(head.status).toBe(200)
  expect(head.headers.get('content-length')).toBe(String(BYTES))
  expect(opened).toBe(0)
  const beyond = { headers: { range: `bytes=${BYTES}-` } }
  const again = await call(`/files/${id}/content`, { method: 'HEAD', ...beyond })
  expect([again.status, again.headers.get('content-length')]).toEqual([200, String(BYTES)])
  const none = await call(`/files/${id}/content`, beyond)
  expect([none.status, none.headers.get('content-range')]).toEqual([416, `bytes */${BYTES}`])
  expect(await none.json()).toMatchObject({ error: { type: 'invalid_request_error' } })
  const whole = await call(`/files/${id}/content`)
  expect((await whole.arrayBuffer()).byteLength).toBe(BYTES)
  await app.close()
})
