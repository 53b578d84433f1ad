import type { FastifyReply, FastifyRequest } from 'fastify'

import type { CatalogueModel } from '#shared/catalogue.ts'
import type { QueueKind, QueueTable } from '#shared/contracts/queues.ts'

import { callerOf } from '#api/v1/caller.ts'
import { collectResult, type JobOutcome } from './collect.ts'
import type { JobEvent } from './job-events.ts'
import { clientSignal, deadlineOf, traceOf } from './request-context.ts'
import type { InferenceServices } from './services.ts'

/** A request and its answer. */
export interface Http {
  readonly request: FastifyRequest
  readonly reply: FastifyReply
}

/** Runs one job for a request whose answer is no stream, and notes its timings in the headers. */
export async function runJob<K extends QueueKind>(
  { request, reply }: Http,
  services: Pick<InferenceServices, 'submitter' | 'clock' | 'config'>,
  job: {
    readonly kind: K
    readonly model: CatalogueModel
    readonly input: QueueTable[K]['input']
    /** Looks at what happens to the job; what it throws ends the job. */
    readonly watch?: (event: JobEvent<K>) => void
  },
): Promise<JobOutcome<K>> {
  const trace = traceOf(request)
  const events = services.submitter.submit<K>({
    kind: job.kind,
    model: job.model,
    input: job.input,
    organizationId: callerOf(request).organizationId,
    deadlineAtMs: services.clock.now() + deadlineOf(request, services.config, false),
    signal: clientSignal(reply),
    ...(trace !== undefined && { trace }),
  })
  const outcome = await collectResult<K>(watched(events, job.watch))
  reply.header('x-queue-time-ms', Math.round(outcome.timings.queueMs))
  reply.header('x-inference-time-ms', Math.round(outcome.timings.runMs))
  return outcome
}

async function* watched<K extends QueueKind>(
  events: AsyncGenerator<JobEvent<K>>,
  watch: (event: JobEvent<K>) => void = () => {},
): AsyncGenerator<JobEvent<K>> {
  for await (const event of events) {
    watch(event)
    yield event
  }
}
