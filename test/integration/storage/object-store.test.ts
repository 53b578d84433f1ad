import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import type { StorageConfig } from '#shared/config/infra.ts'
import { type ObjectStore, readObject } from '#shared/storage/object-store.ts'
import { openObjectStore } from '#shared/storage/open-store.ts'
import { startS3 } from '#test/support/s3.ts'

const KINDS: readonly (readonly [
  string,
  () => Promise<{ config: StorageConfig; stop(): Promise<void> }>,
])[] = [
  ['an S3 server', startS3],
  ['a local directory', startDirectory],
]

describe.each(KINDS)('an object store on %s', (_kind, start) => {
  let store: ObjectStore
  let stop: () => Promise<void>
  const prefix = `test-${randomUUID()}`

  beforeAll(async () => {
    const started = await start()
    store = await openObjectStore(started.config)
    stop = started.stop
    await store.check()
  })

  afterAll(async () => {
    store.close()
    await stop()
  })

  it.each([0, 1, 70_000, 5 * 1024 * 1024, 9 * 1024 * 1024, 31 * 1024 * 1024])(
    'gives back a stream of %d bytes unchanged',
    async (size) => {
      const bytes = randomBytes(size)
      const key = `${prefix}/size-${size}`
      expect(await store.put(key, chunked(bytes))).toEqual({ bytes: size })
      const { body, totalBytes } = await store.get(key)
      expect(totalBytes).toBe(size)
      expect(sha256(await buffer(body))).toBe(sha256(bytes))
    },
  )

  it('serves a range and states the size of the whole object', async () => {
    const key = `${prefix}/range`
    await store.put(key, Buffer.from('0123456789'))
    const { body, totalBytes } = await store.get(key, { start: 2, end: 4 })
    expect(totalBytes).toBe(10)
    expect((await buffer(body)).toString()).toBe('234')
  })

  it('shows nothing of an upload that broke off', async () => {
    const key = `${prefix}/broken`
    const upload = store.put(key, breakingAfter(6 * 1024 * 1024))
    await expect(upload).rejects.toThrow('the sender went away')
    expect(await store.head(key)).toBeUndefined()
  })

  it('shows nothing of an upload that was aborted', async () => {
    const key = `${prefix}/aborted`
    const abort = new AbortController()
    const upload = store.put(
      key,
      endless(() => abort.abort()),
      { signal: abort.signal },
    )
    await expect(upload).rejects.toThrow()
    expect(await store.head(key)).toBeUndefined()
  })

  it('answers not found for a key that never was, and for one that was deleted', async () => {
    const key = `${prefix}/deleted`
    await store.put(key, Buffer.from('x'))
    await store.delete(key)
    await store.delete(key)
    await expect(store.get(key)).rejects.toMatchObject({ kind: 'notFound' })
    await expect(store.get(`${prefix}/never`)).rejects.toMatchObject({ kind: 'notFound' })
  })

  it('lists the keys below a prefix, in order', async () => {
    for (const name of ['b', 'a', 'c/d'])
      await store.put(`${prefix}/list/${name}`, Buffer.from(name))
    const keys: string[] = []
    for await (const { key } of store.list(`${prefix}/list/`)) keys.push(key)
    expect(keys).toEqual(['a', 'b', 'c/d'].map((name) => `${prefix}/list/${name}`))
  })

  it('refuses to read an object beyond the wanted size', async () => {
    const key = `${prefix}/large`
    await store.put(key, Buffer.alloc(100))
    expect(await readObject(store, key, 100)).toHaveLength(100)
    await expect(readObject(store, key, 99)).rejects.toThrow('more than 99')
  })

  it.each(['../secret', 'a/../../b', '/etc/passwd', 'a//b', '', 'a b', '.', 'ü'])(
    'refuses the key %j',
    async (key) => {
      await expect((async () => store.get(key))()).rejects.toThrow('is not an object key')
    },
  )
})

async function startDirectory() {
  const path = await mkdtemp(join(tmpdir(), 'millrace-objects-'))
  return {
    config: { driver: 'directory' as const, path },
    stop: () => rm(path, { recursive: true, force: true }),
  }
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

function chunked(bytes: Buffer): Readable {
  const chunks: Buffer[] = []
  for (let start = 0; start < bytes.length; start += 65_536)
    chunks.push(bytes.subarray(start, start + 65_536))
  return Readable.from(chunks)
}

function breakingAfter(size: number): Readable {
  return Readable.from(
    (function* () {
      for (let sent = 0; sent < size; sent += 65_536) yield Buffer.alloc(65_536)
      throw new Error('the sender went away')
    })(),
  )
}

function endless(onSecondMegabyte: () => void): Readable {
  let sent = 0
  return new Readable({
    read() {
      sent += 65_536
      if (sent === 2 * 1024 * 1024) onSecondMegabyte()
      setImmediate(() => this.push(Buffer.alloc(65_536)))
    },
  })
}
