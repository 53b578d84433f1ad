import { sql } from 'drizzle-orm'
import { afterEach, expect } from 'vitest'

import { openFiles } from '#api/files/file-store.ts'
import { filesPlugin } from '#api/files/routes.ts'
import { sweepOrphans } from '#api/files/sweep.ts'
import { systemClock } from '#shared/clock.ts'
import type { Database } from '#shared/db/client.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { it } from '#test/support/services.ts'
import { openV1App, type V1App } from '#test/support/v1-app.ts'

const open: V1App[] = []

afterEach(async () => {
  for (const { app } of open.splice(0)) await app.close()
})

async function openSurface(database: Database, folder: string) {
  const store = await openObjectStore({ driver: 'directory', path: folder })
  const files = openFiles(database.db, fileTables(''))
  const clock = systemClock
  const options = { files, store, clock, storageBytesMax: 1000, onChange: () => {} }
  const surface = await openV1App(database, [filesPlugin(options)])
  open.push(surface)
  const upload = async (fields: Readonly<Record<string, string>>) => {
    const body = new FormData()
    body.set('file', new Blob(['12345']), 'a.txt')
    body.set('purpose', 'user_data')
    for (const [name, value] of Object.entries(fields)) body.set(name, value)
    const answer = await surface.call('/files', { method: 'POST', body })
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> }
  }
  return { ...surface, files, store, upload }
}

const after = (seconds: string, anchor = 'created_at') => ({
  'expires_after[anchor]': anchor,
  'expires_after[seconds]': seconds,
})

it('states when a file expires: the requested time after its upload', async ({
  database,
  folder,
}) => {
  const { upload, call } = await openSurface(database, folder)
  for (const seconds of [3600, 2_592_000]) {
    const { body } = await upload(after(String(seconds)))
    expect(body.expires_at).toBe((body.created_at as number) + seconds)
    expect(await (await call(`/files/${body.id}`)).json()).toEqual(body)
  }
  expect((await upload({})).body).not.toHaveProperty('expires_at')
})

it('hides an expired file, and releases its bytes', async ({ database, folder }) => {
  const { upload, call, files, store } = await openSurface(database, folder)
  const kept = (await upload(after('3600'))).body
  const { id } = (await upload(after('3600'))).body
  await database.db.execute(sql`update files set expires_at = now() where id = ${id}`)
  for (const [path, method] of [
    [`/files/${id}`, 'GET'],
    [`/files/${id}/content`, 'GET'],
    [`/files/${id}`, 'DELETE'],
    [`/files?after=${id}`, 'GET'],
  ] as const) {
    expect((await call(path, { method })).status, path).toBe(404)
  }
  expect(await (await call('/files')).json()).toMatchObject({ data: [kept] })
  expect(await files.usedBytes('org-one')).toBe(10)
  const later = { now: () => Date.now() + 7 * 3600 * 1000, monotonic: () => 0 }
  expect(await sweepOrphans({ files, store, clock: later })).toBe(1)
  expect(await files.usedBytes('org-one')).toBe(5)
  expect((await call(`/files/${kept.id}/content`)).status).toBe(200)
})

const SECONDS = 'expires_after[seconds]'

it.for<[Record<string, string>, string, string]>([
  [after('3599'), SECONDS, 'integer_below_min_value'],
  [after('2592001'), SECONDS, 'integer_above_max_value'],
  [after('soon'), SECONDS, 'invalid_type'],
  [after('3600.5'), SECONDS, 'invalid_type'],
  [after('3600', 'last_active_at'), 'expires_after[anchor]', 'invalid_value'],
  [{ [SECONDS]: '3600' }, 'expires_after[anchor]', 'missing_required_parameter'],
  [{ 'expires_after[anchor]': 'created_at' }, SECONDS, 'missing_required_parameter'],
  [{ expires_after: '3600' }, 'expires_after', 'unknown_parameter'],
])('refuses %j, naming %s', async ([fields, param, code], { database, folder }) => {
  const { upload, files } = await openSurface(database, folder)
  expect(await upload(fields)).toMatchObject({ status: 400, body: { error: { param, code } } })
  expect(await files.usedBytes('org-one')).toBe(0)
})
