import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'

import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { buildApp } from '#api/server/app.ts'
import { createLogger } from '#shared/logger.ts'
import { serverConfig } from '#test/support/server-config.ts'
import { openSlowReader, openSlowWriter } from '#test/support/slow-client.ts'

const LARGE = 'x'.repeat(64 << 20)
const HEAD = 'HTTP/1.1\r\nhost: localhost\r\n'
const FORM = 'content-type: multipart/form-data; boundary=b\r\n'
const PART = '--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'

/** Whether the source of a download was closed. */
let isClosed = false
let port = 0
const app = await buildApp({
  server: serverConfig(),
  version: 'test',
  publicUrl: 'http://localhost',
  log: createLogger({ level: 'silent' }),
  health: { dependencies: { states: async () => [] }, isDraining: () => false },
  peerLimits: {
    headersMs: 300,
    requestMs: 600,
    checkMs: 50,
    stallMs: 60_000,
    readWindowMs: 300,
    readBytesMin: 65_536,
  },
  surfaces: [
    {
      prefixes: ['/'],
      plugin: async (surface) => {
        surface.addContentTypeParser(['multipart/form-data', '*'], (_request, payload, done) => {
          payload.resume().once('end', () => done(null))
        })
        surface.post('/upload', async () => ({ ok: true }))
        surface.get('/large', async (_request, reply) => reply.type('text/plain').send(LARGE))
        surface.get('/download', async (_request, reply) => {
          const source = Readable.from(endless())
          source.once('close', () => (isClosed = true))
          return reply.type('application/octet-stream').send(source)
        })
        surface.get('/slow-source', async (_request, reply) => reply.send(Readable.from(seldom())))
      },
    },
  ],
})

async function* endless() {
  for (;;) yield Buffer.alloc(65_536)
}

async function* seldom() {
  for (let count = 0; count < 10; count += 1) {
    yield 'a'
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
}

beforeAll(async () => {
  await app.listen({ port: 0, host: '127.0.0.1' })
  port = (app.server.address() as AddressInfo).port
})
afterAll(() => app.close())

describe('a client that sends byte by byte is cut', () => {
  it.each([
    ['in its request line', 'GET /', 'a'],
    ['in its headers', `GET /large ${HEAD}x-slow: `, 'a'],
    [
      'in a JSON body',
      `POST /upload ${HEAD}content-type: application/json\r\ncontent-length: 9999\r\n\r\n"`,
      'a',
    ],
    [
      'in a chunked body',
      `POST /upload ${HEAD}content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n`,
      '1\r\n1\r\n',
    ],
    ['in a file', `POST /upload ${HEAD}${FORM}content-length: 9999\r\n\r\n${PART}`, 'a'],
  ])('%s', async (_where, beginning, nextByte) => {
    const client = await openSlowWriter(port, beginning, nextByte)
    await client.cut
    expect(client.received()).toMatch(/^HTTP\/1\.1 408 |^$/)
  })
})

describe('a client that reads slowly is cut', () => {
  it.each([
    ['/large', 0],
    ['/large', 16],
    ['/download', 0],
    ['/download', 16],
  ])('in an answer to %s, of which it reads %i bytes at a time', async (path, bytesPerRead) => {
    isClosed = false
    const client = await openSlowReader(port, `GET ${path} ${HEAD}\r\n`, bytesPerRead)
    await client.cut
    if (path === '/download') expect(isClosed).toBe(true)
  })
})

it('an answer whose source is slow continues', async () => {
  const answer = await fetch(`http://127.0.0.1:${port}/slow-source`)
  expect(await answer.text()).toBe('a'.repeat(10))
})
