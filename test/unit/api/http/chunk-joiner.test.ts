import { randomBytes } from 'node:crypto'
import { connect } from 'node:net'
import { Readable } from 'node:stream'

import multipart from '@fastify/multipart'
import { type FastifyInstance, fastify } from 'fastify'
import { afterEach, describe, expect, it } from 'vitest'

import { readForm } from '#api/http/form.ts'
import { ChunkJoiner, joinSmallChunks } from '#api/http/sse.ts'
import { registerJsonBody } from '#api/http/validation.ts'
import { addRequestContext } from '#api/v1/request-context.ts'
import { failure } from '#shared/errors.ts'

const BYTES = 200_000
// One of 16 KiB, or what a socket brings at once.
const PIECES_MAX = 30
const closers: (() => Promise<unknown>)[] = []

afterEach(async () => {
  for (const close of closers.splice(0)) await close()
})

describe('joined chunks', () => {
  it.each([
    ['single bytes', () => 1],
    ['pieces of any size', (index: number) => (index * 7919) % 40_000],
    ['large pieces', () => 65_536],
  ])('hold the same bytes as %s', async (_name, sizeOf) => {
    const bytes = randomBytes(BYTES)
    function* cut() {
      for (let at = 0, index = 1; at < bytes.length; index += 1) {
        const size = Math.max(1, sizeOf(index))
        yield bytes.subarray(at, at + size)
        at += size
      }
    }
    const pieces = await Array.fromAsync(Readable.from(cut()).pipe(new ChunkJoiner()))
    expect(Buffer.concat(pieces).equals(bytes)).toBe(true)
    expect(pieces.length).toBeLessThan(PIECES_MAX)
  })
})

/** Sends a body of which every byte is a piece of its own, and answers with what came back. */
async function sendInBytes(app: FastifyInstance, type: string, body: string): Promise<string> {
  await app.listen({ port: 0, host: '127.0.0.1' })
  closers.push(() => app.close())
  const address = app.server.address()
  if (address === null || typeof address === 'string') throw new Error('it does not listen')
  const socket = connect(address.port, '127.0.0.1')
  const head = `POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: ${type}\r\n`
  socket.write(`${head}transfer-encoding: chunked\r\n\r\n`)
  socket.write(`${[...body].map((byte) => `1\r\n${byte}\r\n`).join('')}0\r\n\r\n`)
  const answer = await Array.fromAsync(socket)
  return Buffer.concat(answer).toString('utf8').split('\r\n\r\n')[1] ?? ''
}

describe('a body that comes byte by byte', () => {
  it.each([
    ['JSON', 'application/json', JSON.stringify({ a: 'x'.repeat(BYTES) })],
    ['a form where none is read', 'multipart/form-data; boundary=b', 'x'.repeat(BYTES)],
  ])('is collected in whole pieces: %s', async (_name, type, body) => {
    const app = fastify({ bodyLimit: 2 * BYTES })
    addRequestContext(app)
    registerJsonBody(app)
    joinSmallChunks(app)
    let pieces = 0
    app.addHook('preParsing', async (_request, _reply, payload) => {
      payload.on('data', () => (pieces += 1))
      return payload
    })
    app.addContentTypeParser(
      '*',
      { parseAs: 'string' },
      async (_request: unknown, text: string) => text,
    )
    app.post('/', async ({ body: read }) => ({
      length: (typeof read === 'string' ? read : JSON.stringify(read)).length,
    }))
    expect(await sendInBytes(app, type, body)).toContain(`{"length":${body.length}}`)
    expect(pieces).toBeLessThan(PIECES_MAX)
  })

  it('brings the file of form data in joined chunks', async () => {
    const app = fastify({ bodyLimit: 2 * BYTES })
    addRequestContext(app)
    joinSmallChunks(app)
    await app.register(multipart)
    app.post('/', async (request) => {
      const { files } = await readForm(request, {
        fields: [],
        files: ['file'],
        bytesMax: 2 * BYTES,
        tooLarge: () => failure.tooLarge('It is too large.'),
        receive: async ({ stream }) => {
          const pieces: Buffer[] = await Array.fromAsync(stream)
          return [pieces.length, Buffer.concat(pieces).length]
        },
      })
      return files.file
    })
    const head = '--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
    const body = `${head}${'x'.repeat(BYTES)}\r\n--b--\r\n`
    const answer = await sendInBytes(app, 'multipart/form-data; boundary=b', body)
    const [pieces, bytes] = JSON.parse(/\[.*\]/.exec(answer)?.[0] ?? '[]') as number[]
    expect(bytes).toBe(BYTES)
    expect(pieces).toBeLessThan(PIECES_MAX)
  })
})
