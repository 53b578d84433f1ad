import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { type AddressInfo, connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer, getCACertificates, setDefaultCACertificates } from 'node:tls'

import { expect, it, onTestFinished } from 'vitest'

import { trustAuthorities } from '#launcher/authorities.ts'
import { readObject } from '#shared/storage/object-store.ts'
import { openS3Store } from '#shared/storage/s3-store.ts'
import { makeCertificates } from '#test/support/certificates.ts'
import { startS3 } from '#test/support/s3.ts'

it('reaches storage whose authority is in MILLRACE_CA_FILE, and no other', async () => {
  const trusted = getCACertificates('default')
  onTestFinished(() => setDefaultCACertificates(trusted))
  const folder = await mkdtemp(join(tmpdir(), 'millrace-s3-authority-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  const s3 = await startS3()
  onTestFinished(() => s3.stop())
  const { caFile, certFile, keyFile } = makeCertificates(folder)
  const { hostname, port } = new URL(s3.config.endpoint)
  const [cert, key] = await Promise.all([readFile(certFile), readFile(keyFile)])
  const front = createServer({ cert, key }, (socket) => {
    const back = connect(Number(port), hostname)
    for (const end of [socket, back]) end.on('error', () => {})
    socket.pipe(back).pipe(socket)
  })
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void front.close())
  const endpoint = `https://127.0.0.1:${(front.address() as AddressInfo).port}`
  const open = () => {
    const store = openS3Store({ ...s3.config, endpoint })
    onTestFinished(() => store.close())
    return store
  }
  await expect(open().check()).rejects.toThrow(/certificate.*: check S3_ENDPOINT/)
  trustAuthorities(caFile)
  const store = open()
  await store.check()
  await store.put('authority/a', Buffer.from('hello'))
  expect((await readObject(store, 'authority/a', 100)).toString()).toBe('hello')
})
