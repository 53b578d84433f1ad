import { randomUUID } from 'node:crypto'

import * as api from '@opentelemetry/api'
import { OTLPMetricExporter as GrpcMetrics } from '@opentelemetry/exporter-metrics-otlp-grpc'
import { OTLPMetricExporter as JsonMetrics } from '@opentelemetry/exporter-metrics-otlp-http'
import { OTLPMetricExporter as ProtobufMetrics } from '@opentelemetry/exporter-metrics-otlp-proto'
import { OTLPTraceExporter as GrpcTraces } from '@opentelemetry/exporter-trace-otlp-grpc'
import { OTLPTraceExporter as JsonTraces } from '@opentelemetry/exporter-trace-otlp-http'
import { OTLPTraceExporter as ProtobufTraces } from '@opentelemetry/exporter-trace-otlp-proto'
import { PeriodicExportingMetricReader, type PushMetricExporter } from '@opentelemetry/sdk-metrics'
import { startNodeSdk } from '@opentelemetry/sdk-node'
import { BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace'

import { withinTime } from '#shared/clock.ts'
import type { OtlpProtocol, TelemetryConfig } from '#shared/config/telemetry.ts'
import type { Logger } from '#shared/logger.ts'

import { PrometheusProducer } from './prometheus-producer.ts'
import type { Registry, TelemetrySource } from './registry.ts'
import { NO_TRACING, type Tracing } from './tracing.ts'
import { WholeTraces } from './whole-traces.ts'

const CLOSE_TIMEOUT_MS = 2000
const EXPORT_TIMEOUT_MS_MAX = 10_000
const LOG_INTERVAL_MS = 60_000

// The exporters read the OTEL_EXPORTER_OTLP_* settings themselves: URLs, headers, certificates,
// compression.
const EXPORTERS: Readonly<
  Record<OtlpProtocol, { traces(): SpanExporter; metrics(): PushMetricExporter }>
> = {
  'http/protobuf': { traces: () => new ProtobufTraces(), metrics: () => new ProtobufMetrics() },
  'http/json': { traces: () => new JsonTraces(), metrics: () => new JsonMetrics() },
  grpc: { traces: () => new GrpcTraces(), metrics: () => new GrpcMetrics() },
}

/** Starts the OpenTelemetry SDK. Only this file and its imports load it. */
export function openSdk(options: {
  readonly config: TelemetryConfig
  readonly source: TelemetrySource
  /** Exported by OTLP when present. */
  readonly registry: Registry | undefined
  readonly log: Logger
}): { readonly tracing: Tracing; close(): Promise<void> } {
  const { config, source, registry, log } = options
  const { tracing, otlp } = config
  const sdk = startNodeSdk({
    logLevel: 'none',
    resourceAttributes: resourceOf(config, source),
    resourceDetectors: [],
    logRecordProcessors: [],
    spanProcessors: tracing.isEnabled
      ? [
          new WholeTraces(
            new BatchSpanProcessor({
              exporter: EXPORTERS[otlp.tracesProtocol].traces(),
              scheduledDelayMillis: tracing.exportDelayMs,
            }),
          ),
        ]
      : [],
    metricReaders: registry === undefined ? [] : [readerOf(config, registry, source.version)],
  })
  listenToLibrary(log, config.isVerbose)
  return {
    tracing: tracing.isEnabled
      ? { isEnabled: true, api, tracer: api.trace.getTracer('millrace', source.version) }
      : NO_TRACING,
    // An unreachable collector must not delay the end of a process.
    close: () =>
      withinTime(sdk.shutdown(), CLOSE_TIMEOUT_MS, () => new Error('no answer')).catch(
        () => undefined,
      ),
  }
}

function readerOf(
  { metrics, otlp }: TelemetryConfig,
  registry: Registry,
  version: string,
): PeriodicExportingMetricReader {
  return new PeriodicExportingMetricReader({
    exporter: EXPORTERS[otlp.metricsProtocol].metrics(),
    exportIntervalMillis: metrics.exportIntervalMs,
    exportTimeoutMillis: Math.min(metrics.exportIntervalMs, EXPORT_TIMEOUT_MS_MAX),
    metricProducers: [new PrometheusProducer(registry, version)],
  })
}

/** These attributes override OTEL_RESOURCE_ATTRIBUTES, which the SDK reads itself. */
function resourceOf(
  { serviceName, resourceAttributes }: TelemetryConfig,
  { tier, version }: TelemetrySource,
): Record<string, string> {
  return {
    'service.name': serviceName || resourceAttributes['service.name'] || `millrace-${tier}`,
    'service.version': resourceAttributes['service.version'] ?? version,
    'service.instance.id': resourceAttributes['service.instance.id'] ?? randomUUID(),
    'auth.version': version,
  }
}

/** Sends the SDK's own messages to the log; export failures at most once a minute. */
function listenToLibrary(log: Logger, isVerbose: boolean): void {
  let saidAtMs = Number.NEGATIVE_INFINITY
  const complain = (text: string): void => {
    if (!isVerbose && performance.now() - saidAtMs < LOG_INTERVAL_MS) return
    saidAtMs = performance.now()
    log.warn(
      { operation: 'telemetry.export', reason: reasonOf(text) },
      'telemetry is not delivered',
    )
  }
  const warn = (text: string): void =>
    log.debug({ operation: 'telemetry', detail: reasonOf(text) }, 'telemetry')
  const speak = (text: string): void =>
    log.info({ operation: 'telemetry', detail: reasonOf(text) }, 'telemetry')
  api.diag.setLogger(
    {
      error: complain,
      warn: complain,
      info: isVerbose ? speak : warn,
      debug: isVerbose ? speak : warn,
      verbose: warn,
    },
    {
      logLevel: isVerbose ? api.DiagLogLevel.DEBUG : api.DiagLogLevel.WARN,
      suppressOverrideMessage: true,
    },
  )
}

// Errors arrive as JSON with stack and request data; only the message is logged.
function reasonOf(text: string): string {
  try {
    const parsed: unknown = JSON.parse(text)
    const isError = typeof parsed === 'object' && parsed !== null && 'message' in parsed
    return isError ? String(parsed.message).slice(0, 200) : 'unknown'
  } catch {
    return String(text).slice(0, 200)
  }
}
