import { Counter, Gauge, Histogram, type Registry } from 'prom-client'

import type { CatalogueModel } from '#shared/catalogue.ts'
import { PROVIDER, requestDuration, USUAL_OPERATIONS } from '#shared/telemetry/gen-ai.ts'
import { SECONDS_BUCKETS } from '#shared/telemetry/registry.ts'

/** The instruments of the API tier. */
export interface ApiMetrics {
  readonly httpDuration: Histogram<HttpLabel>
  readonly httpActive: Gauge<'http_request_method'>
  readonly ignoredParameters: Counter<'http_route'>
  readonly jobDuration: ReturnType<typeof requestDuration>
  readonly resubmissions: Counter<'kind' | 'gen_ai_request_model'>
  readonly cancellations: Counter<'kind' | 'gen_ai_request_model'>
  readonly authEvents: Counter<'action'>
  readonly hashDuration: Histogram<'operation'>
  readonly mailDuration: Histogram<'kind' | 'outcome'>
  readonly smsDuration: Histogram<'gateway' | 'outcome'>
  readonly messagesDropped: Counter<'reason'>
}

type HttpLabel = 'http_request_method' | 'http_route' | 'http_response_status_code'

/**
 * Registers the metrics that are recorded by events; `gauges.ts` registers those read at scrape
 * time.
 */
export function createApiMetrics(registry: Registry): ApiMetrics {
  const registers = [registry]
  const job = ['kind', 'gen_ai_request_model'] as const
  const buckets = [...SECONDS_BUCKETS]
  return {
    httpDuration: new Histogram({
      name: 'http_server_request_duration_seconds',
      help: 'Requests by route template and status, from the first byte to the last of the answer.',
      labelNames: ['http_request_method', 'http_route', 'http_response_status_code'],
      buckets,
      registers,
    }),
    httpActive: new Gauge({
      name: 'http_server_active_requests',
      help: 'Requests that are being answered.',
      labelNames: ['http_request_method'],
      registers,
    }),
    ignoredParameters: new Counter({
      name: 'millrace_ignored_parameters_total',
      help: 'Requests with fields that had no effect, by route template.',
      labelNames: ['http_route'],
      registers,
    }),
    jobDuration: requestDuration(registry),
    resubmissions: new Counter({
      name: 'millrace_job_resubmissions_total',
      help: 'Jobs submitted again after their worker was lost, drained, or fell behind.',
      labelNames: job,
      registers,
    }),
    cancellations: new Counter({
      name: 'millrace_job_cancellations_total',
      help: 'Jobs stopped because their client left.',
      labelNames: job,
      registers,
    }),
    ...createAuthMetrics(registers),
  }
}

/** The metrics of the user server. */
function createAuthMetrics(registers: Registry[]) {
  const buckets = [...SECONDS_BUCKETS]
  return {
    authEvents: new Counter({
      name: 'millrace_auth_events_total',
      help: 'Security events of the user server, as the audit log names them.',
      labelNames: ['action'],
      registers,
    }),
    hashDuration: new Histogram({
      name: 'millrace_password_hash_duration_seconds',
      help: 'Time to hash or verify a password, waiting for a place in the pool included.',
      labelNames: ['operation'],
      buckets,
      registers,
    }),
    mailDuration: new Histogram({
      name: 'millrace_mail_duration_seconds',
      help: 'Mails handed to the mail server, by kind and outcome.',
      labelNames: ['kind', 'outcome'],
      buckets,
      registers,
    }),
    smsDuration: new Histogram({
      name: 'millrace_sms_duration_seconds',
      help: 'Text messages handed to the gateway, by outcome.',
      labelNames: ['gateway', 'outcome'],
      buckets,
      registers,
    }),
    messagesDropped: new Counter({
      name: 'millrace_messages_dropped_total',
      help: 'Mails and text messages that were deleted without delivery, by reason.',
      labelNames: ['reason'],
      registers,
    }),
  }
}

const ERROR_TYPES = ['', 'internal', 'deadline', 'overloaded'] as const

/**
 * Starts the series of every model at zero: a rate needs a series before its first event, so that
 * the first failure is visible.
 */
export function beginSeries(metrics: ApiMetrics, models: readonly CatalogueModel[]): void {
  for (const { id, kind } of models) {
    metrics.resubmissions.inc({ kind, gen_ai_request_model: id }, 0)
    metrics.cancellations.inc({ kind, gen_ai_request_model: id }, 0)
    for (const operation of USUAL_OPERATIONS[kind]) {
      for (const errorType of ERROR_TYPES) {
        metrics.jobDuration.zero({
          gen_ai_operation_name: operation,
          gen_ai_provider_name: PROVIDER,
          gen_ai_request_model: id,
          error_type: errorType,
        })
      }
    }
  }
}
