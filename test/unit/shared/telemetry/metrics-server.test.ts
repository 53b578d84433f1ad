import { afterAll, expect, it } from 'vitest'

import { openMetricsServer, plain } from '#shared/telemetry/metrics-server.ts'
import { openSlowReader, openSlowWriter } from '#test/support/slow-client.ts'

let numCollected = 0
const server = await openMetricsServer({
  host: '127.0.0.1',
  port: 0,
  timeouts: { requestMs: 300, answerMs: 600 },
  handlers: {
    '/metrics': () => {
      numCollected += 1
      return plain(200, 'x'.repeat(64 << 20))
    },
    '/healthz': () => plain(200, 'ok\n'),
  },
  onError: () => {},
})
afterAll(() => server.close())
const HEAD = 'HTTP/1.1\r\nhost: localhost\r\n'

it.each([
  ['headers', `GET /metrics ${HEAD}x-slow: `],
  ['a body', `GET /metrics ${HEAD}content-length: 9999\r\n\r\n`],
])('the metrics server cuts a client that sends %s byte by byte', async (_what, beginning) => {
  const client = await openSlowWriter(server.port, beginning)
  await client.cut
})

it.each([0, 16])(
  'the metrics server cuts a client that reads %i bytes at a time',
  async (bytesPerRead) => {
    const request = `GET /metrics ${HEAD}\r\n`
    const client = await openSlowReader(server.port, request, bytesPerRead)
    await client.cut
    expect((await fetch(`http://127.0.0.1:${server.port}/healthz`)).status).toBe(200)
  },
)

it('the metrics server collects once for a client that pipelines and reads nothing', async () => {
  numCollected = 0
  const client = await openSlowReader(server.port, `GET /metrics ${HEAD}\r\n`.repeat(10), 0)
  await client.cut
  expect(numCollected).toBe(1)
})
