import { request } from 'node:http'
import type { AddressInfo } from 'node:net'

import fastify from 'fastify'
import { Redis } from 'ioredis'
import { expect } from 'vitest'

import { IncidentLog } from '#api/console/incident-log.ts'
import { IncidentWatch } from '#api/console/incident-watch.ts'
import { SeriesLog } from '#api/console/series-log.ts'
import { it } from '#test/support/services.ts'

it('a request whose client left is no longer watched, so that there is room for the next', async ({
  redisUrl,
  keyPrefix,
  log,
}) => {
  const redis = new Redis(redisUrl)
  const incidents = new IncidentLog({ redis, prefix: keyPrefix, log })
  const series = new SeriesLog({ redis, prefix: keyPrefix, log })
  const watch = new IncidentWatch(incidents, { slowMs: 60_000, series })
  const app = fastify()
  watch.register(app)
  app.get('/waits', async (_request, reply) => {
    await new Promise((resolve) => reply.raw.once('close', resolve))
    return {}
  })
  app.get('/answers', async () => ({}))
  await app.listen({ port: 0 })
  const { port } = app.server.address() as AddressInfo
  const clients = Array.from({ length: 20 }, () => request({ port, path: '/waits' }))
  for (const client of clients) client.on('error', () => {}).end()
  await expect.poll(() => watch.size).toBe(20)
  for (const client of clients) client.destroy()
  await expect.poll(() => watch.size).toBe(0)
  expect((await fetch(`http://127.0.0.1:${port}/answers`)).status).toBe(200)
  await expect.poll(() => watch.size).toBe(0)
  await app.close()
  await incidents.close()
  await series.close()
  redis.disconnect()
})

it('probes that report an outage are no incidents', async ({ redisUrl, keyPrefix, log }) => {
  const redis = new Redis(redisUrl)
  const incidents = new IncidentLog({ redis, prefix: keyPrefix, log })
  const series = new SeriesLog({ redis, prefix: keyPrefix, log })
  const app = fastify()
  new IncidentWatch(incidents, { slowMs: 60_000, series }).register(app)
  for (const path of ['/readyz', '/v1/models']) {
    app.get(path, async (_request, reply) => reply.code(503).send())
  }
  for (const path of ['/readyz', '/v1/models']) await app.inject(path)
  await incidents.flush()
  expect((await incidents.read()).failed).toMatchObject([{ route: '/v1/models', status: 503 }])
  await app.close()
  await incidents.close()
  await series.close()
  redis.disconnect()
})
