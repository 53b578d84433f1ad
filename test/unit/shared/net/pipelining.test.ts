import { once } from 'node:events'
import { createServer } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'

import { type FastifyReply, fastify } from 'fastify'
import { describe, expect, it, onTestFinished } from 'vitest'

import { handleInOrder } from '#shared/net/pipelining.ts'

/** A server whose route answers when the test says so. */
async function openServer() {
  const app = fastify({ serverFactory: (listener) => createServer(handleInOrder(listener)) })
  const open: FastifyReply[] = []
  app.post('/', (_request, reply) => {
    open.push(reply)
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const socket = connect(port, '127.0.0.1')
  onTestFinished(async () => {
    socket.destroy()
    app.server.closeAllConnections()
    await app.close()
  })
  return { open, socket, app }
}

const requestOf = (text: string) =>
  `POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`

/** Collects the bodies of the answers of a connection. */
function readBodies(socket: Socket): () => string[] {
  let text = ''
  socket.on('data', (chunk) => {
    text += String(chunk)
  })
  return () => [...text.matchAll(/\r\n\r\n(\d+)/g)].map(([, body]) => body as string)
}

describe('pipelined requests', () => {
  it('are handled one after another, in their order', async () => {
    const { open, socket } = await openServer()
    const bodies = readBodies(socket)
    socket.write(['0', '1', '2'].map(requestOf).join(''))
    for (let turn = 0; turn < 3; turn += 1) {
      await expect.poll(() => open.length).toBe(turn + 1)
      open[turn]?.send(String(open[turn]?.request.body))
      await expect.poll(bodies).toHaveLength(turn + 1)
    }
    expect(bodies()).toEqual(['0', '1', '2'])
  })

  it('are handled after one whose body arrives later', async () => {
    const { open, socket } = await openServer()
    const bodies = readBodies(socket)
    socket.write(requestOf('0') + requestOf('11').slice(0, -1))
    await expect.poll(() => open.length).toBe(1)
    open[0]?.send('0')
    await expect.poll(bodies).toEqual(['0'])
    socket.write('1')
    await expect.poll(() => open.length).toBe(2)
    open[1]?.send('11')
    await expect.poll(bodies).toEqual(['0', '11'])
  })

  it('end their connection if they are too many', async () => {
    const { open, socket } = await openServer()
    socket.on('error', () => {
      // The reset of the connection.
    })
    socket.write(Array.from({ length: 300 }, () => requestOf('0')).join(''))
    await once(socket, 'close')
    expect(open.length).toBeLessThanOrEqual(1)
  })

  it('are not handled when their client has left', async () => {
    const { open, socket, app } = await openServer()
    socket.write(['0', '1', '2'].map(requestOf).join(''))
    await expect.poll(() => open.length).toBe(1)
    const closed = once(open[0]?.raw as object as NodeJS.EventEmitter, 'close')
    socket.destroy()
    await closed
    await expect
      .poll(async () => new Promise((done) => app.server.getConnections((_, n) => done(n))))
      .toBe(0)
    expect(open).toHaveLength(1)
  })
})
