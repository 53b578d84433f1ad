import { createHash, randomBytes } from 'node:crypto'

import { sql } from 'drizzle-orm'
import OpenAI, { type APIError, toFile } from 'openai'
import { afterEach, describe, expect } from 'vitest'

import { openFiles } from '#api/files/file-store.ts'
import { multipartUploadsPlugin } from '#api/files/multipart-uploads.ts'
import { filesPlugin } from '#api/files/routes.ts'
import { sweepOrphans } from '#api/files/sweep.ts'
import { openUploads } from '#api/files/upload-store.ts'
import { systemClock } from '#shared/clock.ts'
import type { Database } from '#shared/db/client.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { it } from '#test/support/services.ts'
import { openV1App, type V1App } from '#test/support/v1-app.ts'

const QUOTA_BYTES = 1000
const PLAIN = { filename: 'a.bin', purpose: 'user_data', mime_type: 'text/plain' } as const
const open: V1App[] = []

afterEach(async () => {
  for (const { app } of open.splice(0)) await app.close()
})

async function openSurface(database: Database, folder: string, storageBytesMax = QUOTA_BYTES) {
  const store = await openObjectStore({ driver: 'directory', path: folder })
  const files = openFiles(database.db, fileTables(''))
  const uploads = openUploads(database.db, fileTables(''))
  const changes: string[] = []
  const onChange = ({ type }: { readonly type: string }) => void changes.push(type)
  const services = { files, uploads, store, clock: systemClock, storageBytesMax, onChange }
  const surface = await openV1App(database, [
    filesPlugin(services),
    multipartUploadsPlugin(services),
  ])
  open.push(surface)
  const client = new OpenAI({ baseURL: `${surface.base}/v1`, apiKey: surface.key, maxRetries: 0 })
  const send = async (id: string, bytes: Buffer | string) =>
    (await client.uploads.parts.create(id, { data: await toFile(Buffer.from(bytes), 'x') })).id
  const keys = async () => {
    const found: string[] = []
    for await (const { key } of store.list('')) found.push(key)
    return found
  }
  return { ...surface, files, uploads, store, client, send, keys, changes }
}

/** The error of a call that is refused. */
const refusal = (call: Promise<unknown>): Promise<APIError> =>
  call.then(
    () => Promise.reject(new Error('the call was not refused')),
    (error: APIError) => error,
  )

describe('an upload in parts', () => {
  it('becomes a file of the parts in the order of its completion', async ({ database, folder }) => {
    const { client, send, keys, files, changes } = await openSurface(database, folder, 2 ** 24)
    const bytes = randomBytes(5_000_000)
    const upload = await client.uploads.create({ ...PLAIN, bytes: bytes.length })
    expect(upload).toMatchObject({ object: 'upload', status: 'pending', filename: 'a.bin' })
    expect(upload.expires_at).toBe(upload.created_at + 3600)
    const [second = '', , first = ''] = await Promise.all([
      send(upload.id, bytes.subarray(2_000_000)),
      send(upload.id, 'sent, and then left out'),
      send(upload.id, bytes.subarray(0, 2_000_000)),
    ])
    const md5 = createHash('md5').update(bytes).digest('hex')
    const part_ids = [first, second]
    const done = await client.uploads.complete(upload.id, { part_ids, md5 })
    expect(done).toMatchObject({ id: upload.id, status: 'completed' })
    const file = await client.files.retrieve(done.file?.id ?? '')
    expect(done.file).toEqual(file)
    expect(file).toMatchObject({ bytes: bytes.length, filename: 'a.bin', purpose: 'user_data' })
    const content = await (await client.files.content(file.id)).arrayBuffer()
    expect(bytes.equals(Buffer.from(content))).toBe(true)
    expect(await keys()).toEqual([`files/${file.id}`])
    expect(await files.usedBytes('org-one')).toBe(bytes.length)
    expect(changes).toEqual(['stored'])
  })

  it('is refused with the name of the fault, and can still be completed', async ({
    database,
    folder,
  }) => {
    const { client, send, keys } = await openSurface(database, folder)
    const { id } = await client.uploads.create({ ...PLAIN, bytes: 4 })
    const [a, b] = [await send(id, 'ab'), await send(id, 'cd')]
    const complete = (part_ids: string[], md5?: string) =>
      client.uploads.complete(id, { part_ids, ...(md5 !== undefined && { md5 }) })
    for (const [part_ids, md5, message] of [
      [[a], undefined, 'The parts have 2 bytes, the upload was created with 4.'],
      [
        [a, a],
        undefined,
        "Invalid 'part_ids[1]': it is not a part of this upload, or is named twice.",
      ],
      [['part_x', b], undefined, "Invalid 'part_ids[0]'"],
      [[a, b], '0'.repeat(32), 'The MD5 of the parts is another one.'],
    ] as const) {
      const error = await refusal(complete([...part_ids], md5))
      expect([error.status, error.message]).toEqual([400, expect.stringContaining(message)])
    }
    expect((await refusal(send(id, ''))).message).toContain('The part is empty.')
    expect((await refusal(send(id, 'x'.repeat(9)))).message).toContain('at most twice as many')
    expect(await keys()).toHaveLength(2)
    expect((await complete([a, b])).status).toBe('completed')
    expect((await refusal(complete([a, b]))).message).toContain('The upload is completed.')
    expect((await refusal(send(id, 'x'))).message).toContain('The upload is completed.')
    expect((await refusal(client.uploads.cancel(id))).message).toContain('The upload is completed.')
  })

  it('is checked line by line if its purpose is JSON lines', async ({ database, folder }) => {
    const { client, send, keys } = await openSurface(database, folder)
    const lines = { ...PLAIN, purpose: 'batch', bytes: 6 } as const
    const { id } = await client.uploads.create(lines)
    const error = await refusal(
      client.uploads.complete(id, { part_ids: [await send(id, '{"a":1')] }),
    )
    expect([error.status, error.code]).toEqual([400, 'invalid_file_format'])
    expect(await keys()).toHaveLength(1)
  })

  it('is charged from its creation until it is cancelled or has expired', async ({
    database,
    folder,
  }) => {
    const { client, send, files, uploads, store, keys } = await openSurface(database, folder)
    const create = (bytes: number) => client.uploads.create({ ...PLAIN, bytes })
    const [kept, cancelled] = [await create(600), await create(400)]
    expect((await refusal(create(1))).code).toBe('storage_limit_exceeded')
    await send(cancelled.id, 'x')
    expect(await client.uploads.cancel(cancelled.id)).toMatchObject({ status: 'cancelled' })
    expect(await keys()).toEqual([])
    expect(await files.usedBytes('org-one')).toBe(600)
    await send(kept.id, 'x')
    await database.db.execute(sql`update uploads set expires_at = now()`)
    expect((await refusal(client.uploads.cancel(kept.id))).status).toBe(404)
    await uploads.deleteExpired()
    expect(await files.usedBytes('org-one')).toBe(0)
    const later = { now: () => systemClock.now() + 7 * 3_600_000 }
    expect(await sweepOrphans({ files, store, clock: { ...systemClock, ...later } })).toBe(1)
  })

  it('is not known to another organization', async ({ database, folder }) => {
    const { client, newKey, send } = await openSurface(database, folder)
    const { id } = await client.uploads.create({ ...PLAIN, bytes: 1 })
    const part_ids = [await send(id, 'x')]
    const other = client.withOptions({ apiKey: await newKey('org-two') })
    const data = await toFile(Buffer.from('x'), 'x')
    for (const call of [
      () => other.uploads.parts.create(id, { data }),
      () => other.uploads.complete(id, { part_ids }),
      () => other.uploads.cancel(id),
    ]) {
      expect((await refusal(call())).status).toBe(404)
    }
  })

  it('does not begin beside a hundred others', async ({ database, folder }) => {
    const { client, files } = await openSurface(database, folder)
    await database.db.execute(sql`insert into uploads (id, organization_id, filename, purpose, bytes)
      select number, 'org-one', 'a', 'user_data', 1 from generate_series(1, 98) number`)
    const create = () => client.uploads.create({ ...PLAIN, bytes: 1 })
    const begun = await Promise.allSettled([create(), create(), create(), create()])
    expect(begun.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
    expect((await refusal(create())).code).toBe('too_many_uploads')
    expect(await files.usedBytes('org-one')).toBe(2)
  })

  it('is completed once by several completions at once', async ({ database, folder }) => {
    const { client, send, keys, files } = await openSurface(database, folder)
    const { id } = await client.uploads.create({ ...PLAIN, bytes: 1 })
    const part_ids = [await send(id, 'x')]
    const complete = () => client.uploads.complete(id, { part_ids })
    const ended = await Promise.allSettled(Array.from({ length: 8 }, complete))
    expect(ended.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    expect(await keys()).toHaveLength(1)
    expect(await files.usedBytes('org-one')).toBe(1)
  })
})
