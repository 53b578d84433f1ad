import { describe, expect, it } from 'vitest'

import { EnvReader } from '#shared/config/env-reader.ts'
import { readTelemetryConfig, type TelemetryConfig } from '#shared/config/telemetry.ts'

function read(env: Readonly<Record<string, string>>): {
  config: TelemetryConfig
  problems: readonly string[]
} {
  const reader = new EnvReader(env)
  return { config: readTelemetryConfig(reader), problems: reader.problems }
}

describe('the settings of metrics and traces', () => {
  it('select metrics for scraping on port 9100 and no traces by default', () => {
    expect(read({})).toEqual({
      config: {
        tracing: { isEnabled: false, exporter: 'opentelemetry', exportDelayMs: 5000 },
        metrics: {
          isEnabled: true,
          exporter: 'prometheus',
          compatibility: 'none',
          exportIntervalMs: 60_000,
        },
        prometheus: { host: '0.0.0.0', port: 9100 },
        otlp: { tracesProtocol: 'http/protobuf', metricsProtocol: 'http/protobuf' },
        serviceName: '',
        resourceAttributes: {},
        isVerbose: false,
      },
      problems: [],
    })
  })

  it.each([
    ['AUTH_TRACING_EXPORTER', 'jaeger'],
    ['AUTH_METRICS_EXPORTER', 'statsd'],
    ['AUTH_METRICS_ENABLED', 'perhaps'],
    ['AUTH_TRACING_ENABLED', '2'],
    ['OTEL_EXPORTER_PROMETHEUS_PORT', '70000'],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'http/xml'],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector'],
    ['OTEL_RESOURCE_ATTRIBUTES', 'no pair'],
    ['MILLRACE_METRICS_COMPAT', 'tgi'],
  ])('refuse %s=%s by its name', (name, value) => {
    const { problems } = read({ [name]: value })
    expect(problems).toHaveLength(1)
    expect(problems[0]).toContain(name)
  })

  it("have both spellings: OpenTelemetry's own and that with the prefix of the user server", () => {
    const prefixed = {
      AUTH_METRICS_OTEL_EXPORTER_PROMETHEUS_HOST: '::1',
      AUTH_METRICS_OTEL_EXPORTER_PROMETHEUS_PORT: '9200',
    }
    expect(read(prefixed).config.prometheus).toEqual({ host: '::1', port: 9200 })
    const both = { ...prefixed, OTEL_EXPORTER_PROMETHEUS_PORT: '9300' }
    expect(read(both).config.prometheus.port).toBe(9300)
  })

  it('let one protocol per signal outrank the common one', () => {
    const env = {
      OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
      OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: 'http/json',
    }
    expect(read(env).config.otlp).toEqual({ tracesProtocol: 'grpc', metricsProtocol: 'http/json' })
  })

  it.each([
    ['true', true],
    ['1', true],
    ['express:*', false],
    ['false', false],
  ])('take DEBUG=%s, which other programs use as well, for %s', (value, isVerbose) => {
    const { config, problems } = read({ DEBUG: value })
    expect(config.isVerbose).toBe(isVerbose)
    expect(problems).toEqual([])
  })

  it('read attributes of the resource, percent-encoded ones too', () => {
    const { config } = read({ OTEL_RESOURCE_ATTRIBUTES: 'team=a%20b, host.name = n1,rate=5%' })
    expect(config.resourceAttributes).toEqual({ team: 'a b', 'host.name': 'n1', rate: '5%' })
  })
})
