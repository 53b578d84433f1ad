import { context, type Span, SpanKind, trace } from '@opentelemetry/api'

import type { JobEvent, SubmitRequest, Submitter } from '#api/inference/jobs/job-events.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import { type QueueKind, queueName } from '#shared/contracts/queues.ts'
import { CancelledError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'
import { genAiLabels } from '#shared/telemetry/gen-ai.ts'
import { carrierOf, errorType, failSpan, type Tracing } from '#shared/telemetry/tracing.ts'

import type { ApiMetrics } from './metrics.ts'

type JobMetrics = Pick<ApiMetrics, 'jobDuration' | 'resubmissions' | 'cancellations'>

/** Observes the jobs of a process: duration, outcome, and a span over all their runs. */
export interface JobObserver {
  /** Wraps a submitter and observes its jobs. */
  observe<S extends Submitter>(submitter: S): S
  /** Records that a job was resubmitted. */
  noteResubmission(job: Pick<JobEnvelope, 'jobId' | 'kind' | 'modelId' | 'epoch'>): void
}

/** Records metrics and traces. */
export function createJobObserver(metrics: JobMetrics, tracing: Tracing): JobObserver {
  const spans = new Map<string, Span>()
  return {
    observe: (submitter) => ({
      ...submitter,
      submit: <K extends QueueKind>(request: SubmitRequest<K>) =>
        observed({ submitter, metrics, tracing, spans }, request),
    }),
    noteResubmission({ jobId, kind, modelId, epoch }) {
      metrics.resubmissions.inc({ kind, gen_ai_request_model: modelId })
      spans.get(jobId)?.addEvent('job.resubmit', { 'millrace.job.epoch': epoch })
    },
  }
}

interface Observation {
  readonly submitter: Submitter
  readonly metrics: JobMetrics
  readonly tracing: Tracing
  /** The spans of jobs in flight. */
  readonly spans: Map<string, Span>
}

async function* observed<K extends QueueKind>(
  { submitter, metrics, tracing, spans }: Observation,
  request: SubmitRequest<K>,
): AsyncGenerator<JobEvent<K>> {
  const jobId = request.jobId ?? randomId('job_')
  const { kind, model, input } = request
  const labels = genAiLabels({ kind, modelId: model.id, input })
  const begunAtMs = performance.now()
  const span = tracing.isEnabled ? startSpan(tracing, request) : undefined
  if (span !== undefined) spans.set(jobId, span)
  const carrier = span === undefined ? request.trace : carrierWith(span)
  let outcome = 'cancelled'
  try {
    const events = submitter.submit<K>({
      ...request,
      jobId,
      ...(carrier !== undefined && { trace: carrier }),
    })
    for await (const event of events) {
      if (event.type === 'result') outcome = ''
      yield event
    }
  } catch (error) {
    const hasLeft = request.signal.aborted || error instanceof CancelledError
    outcome = hasLeft ? 'cancelled' : errorType(error)
    if (!hasLeft && span !== undefined) failSpan(span, error)
    throw error
  } finally {
    if (outcome === 'cancelled') {
      metrics.cancellations.inc({ kind, gen_ai_request_model: model.id })
      span?.setAttribute('millrace.job.outcome', 'cancelled')
    }
    const seconds = (performance.now() - begunAtMs) / 1000
    metrics.jobDuration.observe({ ...labels, error_type: outcome }, seconds)
    spans.delete(jobId)
    span?.end()
  }
}

function startSpan<K extends QueueKind>(
  { tracer }: Tracing,
  { kind, model }: SubmitRequest<K>,
): Span {
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

function carrierWith(span: Span): ReturnType<typeof carrierOf> {
  return carrierOf(trace.setSpan(context.active(), span))
}
