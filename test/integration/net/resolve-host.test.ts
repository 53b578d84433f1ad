import { pbkdf2 } from 'node:crypto'
import { createSocket, type Socket } from 'node:dgram'
import type { LookupAddress } from 'node:dns'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { createGuardedFetch } from '#shared/net/guarded-fetch.ts'
import { createHostResolver } from '#shared/net/resolve-host.ts'

const HANGING = 64
const TYPE_A = 1

/**
 * A name server: `silent` names are answered when they are released, `lost` ones never, and `known`
 * ones have an address.
 */
let server: Socket
let folder: string
let hostsFile: string
const asked: string[] = []
let held: (() => void)[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-hosts-'))
  hostsFile = join(folder, 'hosts')
  await writeFile(hostsFile, '# local\n10.1.2.3 Listed other # more\n::1 listed\nnonsense x\n')
  server = createSocket('udp4')
  server.on('message', (query, { port, address }) => {
    const name = nameOf(query)
    asked.push(name)
    const answer = (): void => server.send(answerTo(query, name), port, address)
    if (name.startsWith('silent')) held.push(answer)
    else if (!name.startsWith('lost')) answer()
  })
  server.bind(0, '127.0.0.1')
  await once(server, 'listening')
})
afterAll(async () => {
  server.close()
  await rm(folder, { recursive: true, force: true })
})

function release(): void {
  for (const answer of held) answer()
  held = []
}

const open = (options: Parameters<typeof createHostResolver>[0] = {}) =>
  createHostResolver({
    servers: [`127.0.0.1:${server.address().port}`],
    hostsFile,
    tryMs: 20_000,
    ...options,
  })

describe('names that clients choose', () => {
  it('occupy no thread while a name server is silent', async () => {
    const resolve = open()
    const left = new Set<string>()
    const hanging = Array.from({ length: HANGING }, async (_, index) => {
      const name = `silent-${index}.test`
      left.add(name)
      await resolve(name).catch(() => undefined)
      left.delete(name)
    })
    await expect.poll(() => held.length).toBe(2 * HANGING)
    // Each of these takes a thread of the pool, and more of them than the pool has.
    await Promise.all(Array.from({ length: 8 }, () => promisify(pbkdf2)('a', 'b', 1, 8, 'sha256')))
    await readFile(hostsFile)
    expect(await resolve('known.test')).toEqual([{ address: '192.0.2.7', family: 4 }])
    expect(left.size).toBe(HANGING)
    release()
    await Promise.all(hanging)
  })

  it('end in an error that the host is not reached', async () => {
    const fetch = createGuardedFetch({
      timeoutMs: 10_000,
      allowsPrivateAddresses: false,
      resolve: open({ tryMs: 200 }),
    })
    await expect(fetch({ url: 'http://lost.test/' })).rejects.toMatchObject({
      reason: 'network',
      cause: { code: 'ETIMEOUT' },
    })
    await expect(fetch({ url: 'http://missing.test/' })).rejects.toMatchObject({
      reason: 'network',
      cause: { code: 'ENOTFOUND' },
    })
  })

  it('are read from the hosts file first, and loopback names only from there', async () => {
    const resolve = open()
    const before = asked.length
    expect(await resolve('LISTED.')).toEqual([
      { address: '10.1.2.3', family: 4 },
      { address: '::1', family: 6 },
    ])
    expect(await resolve('other')).toEqual([{ address: '10.1.2.3', family: 4 }])
    for (const name of ['localhost', 'a.localhost']) {
      expect((await resolve(name)).map(({ address }) => address)).toEqual(['127.0.0.1', '::1'])
    }
    expect(asked).toHaveLength(before)
  })

  it('are refused beyond a number of lookups at the same time', async () => {
    const resolve = open({ openMax: 2 })
    const waiting = [resolve('silent-a.test'), resolve('silent-b.test')]
    await expect(resolve('known.test')).rejects.toMatchObject({ code: 'EBUSY' })
    await expect.poll(() => held.length).toBe(4)
    release()
    await Promise.allSettled(waiting)
    expect(await resolve('known.test')).toHaveLength(1)
  })

  it('are looked up by the system, one after another, if only it can know them', async () => {
    const unused = createSocket('udp4')
    unused.bind(0, '127.0.0.1')
    await once(unused, 'listening')
    const { port } = unused.address()
    unused.close()
    const names: string[] = []
    const answer = Promise.withResolvers<LookupAddress[]>()
    const bySystem = (name: string) => {
      names.push(name)
      return answer.promise
    }
    const withoutServer = open({ bySystem, servers: [`127.0.0.1:${port}`] })
    const waiting = [withoutServer('known.test'), withoutServer('second.test')]
    const local = open({ bySystem, asksSystem: true })('missing.test')
    await expect.poll(() => names).toHaveLength(2)
    expect(names).toContain('missing.test')
    answer.resolve([{ address: '10.0.0.1', family: 4 }])
    expect(await Promise.all([...waiting, local])).toHaveLength(3)
    expect(names).toHaveLength(3)
    await expect(open({ bySystem })('missing.test')).rejects.toMatchObject({ code: 'ENOTFOUND' })
  })
})

/** The name in the question of a DNS message (RFC 1035, 4.1.2). */
function nameOf(query: Buffer): string {
  const labels: string[] = []
  let at = 12
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length))
    at += length + 1
  }
  return labels.join('.')
}

/** One A record for known names, no record of another type, and NXDOMAIN for the rest. */
function answerTo(query: Buffer, name: string): Buffer {
  const end = 12 + name.length + 2 + 4
  const isKnown = name.startsWith('known')
  const hasRecord = isKnown && query.readUInt16BE(end - 4) === TYPE_A
  const answer = Buffer.from(query.subarray(0, end))
  answer.writeUInt16BE(isKnown ? 0x8180 : 0x8183, 2)
  answer.writeUInt16BE(hasRecord ? 1 : 0, 6)
  answer.writeUInt32BE(0, 8)
  const record = [0xc0, 12, 0, TYPE_A, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]
  return hasRecord ? Buffer.concat([answer, Buffer.from(record)]) : answer
}
