import { createHash, randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'

import { afterEach, describe, expect } from 'vitest'

import { openFiles } from '#api/files/file-store.ts'
import { filesPlugin } from '#api/files/routes.ts'
import { sweepOrphans } from '#api/files/sweep.ts'
import { systemClock } from '#shared/clock.ts'
import type { Database } from '#shared/db/client.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import type { ObjectStore } from '#shared/storage/object-store.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { it } from '#test/support/services.ts'
import { openV1App, type V1App } from '#test/support/v1-app.ts'

const SEARCH_LINES = '{"text":"a"}\n{"text":"b"}\n'
const open: V1App[] = []

afterEach(async () => {
  for (const { app } of open.splice(0)) await app.close()
})

/** The files surface over a real database and a local directory. */
async function openSurface(database: Database, folder: string, storageBytesMax = 1024 ** 3) {
  const store = await openObjectStore({ driver: 'directory', path: folder })
  const files = openFiles(database.db, fileTables(''))
  const options = { files, store, clock: systemClock, storageBytesMax, onChange: () => {} }
  const surface = await openV1App(database, [filesPlugin(options)])
  open.push(surface)
  const upload = (content: Buffer | string, purpose = 'user_data') =>
    surface.call('/files', { method: 'POST', body: form(content, purpose) })
  return { ...surface, files, store, upload }
}

function form(
  content: Buffer | string,
  purpose: string,
  order: readonly string[] = ['purpose', 'file'],
) {
  const body = new FormData()
  const bytes = typeof content === 'string' ? content : Uint8Array.from(content)
  for (const field of order) {
    if (field === 'file') body.set('file', new Blob([bytes]), 'my file.jsonl')
    else body.set('purpose', purpose)
  }
  return body
}

async function storedKeys(store: ObjectStore): Promise<string[]> {
  const keys: string[] = []
  for await (const { key } of store.list('')) keys.push(key)
  return keys
}

describe('a file', () => {
  it('is returned as it was sent, wherever the form data has its purpose', async ({
    database,
    folder,
  }) => {
    const { call } = await openSurface(database, folder)
    for (const order of [
      ['purpose', 'file'],
      ['file', 'purpose'],
    ]) {
      const answer = await call('/files', {
        method: 'POST',
        body: form(SEARCH_LINES, 'search', order),
      })
      const file = (await answer.json()) as { id: string }
      expect(file).toMatchObject({
        object: 'file',
        bytes: 26,
        filename: 'my file.jsonl',
        purpose: 'search',
        status: 'processed',
      })
      expect(await (await call(`/files/${file.id}`)).json()).toEqual(file)
      const content = await call(`/files/${file.id}/content`)
      expect(await content.text()).toBe(SEARCH_LINES)
      expect(content.headers.get('content-disposition')).toBe(
        'attachment; filename="my file.jsonl"; filename*=UTF-8\'\'my%20file.jsonl',
      )
    }
  })

  it('of 20 MB streams through unchanged, and a client can request a part of it', async ({
    database,
    folder,
  }) => {
    const { upload, call } = await openSurface(database, folder)
    const bytes = randomBytes(20 * 1024 * 1024)
    const { id } = (await (await upload(bytes)).json()) as { id: string }
    const back = Buffer.from(await (await call(`/files/${id}/content`)).arrayBuffer())
    expect(createHash('sha256').update(back).digest('hex')).toBe(
      createHash('sha256').update(bytes).digest('hex'),
    )
    const part = await call(`/files/${id}/content`, { headers: { range: 'bytes=10-19' } })
    expect(part.status).toBe(206)
    expect(Buffer.from(await part.arrayBuffer())).toEqual(bytes.subarray(10, 20))
    for (const [tag, status] of [
      [part.headers.get('etag') ?? '', 206],
      ['"of another download"', 200],
    ] as const) {
      const headers = { range: 'bytes=10-19', 'if-range': tag }
      const resumed = await call(`/files/${id}/content`, { headers })
      expect(resumed.status).toBe(status)
      await resumed.arrayBuffer()
    }
  })

  it('is invisible to another organization on every route', async ({ database, folder }) => {
    const { upload, call, newKey } = await openSurface(database, folder)
    const other = await newKey('org-two')
    const { id } = (await (await upload('x')).json()) as { id: string }
    for (const [path, method] of [
      [`/files/${id}`, 'GET'],
      [`/files/${id}/content`, 'GET'],
      [`/files/${id}`, 'DELETE'],
    ] as const) {
      const answer = await call(path, { method }, other)
      expect(answer.status).toBe(404)
      expect(await answer.json()).toMatchObject({
        error: { message: `No such File object: ${id}`, param: 'id' },
      })
    }
    expect(await (await call('/files', {}, other)).json()).toMatchObject({
      data: [],
      has_more: false,
    })
  })

  it('is gone with its bytes once it is deleted', async ({ database, folder }) => {
    const { upload, call, store, files } = await openSurface(database, folder)
    const { id } = (await (await upload('12345')).json()) as { id: string }
    expect(await files.usedBytes('org-one')).toBe(5)
    expect(await (await call(`/files/${id}`, { method: 'DELETE' })).json()).toEqual({
      id,
      object: 'file',
      deleted: true,
    })
    expect((await call(`/files/${id}`, { method: 'DELETE' })).status).toBe(404)
    expect(await storedKeys(store)).toEqual([])
    expect(await files.usedBytes('org-one')).toBe(0)
  })
})

describe('the list of files', () => {
  it('pages through all of them once, in both orders', async ({ database, folder }) => {
    const { upload, call } = await openSurface(database, folder)
    const ids: string[] = []
    for (let i = 0; i < 5; i++)
      ids.push(((await (await upload(`${i}`)).json()) as { id: string }).id)
    for (const [order, expected] of [
      ['asc', ids],
      ['desc', [...ids].reverse()],
    ] as const) {
      const seen: string[] = []
      for (let after = ''; ; ) {
        const page = (await (await call(`/files?limit=2&order=${order}${after}`)).json()) as {
          data: { id: string }[]
          last_id: string
          has_more: boolean
        }
        seen.push(...page.data.map(({ id }) => id))
        if (!page.has_more) break
        after = `&after=${page.last_id}`
      }
      expect(seen).toEqual(expected)
    }
  })

  it.for([
    ['limit=0', 'limit'],
    ['limit=x', 'limit'],
    ['order=up', 'order'],
    ['purpose=foo', 'purpose'],
  ])('refuses %s, naming the parameter', async ([query, param], { database, folder }) => {
    const { call } = await openSurface(database, folder)
    const answer = await call(`/files?${query}`)
    expect(answer.status).toBe(400)
    expect(await answer.json()).toMatchObject({ error: { param } })
  })
})

it('refuses a page after a file that does not exist', async ({ database, folder }) => {
  const { call } = await openSurface(database, folder)
  const answer = await call('/files?after=file-nope')
  expect([answer.status, await answer.json()]).toMatchObject([404, { error: { param: 'after' } }])
})

describe('an upload', () => {
  it.for<[string, () => FormData, string]>([
    ['without a file', () => form('x', 'user_data', ['purpose']), 'file'],
    ['without a purpose', () => form('x', '', ['file']), 'purpose'],
    ['for an unknown purpose', () => form('x', 'homework'), 'purpose'],
    ['whose third line is not JSON', () => form(`${SEARCH_LINES}oops\n`, 'search'), 'file'],
    ['that is empty where lines are wanted', () => form('', 'batch'), 'file'],
    [
      'with a field of its own',
      () => {
        const body = form('x', 'user_data')
        body.set('colour', 'red')
        return body
      },
      'colour',
    ],
    [
      'with two purposes',
      () => {
        const body = form('x', 'user_data')
        body.append('purpose', 'vision')
        return body
      },
      'purpose',
    ],
    [
      'of two files',
      () => {
        const body = form('x', 'user_data')
        body.append('file', new Blob(['y']), 'y')
        return body
      },
      'file',
    ],
  ])(
    '%s is refused, naming the field, and leaves nothing',
    async ([, body, param], { database, folder }) => {
      const { call, store, files } = await openSurface(database, folder)
      const answer = await call('/files', { method: 'POST', body: body() })
      expect([answer.status, await answer.json()]).toMatchObject([
        400,
        { error: { param, type: 'invalid_request_error' } },
      ])
      expect(await storedKeys(store)).toEqual([])
      expect(await files.usedBytes('org-one')).toBe(0)
    },
  )

  it('without a form is refused as a wrong content type', async ({ database, folder }) => {
    const { call } = await openSurface(database, folder)
    const answer = await call('/files', {
      method: 'POST',
      body: '{}',
      headers: { 'content-type': 'application/json' },
    })
    expect(answer.status).toBe(415)
  })

  it('that breaks off stores nothing', async ({ database, folder }) => {
    const { base, key, store } = await openSurface(database, folder)
    const boundary = 'b0undary'
    async function* halfAForm() {
      yield `--${boundary}\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n`
      for (let i = 0; i < 20; i++) yield 'x'.repeat(65_536)
      throw new Error('the client goes away')
    }
    const sending = fetch(`${base}/v1/files`, {
      method: 'POST',
      body: Readable.toWeb(Readable.from(halfAForm())) as ReadableStream,
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': `multipart/form-data; boundary=${boundary}`,
      },
      duplex: 'half',
    })
    await expect(sending).rejects.toThrow()
    await expect.poll(() => storedKeys(store)).toEqual([])
  })

  it('never exceeds the allowance of its organization, however many end at once', async ({
    database,
    folder,
  }) => {
    const { upload, files, call, store } = await openSurface(database, folder, 10_500)
    const answers = await Promise.all(Array.from({ length: 50 }, () => upload(Buffer.alloc(1000))))
    const statuses = answers.map(({ status }) => status)
    expect(statuses.filter((status) => status === 200)).toHaveLength(10)
    expect(new Set(statuses)).toEqual(new Set([200, 400]))
    const refused = answers.find(({ status }) => status === 400)
    expect(await refused?.json()).toMatchObject({
      error: { code: 'storage_limit_exceeded', param: 'file' },
    })
    expect(await files.usedBytes('org-one')).toBe(10_000)
    expect(await storedKeys(store)).toHaveLength(10)
    expect((await upload(Buffer.alloc(501))).status).toBe(400)
    expect((await upload(Buffer.alloc(500))).status).toBe(200)
    expect((await call('/files')).status).toBe(200)
  })
})

it('sweeps objects that belong to no file once they are old', async ({ database, folder }) => {
  const { upload, store, files } = await openSurface(database, folder)
  await upload('kept')
  await store.put('files/file-orphan', Buffer.from('x'))
  const later = { now: () => Date.now() + 7 * 3600 * 1000, monotonic: () => 0 }
  expect(await sweepOrphans({ files, store, clock: systemClock })).toBe(0)
  expect(await sweepOrphans({ files, store, clock: later })).toBe(1)
  expect(await storedKeys(store)).toHaveLength(1)
})
