import { randomBytes } from 'node:crypto'
import dns, { type LookupOptions } from 'node:dns'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'

import S3rver from 's3rver'
import { expect, it, onTestFinished, vi } from 'vitest'

import { trustAuthorities } from '#launcher/authorities.ts'
import { readObject } from '#shared/storage/object-store.ts'
import { openS3Store } from '#shared/storage/s3-store.ts'
import { makeCertificates } from '#test/support/certificates.ts'

const BUCKET = 'millrace'
const PART_BYTES = 9 * 1024 * 1024

/** A server of virtual hosts below `s3.localhost`, with a certificate of its own authority. */
async function startServer() {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-s3-hosts-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  const { caFile, certFile, keyFile } = makeCertificates(folder, 'DNS:*.s3.localhost')
  const server = new S3rver({
    port: 0,
    address: '127.0.0.1',
    silent: true,
    directory: folder,
    serviceEndpoint: 'localhost',
    configureBuckets: [{ name: BUCKET, configs: [] }],
    cert: await readFile(certFile),
    key: await readFile(keyFile),
  })
  const { port } = await server.run()
  onTestFinished(() => server.close())
  return { caFile, endpoint: `https://s3.localhost:${port}` }
}

/** Resolves names below `localhost`, which RFC 6761 reserves and not every resolver knows. */
function resolveLocalNames(): readonly string[] {
  const asked: string[] = []
  const spy = vi.spyOn(dns, 'lookup')
  onTestFinished(() => spy.mockRestore())
  spy.mockImplementation(((name: string, options: LookupOptions, done: Answer) => {
    asked.push(name)
    if (options.all === true) done(null, [{ address: '127.0.0.1', family: 4 }])
    else done(null, '127.0.0.1', 4)
  }) as never)
  return asked
}

type Answer = (error: null, found: unknown, family?: number) => void

it('reaches a bucket by its host name, over TLS with an authority of the operator', async () => {
  const trusted = getCACertificates('default')
  onTestFinished(() => setDefaultCACertificates(trusted))
  const { caFile, endpoint } = await startServer()
  const asked = resolveLocalNames()
  const open = (bucket = BUCKET) => {
    const store = openS3Store({
      driver: 's3',
      endpoint,
      bucket,
      region: 'us-east-1',
      accessKeyId: 'S3RVER',
      secretAccessKey: 'S3RVER',
      isPathStyle: false,
    })
    onTestFinished(() => store.close())
    return store
  }
  await expect(open().check()).rejects.toThrow(/certificate.*: check S3_ENDPOINT/)
  trustAuthorities(caFile)
  const store = open()
  await store.check()
  await store.put('hosts/a', Buffer.from('hello'))
  expect((await readObject(store, 'hosts/a', 100)).toString()).toBe('hello')
  const large = randomBytes(PART_BYTES)
  await store.put('hosts/parts', Readable.from([large]))
  const { body } = await store.get('hosts/parts')
  expect((await buffer(body)).equals(large)).toBe(true)
  await store.delete('hosts/a')
  await expect(readObject(store, 'hosts/a', 100)).rejects.toMatchObject({ kind: 'notFound' })
  expect(new Set(asked)).toEqual(new Set([`${BUCKET}.s3.localhost`]))
  await expect(open('absent').check()).rejects.toThrow(/S3_BUCKET/)
})
