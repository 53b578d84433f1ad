import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'

import { scrape } from '#test/support/metrics-text.ts'
import { type OtlpReceiver, startOtlpReceiver } from '#test/support/otlp-receiver.ts'
import { freshPrefix } from '#test/support/queue.ts'
import { createDatabase } from '#test/support/services.ts'
import { startTiers, type Tiers } from '#test/support/tiers.ts'

let database: Awaited<ReturnType<typeof createDatabase>>
let receiver: OtlpReceiver
let folder: string

beforeAll(async () => {
  database = await createDatabase()
  receiver = await startOtlpReceiver()
})

afterAll(async () => {
  await receiver?.stop()
  await database?.drop()
})

/** Runs an installation with these settings for as long as the test needs it. */
async function withTiers(
  env: Readonly<Record<string, string>>,
  use: (tiers: Tiers) => Promise<void>,
): Promise<void> {
  folder = await mkdtemp(join(tmpdir(), 'millrace-settings-'))
  const tiers = await startTiers({
    databaseUrl: database.url,
    redisUrl: inject('redisUrl'),
    keyPrefix: freshPrefix(),
    folder,
    env: { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, ...env },
  })
  try {
    await use(tiers)
  } finally {
    await tiers.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

describe('AUTH_METRICS_EXPORTER', () => {
  it('opentelemetry sends the metrics that prometheus would serve, under the same names', async () => {
    const env = {
      AUTH_METRICS_EXPORTER: 'opentelemetry',
      OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: 'http/json',
      OTEL_METRIC_EXPORT_INTERVAL: '200',
      OTEL_SERVICE_NAME: 'my-mill',
      OTEL_RESOURCE_ATTRIBUTES: 'team=a',
    }
    await withTiers(env, async (tiers) => {
      for (let n = 0; n < 3; n += 1) await (await fetch(`${tiers.url}/settings`)).text()
      const route = { http_route: '/settings', http_request_method: 'GET' }
      const counted = () =>
        receiver.points.find(
          ({ name, attributes }) =>
            name === 'http_server_request_duration_seconds' &&
            Object.entries(route).every(([key, value]) => attributes[key] === value),
        )
      await expect.poll(counted).toMatchObject({ type: 'histogram', value: 3 })
      expect(counted()?.resource).toMatchObject({ 'service.name': 'my-mill', team: 'a' })
      expect(counted()?.resource['auth.version']).toMatch(/^\d+\.\d+\.\d+/)
      const types = new Map(receiver.points.map(({ name, type }) => [name, type]))
      expect(types.get('millrace_queue_jobs')).toBe('gauge')
      expect(types.get('process_cpu_user_seconds_total')).toBe('sum')
      // Nothing is left for scraping, but the autoscaler has its answer.
      expect((await fetch(tiers.metricsUrl)).status).toBe(404)
      const backlog = await fetch(`${tiers.metricsUrl}/metrics-api/queues/completion.tiny-chat`)
      expect(await backlog.json()).toMatchObject({ backlog: 0 })
    })
    expect(receiver.bodies.filter(({ path }) => path === '/v1/traces')).toEqual([])
  })

  it('prometheus serves them on the host of the settings and sends nothing', async () => {
    const sent = receiver.bodies.length
    const env = { AUTH_METRICS_EXPORTER: 'prometheus', OTEL_EXPORTER_PROMETHEUS_HOST: '127.0.0.2' }
    await withTiers(env, async ({ metricsUrl, url }) => {
      await (await fetch(`${url}/settings`)).text()
      const elsewhere = metricsUrl.replace('127.0.0.1', '127.0.0.2')
      expect((await scrape(elsewhere)).length).toBeGreaterThan(100)
      await expect(fetch(metricsUrl)).rejects.toThrow()
    })
    expect(receiver.bodies.length).toBe(sent)
  })
})

describe('AUTH_METRICS_ENABLED', () => {
  it('false closes the port', async () => {
    await withTiers({ AUTH_METRICS_ENABLED: 'false' }, async ({ metricsUrl, url }) => {
      expect((await fetch(`${url}/healthz`)).status).toBe(200)
      await expect(fetch(metricsUrl)).rejects.toThrow()
    })
  })
})

describe('AUTH_TRACING_ENABLED', () => {
  it('true sends protobuf by default, and DEBUG logs it', async () => {
    const env = {
      AUTH_TRACING_ENABLED: 'true',
      OTEL_BSP_SCHEDULE_DELAY: '50',
      DEBUG: 'true',
      LOG_LEVEL: 'info',
    }
    const spans = () => receiver.bodies.filter(({ path }) => path === '/v1/traces')
    await withTiers(env, async ({ url }) => {
      await (await fetch(`${url}/settings`)).text()
      // Spans of its start may come first, in batches of their own.
      const sent = () => Buffer.concat(spans().map(({ body }) => body)).toString('latin1')
      await expect.poll(sent).toContain('GET /settings')
      expect(spans().every(({ contentType }) => contentType === 'application/x-protobuf')).toBe(
        true,
      )
      const log = () => readFile(join(folder, 'api.log'), 'utf8')
      await expect.poll(log).toContain('"operation":"telemetry"')
      const lines = await log()
      // Every line of the library is a line of the log.
      for (const line of lines.trim().split('\n')) expect(() => JSON.parse(line)).not.toThrow()
    })
  })

  it('speaks gRPC when configured so', async () => {
    const collector = await startGrpcCollector()
    const env = {
      AUTH_TRACING_ENABLED: 'true',
      AUTH_METRICS_EXPORTER: 'opentelemetry',
      OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_BSP_SCHEDULE_DELAY: '50',
      OTEL_METRIC_EXPORT_INTERVAL: '200',
    }
    await withTiers(env, async ({ url }) => {
      await (await fetch(`${url}/settings`)).text()
      await expect
        .poll(() => [...collector.paths].sort())
        .toEqual([
          '/opentelemetry.proto.collector.metrics.v1.MetricsService/Export',
          '/opentelemetry.proto.collector.trace.v1.TraceService/Export',
        ])
    })
    await collector.stop()
  })

  it('with an unreachable collector fails no request and logs one line', async () => {
    const env = {
      AUTH_TRACING_ENABLED: 'true',
      OTEL_BSP_SCHEDULE_DELAY: '20',
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9',
      OTEL_EXPORTER_OTLP_TIMEOUT: '300',
    }
    await withTiers(env, async ({ url }) => {
      const lines = async () =>
        (await readFile(join(folder, 'api.log'), 'utf8')).match(/telemetry is not delivered/g)
      for (let n = 0; n < 20; n += 1) expect((await fetch(`${url}/settings`)).status).toBe(200)
      await expect.poll(async () => (await lines())?.length).toBe(1)
      for (let n = 0; n < 20; n += 1) expect((await fetch(`${url}/settings`)).status).toBe(200)
      expect((await lines())?.length).toBe(1)
    })
  })
})

/** Takes every gRPC call and answers it with an empty message. */
async function startGrpcCollector(): Promise<{
  url: string
  paths: Set<string>
  stop(): Promise<void>
}> {
  const paths = new Set<string>()
  const server = createServer()
  server.on('stream', (stream, headers) => {
    paths.add(String(headers[':path']))
    stream.resume()
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
    stream.on('end', () => {
      stream.respond(
        { ':status': 200, 'content-type': 'application/grpc' },
        { waitForTrailers: true },
      )
      stream.end(Buffer.alloc(5))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const stop = () => new Promise<void>((resolve) => server.close(() => resolve()))
  return { url: `http://127.0.0.1:${port}`, paths, stop }
}
