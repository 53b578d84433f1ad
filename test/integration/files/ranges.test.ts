import { randomBytes, randomUUID } from 'node:crypto'

import { expect } from 'vitest'

import { openFiles } from '#api/files/file-store.ts'
import { filesPlugin } from '#api/files/routes.ts'
import { mediaPlugin } from '#api/media/routes.ts'
import { systemClock } from '#shared/clock.ts'
import type { StorageConfig } from '#shared/config/infra.ts'
import { fileTables } from '#shared/db/schema/files.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { createUrlSigner } from '#shared/storage/signed-url.ts'
import { startS3 } from '#test/support/s3.ts'
import { it } from '#test/support/services.ts'
import { openV1App } from '#test/support/v1-app.ts'

const BYTES = randomBytes(1_000_000)
const TYPES = { file: 'application/octet-stream', image: 'image/png' } as const

interface Kind {
  readonly title: string
  open(folder: string): Promise<{ config: StorageConfig; stop(): Promise<void> }>
}

const KINDS: readonly Kind[] = [
  {
    title: 'a directory',
    async open(path) {
      return { config: { driver: 'directory', path }, stop: async () => {} }
    },
  },
  { title: 'an S3 server', open: startS3 },
]

// The headers of a question, and the status, first byte and length of what is sent.
const QUESTIONS: readonly [Record<string, string>, number, number, number][] = [
  [{}, 200, 0, 1_000_000],
  [{ range: 'bytes=10-19' }, 206, 10, 10],
  [{ range: 'bytes=999990-' }, 206, 999_990, 10],
  [{ range: 'bytes=-5' }, 206, 999_995, 5],
  [{ range: 'bytes=999999-2000000' }, 206, 999_999, 1],
  [{ range: 'bytes=0-4,10-14' }, 200, 0, 1_000_000],
  [{ range: 'lines=0-4' }, 200, 0, 1_000_000],
  [{ range: 'bytes=0-4', 'if-range': '<its own>' }, 206, 0, 5],
  [{ range: 'bytes=0-4', 'if-range': '"another"' }, 200, 0, 1_000_000],
  [{ range: 'bytes=0-4', 'if-range': 'Sun, 22 Nov 2026 12:00:00 GMT' }, 200, 0, 1_000_000],
  [{ range: 'bytes=0-4', 'if-none-match': '"another"' }, 206, 0, 5],
]

it.for(KINDS)(
  'files and images in $title are sent in whole, in part or not again',
  async (kind, { database, folder, onTestFinished }) => {
    const { config, stop } = await kind.open(folder)
    const store = await openObjectStore(config)
    const files = openFiles(database.db, fileTables(''))
    const signer = createUrlSigner('a secret')
    const services = { store, clock: systemClock }
    const { app, call } = await openV1App(database, [
      filesPlugin({ ...services, files, storageBytesMax: 2 ** 30, onChange: () => {} }),
      mediaPlugin({ ...services, signer }),
    ])
    onTestFinished(async () => {
      await app.close()
      store.close()
      await stop()
    })
    const form = new FormData()
    form.set('purpose', 'user_data')
    form.set('file', new Blob([BYTES]), 'a.bin')
    const uploaded = await call('/files', { method: 'POST', body: form })
    const { id } = (await uploaded.json()) as { id: string }
    const key = `media/${randomUUID()}/0.png`
    await store.put(key, BYTES)
    const image = signer.sign(`/v1/${key}`, Date.now() + 60_000).replace('/v1', '')

    for (const [what, path] of Object.entries({ file: `/files/${id}/content`, image })) {
      const head = await call(path, { method: 'HEAD', headers: { range: 'bytes=0-4' } })
      const etag = head.headers.get('etag') ?? ''
      const said = ['content-length', 'content-type', 'accept-ranges'].map((name) =>
        head.headers.get(name),
      )
      expect([head.status, ...said]).toEqual([
        200,
        '1000000',
        TYPES[what as keyof typeof TYPES],
        'bytes',
      ])
      expect(etag).toMatch(/^"[0-9a-f]{64}"$/)
      for (const [asked, status, start, length] of QUESTIONS) {
        const headers = JSON.parse(
          JSON.stringify(asked).replace('"<its own>"', JSON.stringify(etag)),
        )
        const answer = await call(path, { headers })
        const bytes = Buffer.from(await answer.arrayBuffer())
        const title = `${what} ${JSON.stringify(asked)}`
        expect([answer.status, answer.headers.get('etag')], title).toEqual([status, etag])
        expect(bytes.equals(BYTES.subarray(start, start + length)), title).toBe(true)
        const part = status === 206 ? `bytes ${start}-${start + length - 1}/1000000` : null
        expect(answer.headers.get('content-range'), title).toBe(part)
      }
      for (const known of [etag, `W/${etag}`, `"a", ${etag}`, '*']) {
        for (const method of ['GET', 'HEAD']) {
          const headers = { 'if-none-match': known, range: 'bytes=0-4' }
          const answer = await call(path, { method, headers })
          expect([answer.status, answer.headers.get('etag')]).toEqual([304, etag])
          expect(await answer.text()).toBe('')
        }
      }
      const none = await call(path, { headers: { range: 'bytes=1000000-' } })
      expect([none.status, none.headers.get('content-range')]).toEqual([416, 'bytes */1000000'])
      // Only successful answers for images may be cached.
      const kept = what === 'file' ? 'private, no-cache' : null
      expect(none.headers.get('cache-control')).toBe(kept)
      expect(await none.json()).toMatchObject({ error: { type: 'invalid_request_error' } })
    }
    await store.delete(key)
    for (const headers of [{}, { range: 'bytes=0-4' }]) {
      const gone = await call(image, { headers })
      expect([gone.status, gone.headers.get('cache-control')]).toEqual([404, null])
      expect(await gone.json()).toMatchObject({ error: { code: 'media_not_found' } })
    }
    expect((await call(image, { method: 'HEAD' })).status).toBe(404)
  },
)
