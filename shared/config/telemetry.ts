import type { EnvReader } from './env-reader.ts'

/** Metrics and traces of a process. */
export interface TelemetryConfig {
  readonly tracing: {
    readonly isEnabled: boolean
    /** The only exporter. OTEL_EXPORTER_OTLP_* says where it exports to. */
    readonly exporter: 'opentelemetry'
    readonly exportDelayMs: number
  }
  readonly metrics: {
    readonly isEnabled: boolean
    readonly exporter: 'prometheus' | 'opentelemetry'
    /** Additional metric names. */
    readonly compatibility: 'none' | 'vllm'
    readonly exportIntervalMs: number
  }
  /** Where the API tier serves its metrics. */
  readonly prometheus: { readonly host: string; readonly port: number }
  readonly otlp: { readonly tracesProtocol: OtlpProtocol; readonly metricsProtocol: OtlpProtocol }
  /** The service name of the resource; empty means the tier's own. */
  readonly serviceName: string
  readonly resourceAttributes: Readonly<Record<string, string>>
  /** More output from the telemetry library. */
  readonly isVerbose: boolean
}

/** The transports of OTLP. */
export type OtlpProtocol = (typeof OTLP_PROTOCOLS)[number]

const OTLP_PROTOCOLS = ['http/protobuf', 'http/json', 'grpc'] as const

/**
 * Reads the settings of metrics and traces. The exporters read further OTEL_* variables themselves,
 * as the OpenTelemetry specification says.
 */
export function readTelemetryConfig(env: EnvReader): TelemetryConfig {
  env.section('Metrics and traces')
  const tracing = {
    isEnabled: env.bool('AUTH_TRACING_ENABLED', {
      about: 'trace every request through queue, worker, storage and database',
      fallback: false,
    }),
    exporter: env.oneOf('AUTH_TRACING_EXPORTER', ['opentelemetry'], {
      about: 'must be opentelemetry: traces are exported by OTLP',
      fallback: 'opentelemetry',
    }),
    exportDelayMs: env.int('OTEL_BSP_SCHEDULE_DELAY', {
      about: 'milliseconds between two exports of spans',
      fallback: 5000,
      min: 10,
    }),
  }
  const metrics = {
    isEnabled: env.bool('AUTH_METRICS_ENABLED', { about: 'export metrics', fallback: true }),
    exporter: env.oneOf('AUTH_METRICS_EXPORTER', ['prometheus', 'opentelemetry'], {
      about: 'prometheus: served for scraping; opentelemetry: sent by OTLP',
      fallback: 'prometheus',
    }),
    compatibility: env.oneOf('MILLRACE_METRICS_COMPAT', ['none', 'vllm'], {
      about: 'vllm: also export metrics under the names of vLLM',
      fallback: 'none',
    }),
  }
  const prometheus = {
    host: env.host(spellings('OTEL_EXPORTER_PROMETHEUS_HOST'), {
      about: "address on which the API tier's metrics are served",
      fallback: '0.0.0.0',
    }),
    port: env.int(spellings('OTEL_EXPORTER_PROMETHEUS_PORT'), {
      about: "port of the API tier's metrics, on path /; 0 takes a free one",
      fallback: 9100,
      max: 65_535,
    }),
  }
  return { tracing, prometheus, ...readOtlp(env, metrics) }
}

function readOtlp(
  env: EnvReader,
  metrics: Omit<TelemetryConfig['metrics'], 'exportIntervalMs'>,
): Omit<TelemetryConfig, 'tracing' | 'prometheus'> {
  env.url(['OTEL_EXPORTER_OTLP_ENDPOINT'], {
    about:
      'URL of the collector of traces and metrics; if unset, port 4318 of this machine (4317 for grpc)',
  })
  env.string('OTEL_EXPORTER_OTLP_HEADERS', {
    about: 'headers for the collector, such as api-key=…',
    isSecret: true,
  })
  const protocol = env.oneOf('OTEL_EXPORTER_OTLP_PROTOCOL', OTLP_PROTOCOLS, {
    about: 'protocol of the collector: http/protobuf, http/json or grpc',
    fallback: 'http/protobuf',
  })
  const protocolOf = (signal: 'TRACES' | 'METRICS'): OtlpProtocol =>
    env.oneOf(`OTEL_EXPORTER_OTLP_${signal}_PROTOCOL`, OTLP_PROTOCOLS, {
      about: `the same for ${signal.toLowerCase()} only`,
      fallback: protocol,
    })
  const exportIntervalMs = env.int('OTEL_METRIC_EXPORT_INTERVAL', {
    about: 'milliseconds between two exports of metrics by OTLP',
    fallback: 60_000,
    min: 100,
  })
  return {
    metrics: { ...metrics, exportIntervalMs },
    otlp: { tracesProtocol: protocolOf('TRACES'), metricsProtocol: protocolOf('METRICS') },
    serviceName: env.string('OTEL_SERVICE_NAME', {
      about: 'name of the service in traces; millrace-api and millrace-worker if unset',
    }),
    resourceAttributes: readAttributes(env),
    isVerbose: isTrue(
      env.string('DEBUG', { about: 'true: print debug output of the telemetry library' }),
    ),
  }
}

function readAttributes(env: EnvReader): Readonly<Record<string, string>> {
  const pairs = env.list('OTEL_RESOURCE_ATTRIBUTES', {
    about: 'resource attributes, as key=value,key=value; auth.version is always set',
  })
  return Object.fromEntries(
    pairs.flatMap((pair) => {
      const at = pair.indexOf('=')
      if (at > 0) return [[pair.slice(0, at).trim(), decoded(pair.slice(at + 1).trim())]]
      env.problem(`OTEL_RESOURCE_ATTRIBUTES must be a list of key=value, but has "${pair}"`)
      return []
    }),
  )
}

function decoded(value: string): string {
  try {
    return decodeURIComponent(value)
  } catch {
    // A percent sign that encodes nothing is literal.
    return value
  }
}

// Many programs share DEBUG, so other values are not an error.
function isTrue(value: string): boolean {
  return ['true', '1', 't'].includes(value.toLowerCase())
}

/** The settings of the OpenTelemetry specification are also read with the user server's prefix. */
function spellings(name: string): readonly string[] {
  return [name, `AUTH_METRICS_${name}`]
}
