import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'

import { expect, it, onTestFinished } from 'vitest'

import type { ObjectStore } from '#shared/storage/object-store.ts'
import { openS3Store } from '#shared/storage/s3-store.ts'

const SILENCE_MS = 400
const MIB = 1024 * 1024

/** A store on a server with scripted answers. */
async function storeOn(answer: (response: ServerResponse) => unknown, silenceMs = SILENCE_MS) {
  const server = createServer((request, response) => {
    request.resume()
    answer(response)
  })
  let asked = 0
  server.on('request', () => {
    asked += 1
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const store = openS3Store(
    {
      driver: 's3',
      bucket: 'bucket',
      region: 'us-east-1',
      isPathStyle: true,
      endpoint: `http://127.0.0.1:${port}`,
      accessKeyId: 'a',
      secretAccessKey: 'b',
    },
    silenceMs,
  )
  onTestFinished(() => {
    store.close()
    server.closeAllConnections()
    server.close()
  })
  return { store, asked: () => asked }
}

const CALLS: readonly [string, (store: ObjectStore) => Promise<unknown>][] = [
  ['reads', (store) => store.get('files/a')],
  ['asks for the size', (store) => store.head('files/a')],
  ['deletes', (store) => store.delete('files/a')],
  ['lists', (store) => Array.fromAsync(store.list('files/'))],
  ['looks for leftovers', (store) => Array.fromAsync(store.list('.staging/'))],
  ['stores what is short', (store) => store.put('files/a', Readable.from([Buffer.alloc(9)]))],
  ['stores what is long', (store) => store.put('files/a', Readable.from(megabytes(12)))],
]

function* megabytes(count: number) {
  for (let piece = 0; piece < count; piece += 1) yield Buffer.alloc(MIB)
}

it.each(CALLS)('a server that never answers is given up once, by who %s', async (_what, call) => {
  const { store, asked } = await storeOn(() => {})
  await expect(call(store)).rejects.toMatchObject({
    kind: 'overloaded',
    code: 'service_unavailable',
  })
  expect(asked()).toBe(1)
})

it.each([
  [503, 'ServiceUnavailable', 'service_unavailable', 3],
  [500, 'InternalError', 'service_unavailable', 3],
  [507, 'XMinioStorageFull', 'storage_full', 1],
  [403, 'SignatureDoesNotMatch', 'service_unavailable', 1],
  [403, 'AccessDenied', 'service_unavailable', 1],
])('an answer of %d %s is told as trouble that may end', async (status, name, code, times) => {
  const body = `<Error><Code>${name}</Code><Message>no</Message></Error>`
  const { store, asked } = await storeOn((response) => response.writeHead(status).end(body))
  for (const [, call] of CALLS) {
    await expect(call(store)).rejects.toMatchObject({ kind: 'overloaded', code })
  }
  expect(asked()).toBe(CALLS.length * times)
})

it('does not take a missing bucket for a missing object', async () => {
  const body = '<Error><Code>NoSuchBucket</Code><Message>no</Message></Error>'
  const { store } = await storeOn((response) => response.writeHead(404).end(body))
  await expect(store.get('files/a')).rejects.toMatchObject({ kind: 'overloaded' })
  await expect(store.put('files/a', Buffer.from('a'))).rejects.toMatchObject({ kind: 'overloaded' })
})

it('a long answer may take long as long as data arrives', async () => {
  // The pauses are far shorter than the silence, also on a busy machine, and longer together.
  const { store } = await storeOn(async (response) => {
    response.writeHead(200, { 'content-length': 10 * MIB })
    for (let piece = 0; piece < 10; piece += 1) {
      await sleep(200)
      response.write(Buffer.alloc(MIB, piece))
    }
    response.end()
  }, 1500)
  const { body, totalBytes } = await store.get('files/a')
  expect([totalBytes, (await buffer(body)).length]).toEqual([10 * MIB, 10 * MIB])
})

it('who reads slowly gets everything', async () => {
  const { store } = await storeOn((response) => {
    response.writeHead(200, { 'content-length': 10 * MIB }).end(Buffer.alloc(10 * MIB))
  })
  const { body } = await store.get('files/a')
  let bytes = 0
  let rests = 0
  for await (const chunk of body) {
    bytes += (chunk as Buffer).length
    if (bytes > MIB * (rests + 1) * 4) {
      rests += 1
      await sleep(SILENCE_MS * 3)
    }
  }
  expect([bytes, rests]).toEqual([10 * MIB, 2])
})

it('an answer that stops coming ends', async () => {
  const { store } = await storeOn((response) => {
    response.writeHead(200, { 'content-length': 10 * MIB }).write(Buffer.alloc(MIB))
  })
  const { body } = await store.get('files/a')
  await expect(buffer(body)).rejects.toMatchObject({ kind: 'overloaded' })
})

it.each([
  [true, 's3.invalid'],
  [false, 'bucket.s3.invalid'],
])('names the bucket in the path or in the host: %s', async (isPathStyle, host) => {
  const store = openS3Store({
    driver: 's3',
    bucket: 'bucket',
    region: 'us-east-1',
    isPathStyle,
    endpoint: 'http://s3.invalid',
    accessKeyId: 'a',
    secretAccessKey: 'b',
  })
  onTestFinished(() => store.close())
  const thrown = await store.check().catch((error: unknown) => error)
  expect(`${thrown} ${(thrown as Error).cause}`).toContain(` ${host}`)
})
