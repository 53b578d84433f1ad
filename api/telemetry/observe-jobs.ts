import { context, type Span, SpanKind, trace } from '@opentelemetry/api'

import type { SubmitRequest } from '#api/inference/jobs/job-events.ts'
import type { JobEnd, JobObserver } from '#api/inference/jobs/run-job.ts'
import { type QueueKind, queueName } from '#shared/contracts/queues.ts'
import { genAiLabels } from '#shared/telemetry/gen-ai.ts'
import { carrierOf, errorType, failSpan, type Tracing } from '#shared/telemetry/tracing.ts'

import type { ApiMetrics } from './metrics.ts'

type JobMetrics = Pick<ApiMetrics, 'jobDuration' | 'resubmissions' | 'cancellations'>

/** Records the duration and outcome of jobs, and a span over all runs of each. */
export function createJobObserver(metrics: JobMetrics, tracing: Tracing): JobObserver {
  /** The spans of jobs in flight. */
  const spans = new Map<string, Span>()
  return {
    begin(request) {
      const { jobId, kind, model, input } = request
      const labels = genAiLabels({ kind, modelId: model.id, input })
      const begunAtMs = performance.now()
      const span = tracing.isEnabled ? startSpan(tracing, request) : undefined
      if (span !== undefined) spans.set(jobId, span)
      return {
        trace: span && carrierOf(trace.setSpan(context.active(), span)),
        onEnd(end) {
          if (end.outcome === 'left') {
            metrics.cancellations.inc({ kind, gen_ai_request_model: model.id })
            span?.setAttribute('millrace.job.outcome', 'cancelled')
          }
          if (end.outcome === 'failed' && span !== undefined) failSpan(span, end.error)
          const seconds = (performance.now() - begunAtMs) / 1000
          metrics.jobDuration.observe({ ...labels, error_type: errorTypeOf(end) }, seconds)
          spans.delete(jobId)
          span?.end()
        },
      }
    },
    onResubmit({ jobId, kind, modelId, epoch }) {
      metrics.resubmissions.inc({ kind, gen_ai_request_model: modelId })
      spans.get(jobId)?.addEvent('job.resubmit', { 'millrace.job.epoch': epoch })
    },
  }
}

/** The label of an ending; empty for a job that finished. */
function errorTypeOf(end: JobEnd): string {
  if (end.outcome === 'failed') return errorType(end.error)
  return end.outcome === 'left' ? 'cancelled' : ''
}

function startSpan({ tracer }: Tracing, { kind, model }: SubmitRequest<QueueKind>): Span {
  // A child of the request's span; a batch job has no request and starts its own trace.
  const parent = context.active()
  const queue = queueName(kind, model.id)
  return tracer.startSpan(
    `send ${queue}`,
    {
      kind: SpanKind.PRODUCER,
      attributes: {
        'messaging.system': 'bullmq',
        'messaging.destination.name': queue,
        'gen_ai.request.model': model.id,
      },
    },
    parent,
  )
}
