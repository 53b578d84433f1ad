import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from 'fastify'
import type { Static } from 'typebox'

import { openEventStream } from '#api/http/sse.ts'
import { checkMetadata } from '#api/v1/metadata-field.ts'
import { callerOf, contentsReaderOf } from '#api/v1/request-context.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { isRecord } from '#shared/json.ts'

import { type BackgroundJobs, prioritize } from './background-jobs.ts'
import { hasEnded, presentJob } from './job.ts'
import type { JobStore, JobSummary } from './job-store.ts'
import {
  CANCEL,
  CHANGE,
  EVENTS,
  type EVENTS_QUERY,
  type JOB_CHANGE,
  type JOB_ID,
  LIST,
  type LIST_QUERY,
  RESULT,
  RETRIEVE,
} from './schemas.ts'

const SCOPE = { scope: 'jobs' } as const
const LIST_LIMIT = 20

interface JobRouteServices {
  readonly jobs: JobStore
  readonly background: BackgroundJobs
}

/** `/jobs`: list, retrieve, follow, fetch the result, cancel. */
export function jobsPlugin({ jobs, background }: JobRouteServices): FastifyPluginAsync {
  const find = async (request: Parameters<typeof callerOf>[0] & { params: unknown }) => {
    const { job_id: id } = request.params as Static<typeof JOB_ID>
    const job = await jobs.find(callerOf(request).organizationId, id)
    if (job === undefined) throw noSuchJob(id)
    return job
  }
  return async (app) => {
    app.get('/jobs', { schema: LIST, config: SCOPE }, async (request) => {
      const {
        status,
        limit = LIST_LIMIT,
        metadata,
        ...query
      } = request.query as Static<typeof LIST_QUERY>
      const { organizationId } = callerOf(request)
      const { after } = query
      if (after !== undefined && (await jobs.find(organizationId, after)) === undefined) {
        throw noSuchJob(after, 'after')
      }
      const pairs = metadata === undefined ? undefined : pairsOf(metadata)
      const { rows, hasMore } = await jobs.list(organizationId, {
        ...query,
        limit,
        ...(status !== undefined && { state: status }),
        ...(pairs !== undefined && { metadata: pairs }),
      })
      return {
        object: 'list',
        data: rows.map(presentJob),
        first_id: rows[0]?.id ?? null,
        last_id: rows.at(-1)?.id ?? null,
        has_more: hasMore,
      }
    })

    app.get('/jobs/:job_id', { schema: RETRIEVE, config: SCOPE }, async (request) =>
      presentJob(await find(request)),
    )

    const events = { schema: EVENTS, config: { ...SCOPE, readsContents: 'later' } } as const
    app.get('/jobs/:job_id/events', events, async (request, reply) => {
      const job = await find(request)
      const { starting_after: after } = request.query as Static<typeof EVENTS_QUERY>
      return streamEvents(reply, { background, job, from: after === undefined ? 0 : after + 1 })
    })

    const result = { schema: RESULT, config: { ...SCOPE, readsContents: true } } as const
    app.get('/jobs/:job_id/result', result, async (request, reply) =>
      sendResult({ request, reply }, background, await find(request)),
    )

    app.patch('/jobs/:job_id', { schema: CHANGE, config: SCOPE }, async (request) => {
      const { priority } = request.body as Static<typeof JOB_CHANGE>
      return presentJob(await prioritize(jobs, await find(request), priority))
    })

    app.post('/jobs/:job_id/cancel', { schema: CANCEL, config: SCOPE }, async (request) => {
      const { id, organizationId } = await find(request)
      const job = await jobs.cancel(organizationId, id)
      if (job === undefined) throw noSuchJob(id)
      if (job.cancelledAt === null) {
        throw failure.conflict(`Cannot cancel a job with status '${job.state}'.`, {
          shouldRetry: false,
        })
      }
      return presentJob(job)
    })
  }
}

async function sendResult(
  { request, reply }: { readonly request: FastifyRequest; readonly reply: FastifyReply },
  background: BackgroundJobs,
  job: JobSummary,
): Promise<FastifyReply> {
  if (!hasEnded(job)) {
    throw failure.conflict(`The job is ${job.state}: it has no result yet.`, {
      code: 'job_not_ended',
    })
  }
  const result = await background.resultOf(contentsReaderOf(request), job)
  if (result === undefined) {
    const message = job.error?.message ?? `The job is ${job.state}: it has no result.`
    throw failure.notFound(message, { code: job.error?.code ?? `job_${job.state}` })
  }
  return reply
    .code(job.resultStatus ?? 200)
    .headers({ 'content-type': 'application/json', ...job.resultHeaders })
    .send(result)
}

/** Streams the events of a job from a position on, until it ends or the client leaves. */
export async function streamEvents(
  reply: FastifyReply,
  options: {
    readonly background: BackgroundJobs
    readonly job: JobSummary
    readonly from: number
  },
): Promise<FastifyReply> {
  const { background, job, from } = options
  const { request } = reply
  const { contentsRoom, reserveContents } = request.context
  const reader = {
    ...contentsReaderOf(request),
    reserve: async () => reserveContents?.(),
  }
  // Nothing is read while a job runs: its events are sent as they occur.
  contentsRoom?.end()
  const stream = openEventStream(reply)
  const { signal } = stream
  try {
    for await (const events of background.eventsOf({ reader, job, from, signal })) {
      await stream.write(events)
    }
  } finally {
    stream.end()
  }
  return reply
}

function pairsOf(text: string): Readonly<Record<string, string>> {
  const fault = failure.invalidRequest(
    "Invalid 'metadata': expected a JSON object whose values are strings.",
    { param: 'metadata', code: 'invalid_value' },
  )
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch {
    throw fault
  }
  if (!isRecord(parsed)) throw fault
  const pairs = Object.entries(parsed)
  if (!pairs.every((pair): pair is [string, string] => typeof pair[1] === 'string')) throw fault
  const metadata = Object.fromEntries(pairs)
  checkMetadata(metadata)
  return metadata
}

function noSuchJob(id: string, param = 'job_id'): ServiceError {
  return failure.notFound(`No background job found with id '${id.slice(0, 100)}'.`, { param })
}
