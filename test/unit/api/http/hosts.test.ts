import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'

import { type FastifyInstance, fastify } from 'fastify'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { refuseInvalidHosts } from '#api/http/connections.ts'
import { ServiceError } from '#shared/errors.ts'

let app: FastifyInstance
let port: number

beforeAll(async () => {
  app = fastify()
  refuseInvalidHosts(app)
  app.setErrorHandler((error, _request, reply) =>
    reply.code(error instanceof ServiceError ? error.status : 500).send(),
  )
  app.get('/', () => 'served')
  await app.listen({ port: 0, host: '127.0.0.1' })
  port = (app.server.address() as AddressInfo).port
})

afterAll(() => app.close())

/** The status of a request with these header lines. */
async function statusOf(lines: readonly string[]): Promise<string | undefined> {
  const socket = connect(port, '127.0.0.1')
  socket.end(`${['GET / HTTP/1.1', ...lines, 'Connection: close'].join('\r\n')}\r\n\r\n`)
  const [head] = await once(socket, 'data')
  socket.destroy()
  return String(head).split(' ', 2)[1]
}

describe('the Host header', () => {
  it.each([
    ['localhost', ['Host: localhost'], '200'],
    ['a port', ['Host: example.com:8081'], '200'],
    ['an IPv6 address', ['Host: [::1]:8081'], '200'],
    ['two of them', ['Host: a.example', 'Host: b.example'], '400'],
    ['two in other case', ['Host: a.example', 'hOST: a.example'], '400'],
    ['none', [], '400'],
    ['user information', ['Host: user@example.com'], '400'],
    ['a path', ['Host: example.com/path'], '400'],
    ['a space', ['Host: a b'], '400'],
  ])('with %s is answered by its validity', async (_name, lines, status) => {
    expect(await statusOf(lines)).toBe(status)
  })
})
