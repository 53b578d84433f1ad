import type { Job, Queue } from 'bullmq'

import type { ConsoleArea, ConsoleCall } from '#api/console/api.ts'
import { wholeList } from '#api/console/lists.ts'
import type { JobQueues, OpenQueueRedis } from '#api/jobs/job-queues.ts'
import { type Catalogue, type CatalogueModel, queuesOf } from '#shared/catalogue.ts'
import { type JobEnvelope, queueName } from '#shared/contracts/job.ts'
import { failure, toWireError } from '#shared/errors.ts'
import { readDepth, waitingOf } from '#shared/queue/depth.ts'
import type { ReplyWriter } from '#shared/queue/reply-writer.ts'

interface QueueServices {
  readonly catalogue: Catalogue
  readonly queues: Pick<JobQueues, 'of' | 'deadLetters'>
  /** Runs the job of a dead letter once more; resolves when it has started. */
  retry(jobId: string): Promise<void>
  /** Opens the way on which a worker sends the failure of a job to its owner. */
  openReplies(server: OpenQueueRedis): Pick<ReplyWriter, 'push' | 'flushed'>
}

interface OneQueue {
  readonly queue: string
}

interface OneJob extends OneQueue {
  readonly job: string
}

const JOBS_SHOWN_MAX = 100
const DEAD_JOBS_SHOWN_MAX = 200
const WAITING = ['prioritized', 'waiting', 'delayed'] as const
/** BullMQ serves the lowest number first; 0 would remove the job from the prioritized set. */
const FIRST = 1
const LAST = 2 ** 21 - 1

/** Queues, their jobs without content, and the jobs that killed their workers. */
export function queueArea(services: QueueServices): ConsoleArea {
  const operator = { method: 'POST', role: 'operator' } as const
  const move =
    (priority: number) =>
    async ({ params }: ConsoleCall<OneJob>): Promise<void> => {
      const { job } = await findWaiting(services, params)
      await job.changePriority({ priority })
    }
  return {
    reads: [
      { path: '/queues', handle: () => listQueues(services) },
      {
        path: '/queues/:queue/jobs',
        handle: ({ params }: ConsoleCall<OneQueue>) => listJobs(services, params),
      },
      { path: '/dead-letters', handle: () => listDeadLetters(services) },
    ],
    actions: [
      {
        ...operator,
        path: '/queues/:queue/pause',
        operation: 'queue.pause',
        handle: ({ params }: ConsoleCall<OneQueue>) => findQueue(services, params).queue.pause(),
      },
      {
        ...operator,
        path: '/queues/:queue/resume',
        operation: 'queue.resume',
        handle: ({ params }: ConsoleCall<OneQueue>) => findQueue(services, params).queue.resume(),
      },
      {
        ...operator,
        path: '/queues/:queue/jobs/:job/first',
        operation: 'queue.job_first',
        handle: move(FIRST),
      },
      {
        ...operator,
        path: '/queues/:queue/jobs/:job/last',
        operation: 'queue.job_last',
        handle: move(LAST),
      },
      {
        ...operator,
        path: '/queues/:queue/jobs/:job/cancel',
        operation: 'queue.job_cancel',
        handle: ({ params }: ConsoleCall<OneJob>) => cancelWaiting(services, params),
      },
      {
        ...operator,
        path: '/dead-letters/:job/retry',
        operation: 'dead_letters.retry',
        handle: ({ params }: ConsoleCall<Pick<OneJob, 'job'>>) => services.retry(params.job),
      },
      {
        method: 'DELETE',
        role: 'operator',
        path: '/dead-letters',
        operation: 'dead_letters.clear',
        handle: () => services.queues.deadLetters.clear(),
      },
    ],
  }
}

async function listQueues({ catalogue, queues }: QueueServices) {
  const rows = await Promise.all(
    queuesOf(catalogue).map(async ({ kind, id }) => {
      const server = queues.of(kind, id)
      // Null while the Redis of the queue is away.
      const [states, isPaused] = await Promise.all([
        readDepth(server, { kind, modelId: id }).catch(() => null),
        server.producer
          .queue(kind, id)
          .isPaused()
          .catch(() => null),
      ])
      return {
        name: queueName(kind, id),
        kind,
        model: id,
        waiting: states && waitingOf(states),
        active: states?.active ?? null,
        is_paused: isPaused,
      }
    }),
  )
  return wholeList(rows)
}

async function listJobs(services: QueueServices, params: OneQueue) {
  const { queue } = findQueue(services, params)
  const [active, waiting] = await Promise.all([
    queue.getJobs(['active'], 0, JOBS_SHOWN_MAX - 1),
    queue.getJobs([...WAITING], 0, JOBS_SHOWN_MAX - 1, true),
  ])
  return wholeList([
    ...active.map((job) => presentJob(job, 'active')),
    ...waiting.map((job) => presentJob(job, 'waiting')),
  ])
}

/** Ids and times of a job, never its input. */
function presentJob({ id, data, priority }: Job<JobEnvelope>, state: 'active' | 'waiting') {
  const { jobId, organizationId, epoch, enqueuedAtMs, deadlineAtMs } = data
  return {
    id,
    state,
    priority,
    job_id: jobId,
    organization_id: organizationId,
    epoch,
    enqueued_at: new Date(enqueuedAtMs),
    deadline_at: new Date(deadlineAtMs),
  }
}

async function listDeadLetters({ queues }: QueueServices) {
  const letters = await queues.deadLetters.list(DEAD_JOBS_SHOWN_MAX)
  const rows = letters.map((letter) => ({
    id: letter.jobId,
    kind: letter.kind,
    model: letter.modelId,
    reason: letter.reason,
    organization_id: letter.organizationId,
    enqueued_at: new Date(letter.enqueuedAtMs),
    input_bytes: letter.inputBytes,
    is_input_kept: letter.isKept,
  }))
  return wholeList(rows)
}

/** The owner answers its client, so that the job is not considered lost and submitted again. */
async function cancelWaiting(services: QueueServices, params: OneJob): Promise<void> {
  const { job, model } = await findWaiting(services, params)
  const server = services.queues.of(model.kind, model.id)
  const replies = services.openReplies(server)
  const { jobId, epoch, replyTo } = job.data
  const error = failure.accessDenied('An operator of this service cancelled the request.', {
    code: 'job_cancelled',
  })
  const source = { jobId, epoch, runId: `console-${jobId}`, seq: 0 }
  replies.push(replyTo, source, { type: 'failed', error: toWireError(error) })
  await replies.flushed(replyTo)
  await server.producer.cancel({ kind: model.kind, modelId: model.id, jobId, epoch })
}

async function findWaiting(
  services: QueueServices,
  params: OneJob,
): Promise<{ readonly job: Job<JobEnvelope>; readonly model: CatalogueModel }> {
  const { queue, model } = findQueue(services, params)
  const job: Job<JobEnvelope> | undefined = await queue.getJob(params.job)
  if (job === undefined) {
    throw failure.notFound(`No such job: ${params.job.slice(0, 64)}`, { param: 'job' })
  }
  const state = await job.getState()
  if (WAITING.some((each) => each === state)) return { job, model }
  throw failure.conflict('The job runs already or has ended: only waiting jobs are changed.', {
    param: 'job',
    code: 'job_not_waiting',
  })
}

function findQueue(
  { catalogue, queues }: QueueServices,
  params: OneQueue,
): { readonly queue: Queue; readonly model: CatalogueModel } {
  const model = queuesOf(catalogue).find(({ kind, id }) => queueName(kind, id) === params.queue)
  if (model !== undefined) {
    const { producer } = queues.of(model.kind, model.id)
    return { model, queue: producer.queue(model.kind, model.id) }
  }
  throw failure.notFound(`No such queue: ${params.queue.slice(0, 64)}`, { param: 'queue' })
}
