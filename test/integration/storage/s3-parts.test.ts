import { createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { PassThrough, pipeline, Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'

import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'

import { type ObjectStore, STAGED } from '#shared/storage/object-store.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { startS3 } from '#test/support/s3.ts'

const MIB = 1024 * 1024

let s3: Awaited<ReturnType<typeof startS3>>
let between: Server
let store: ObjectStore
/** The numbers of the parts that are refused on their way. */
let refused: readonly number[] = []
let cannotList = false
let seen: string[] = []
/**
 * Uploads of which a part was sent, by their ids, with their keys: the server itself lists none and
 * ends none.
 */
const unfinished = new Map<string, string>()

beforeAll(async () => {
  s3 = await startS3()
  const target = new URL(s3.config.endpoint)
  between = createServer((incoming, answer) => {
    const { pathname, searchParams: query } = new URL(incoming.url ?? '', target)
    const part = Number(query.get('partNumber'))
    seen.push(`${incoming.method} ${part === 0 ? [...query.keys()].join() : `part ${part}`}`)
    if (refused.includes(part)) {
      incoming.resume().once('end', () => answer.writeHead(403).end())
      return
    }
    const { method, url, headers } = incoming
    const uploadId = query.get('uploadId') ?? ''
    if (method === 'GET' && query.has('uploads')) {
      if (cannotList) {
        answer.writeHead(501).end('<Error><Code>NotImplemented</Code></Error>')
        return
      }
      const list = uploadList(query.get('prefix') ?? '')
      answer.writeHead(200, { 'content-type': 'application/xml' }).end(list)
      return
    }
    if (method === 'DELETE' && uploadId !== '') {
      if (unfinished.delete(uploadId)) answer.writeHead(204).end()
      else answer.writeHead(404).end('<Error><Code>NoSuchUpload</Code></Error>')
      return
    }
    if (method === 'PUT') unfinished.set(uploadId, pathname.split('/').slice(2).join('/'))
    else unfinished.delete(uploadId)
    const { hostname, port } = target
    const options = { hostname, port, method, path: url, headers, agent: false }
    const forwarded = request(options, (response) => {
      answer.writeHead(response.statusCode ?? 502, response.headers)
      response.pipe(answer)
    })
    forwarded.on('error', () => answer.destroy())
    // A connection that breaks on this side also ends on the other.
    pipeline(incoming, forwarded, () => {})
  })
  await new Promise<void>((resolve) => between.listen(0, '127.0.0.1', resolve))
  const { port } = between.address() as AddressInfo
  store = await openObjectStore({ ...s3.config, endpoint: `http://127.0.0.1:${port}` })
})

function uploadList(prefix: string): string {
  const ours = [...unfinished].filter(([, key]) => key.startsWith(prefix))
  const uploads = ours.map(
    ([uploadId, key]) =>
      `<Upload><Key>${key}</Key><UploadId>${uploadId}</UploadId><Initiated>2026-01-02T03:04:05.000Z</Initiated></Upload>`,
  )
  return `<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>${uploads.join('')}</ListMultipartUploadsResult>`
}

beforeEach(() => {
  unfinished.clear()
  refused = []
  cannotList = false
  seen = []
})

afterAll(async () => {
  store.close()
  between.closeAllConnections()
  between.close()
  await s3.stop()
})

function filled(mib: number): Readable {
  return Readable.from(
    (function* () {
      for (let piece = 0; piece < mib; piece += 1) yield Buffer.alloc(MIB, piece)
    })(),
  )
}

it('sends a long stream in parts, each byte once and in its place', async () => {
  expect(await store.put('parts', filled(23))).toEqual({ bytes: 23 * MIB })
  const parts = seen.filter((line) => line.startsWith('PUT part')).sort()
  expect(parts).toEqual([1, 2, 3, 4, 5].map((part) => `PUT part ${part}`))
  const bytes = await buffer((await store.get('parts')).body)
  for (let piece = 0; piece < 23; piece += 1) {
    const wanted = Buffer.alloc(MIB, piece)
    expect(bytes.subarray(piece * MIB, (piece + 1) * MIB).equals(wanted)).toBe(true)
  }
})

it('sends a body that fits into one part at once', async () => {
  await store.put('whole', filled(4))
  expect(seen).toEqual(['PUT x-id'])
})

it('fails with the first part that does, reads no further and aborts the others', async () => {
  refused = [2]
  let asked = 0
  const source = Readable.from(
    (function* () {
      for (; asked < 500; asked += 1) yield Buffer.alloc(MIB)
    })(),
  )
  await expect(store.put('refused', source)).rejects.toMatchObject({
    kind: 'overloaded',
    cause: { $metadata: { httpStatusCode: 403 } },
  })
  expect(asked).toBeLessThan(100)
  expect(source.destroyed).toBe(true)
  expect(seen.filter((line) => line.startsWith('DELETE'))).toHaveLength(1)
  expect(await store.head('refused')).toBeUndefined()
})

it('finds an upload that a killed process has left, and aborts it', async () => {
  // The server sees an abandoned upload.
  const source = new PassThrough()
  const upload = store.put('files/left', source)
  source.write(Buffer.alloc(11 * MIB))
  await expect.poll(() => unfinished.size).toBe(1)
  const [uploadId] = unfinished.keys()
  const [left, ...others] = await Array.fromAsync(store.list(STAGED))
  expect(others).toEqual([])
  expect(left).toMatchObject({ modifiedAtMs: Date.parse('2026-01-02T03:04:05Z') })
  await store.delete(left?.key ?? '')
  expect(unfinished.has(uploadId ?? '')).toBe(false)
  expect(seen.filter((line) => line.startsWith('DELETE'))).toHaveLength(1)
  // An upload that another process has aborted meanwhile is not an error.
  await store.delete(left?.key ?? '')
  const end = expect(upload).rejects.toThrow('the end of this test')
  source.destroy(new Error('the end of this test'))
  await end
})

it('does not touch the uploads of others in the same bucket', async () => {
  unfinished.set('theirs', 'backups/database.tar')
  unfinished.set('ours', 'media/img-1/0.png')
  const found = await Array.fromAsync(store.list(STAGED))
  expect(found).toHaveLength(1)
  await store.delete(found[0]?.key ?? '')
  expect([...unfinished.keys()]).toEqual(['theirs'])
})

it('finds no uploads if the server cannot list them', async () => {
  cannotList = true
  unfinished.set('ours', 'media/img-1/0.png')
  expect(await Array.fromAsync(store.list(STAGED))).toEqual([])
})
