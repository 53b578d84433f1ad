import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { connect } from 'node:net'

import { fastify } from 'fastify'
import { afterEach, expect, it, vi } from 'vitest'

import { openEventStream } from '#api/http/sse.ts'
import { addRequestContext } from '#api/v1/request-context.ts'

afterEach(() => vi.useRealTimers())

it('ends the stream of a client that stops reading, and stops buffering for it', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] })
  const app = fastify()
  addRequestContext(app)
  const opened = Promise.withResolvers<ReturnType<typeof openEventStream>>()
  app.get('/', (_request, reply) => opened.resolve(openEventStream(reply)))
  await app.listen({ port: 0, host: '127.0.0.1' })
  const client = connect((app.server.address() as AddressInfo).port, '127.0.0.1')
  try {
    await once(client, 'connect')
    client.pause()
    client.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n')
    const stream = await opened.promise
    // More than the buffers of both sockets hold.
    const writing = stream.write(`data: ${'x'.repeat(64 << 20)}\n\n`)
    vi.advanceTimersByTime(59_000)
    expect(stream.signal.aborted).toBe(false)
    vi.advanceTimersByTime(2000)
    await writing
    expect(stream.signal.aborted).toBe(true)
  } finally {
    client.destroy()
    await app.close()
  }
}, 10_000)
