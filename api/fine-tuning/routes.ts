import type { FastifyInstance, FastifyPluginAsync } from 'fastify'
import type { Static } from 'typebox'

import { callerOf } from '#api/v1/request-context.ts'
import { failure } from '#shared/errors.ts'
import { isStorable } from '#shared/storable.ts'
import { Turns } from '#shared/turns.ts'

import {
  cancelTuningJob,
  jobOf,
  noSuchJob,
  pauseTuningJob,
  resumeTuningJob,
  type TuningServices,
} from './changes.ts'
import { createTuningJob, requestedByJob, runIdOf } from './create-job.ts'
import { registerDeleteModel } from './delete-model.ts'
import { streamTuningEvents } from './event-stream.ts'
import { registerFineTunes } from './fine-tunes.ts'
import { presentCheckpoint, presentTuningEvent, presentTuningJob } from './present.ts'
import { runTuningJob } from './run.ts'
import {
  CANCEL,
  CHECKPOINTS,
  CREATE,
  type CREATE_BODY,
  EVENTS,
  type EVENTS_QUERY,
  LIST,
  type PAGE_QUERY,
  PAUSE,
  RESUME,
  RETRIEVE,
} from './schemas.ts'

const SCOPE = { scope: 'fine_tuning' } as const
const LIST_LIMIT = 20
/** Event streams that query the database at the same time. */
const STREAM_READS_AT_ONCE = 2
const EVENT_LIMIT = 20
const CHECKPOINT_LIMIT = 10

/** `/fine_tuning/jobs`, `/fine-tunes`, and deletion of tuned models. */
export function fineTuningPlugin(services: TuningServices): FastifyPluginAsync {
  const reads = new Turns(STREAM_READS_AT_ONCE)
  return async (app) => {
    registerJobs(app, services)
    registerChanges(app, services)
    registerLists(app, services, reads)
    registerRun(app, services)
    registerPermissions(app)
    registerFineTunes(app, services, reads)
    registerDeleteModel(app, services)
  }
}

function registerJobs(app: FastifyInstance, services: TuningServices): void {
  const { tuning } = services
  app.post('/fine_tuning/jobs', { schema: CREATE, config: SCOPE }, async (request) => {
    const wanted = requestedByJob(request.body as Static<typeof CREATE_BODY>)
    return presentTuningJob(await createTuningJob(request, services, wanted))
  })

  app.get('/fine_tuning/jobs', { schema: LIST, config: SCOPE }, async (request) => {
    const { limit = LIST_LIMIT, after } = request.query as Static<typeof PAGE_QUERY>
    const { organizationId } = callerOf(request)
    if (after !== undefined && (await tuning.find(organizationId, after)) === undefined) {
      throw noSuchJob(after, 'after')
    }
    const metadata = metadataOf(request.query as Readonly<Record<string, unknown>>)
    const { rows, hasMore } = await tuning.list(organizationId, {
      limit,
      ...(after !== undefined && { after }),
      ...(metadata !== undefined && { metadata }),
    })
    return { object: 'list', data: rows.map(presentTuningJob), has_more: hasMore }
  })

  app.get('/fine_tuning/jobs/:job_id', { schema: RETRIEVE, config: SCOPE }, async (request) =>
    presentTuningJob(await jobOf(request, tuning)),
  )
}

/** Cancel, pause and resume. */
function registerChanges(app: FastifyInstance, services: TuningServices): void {
  const { tuning } = services
  app.post('/fine_tuning/jobs/:job_id/cancel', { schema: CANCEL, config: SCOPE }, async (request) =>
    presentTuningJob(await cancelTuningJob(services, await jobOf(request, tuning))),
  )

  app.post('/fine_tuning/jobs/:job_id/pause', { schema: PAUSE, config: SCOPE }, async (request) =>
    presentTuningJob(await pauseTuningJob(services, await jobOf(request, tuning))),
  )

  app.post('/fine_tuning/jobs/:job_id/resume', { schema: RESUME, config: SCOPE }, async (request) =>
    presentTuningJob(
      await resumeTuningJob(callerOf(request), services, await jobOf(request, tuning)),
    ),
  )
}

/** Events and checkpoints. */
function registerLists(app: FastifyInstance, { tuning }: TuningServices, reads: Turns): void {
  app.get(
    '/fine_tuning/jobs/:job_id/events',
    { schema: EVENTS, config: SCOPE },
    async (request, reply) => {
      const job = await jobOf(request, tuning)
      const { stream, ...query } = request.query as Static<typeof EVENTS_QUERY>
      if (stream === true) {
        return streamTuningEvents(reply, { tuning, reads, job, present: presentTuningEvent })
      }
      const { rows, hasMore } = await tuning.events(job.id, pageOf(query, EVENT_LIMIT))
      return { object: 'list', data: rows.map(presentTuningEvent), has_more: hasMore }
    },
  )

  const checkpoints = { schema: CHECKPOINTS, config: SCOPE }
  app.get('/fine_tuning/jobs/:job_id/checkpoints', checkpoints, async (request) => {
    const job = await jobOf(request, tuning)
    const page = pageOf(request.query as Static<typeof PAGE_QUERY>, CHECKPOINT_LIMIT)
    const { rows, hasMore } = await tuning.checkpoints(job.id, page)
    return {
      object: 'list',
      data: rows.map((row) => presentCheckpoint(job, row)),
      first_id: rows[0]?.id ?? null,
      last_id: rows.at(-1)?.id ?? null,
      has_more: hasMore,
    }
  })
}

/** The request that runs a job; only background jobs of this service send it. */
function registerRun(app: FastifyInstance, services: TuningServices): void {
  const run = { schema: { hide: true }, config: SCOPE }
  app.post('/fine_tuning/jobs/:job_id/run', run, async (request, reply) => {
    const job = await jobOf(request, services.tuning)
    if (request.context.stored?.id !== runIdOf(job)) throw noSuchJob(job.id)
    return runTuningJob({ request, reply }, services, job)
  })
}

/** Sharing checkpoints between projects is not supported, because there are no projects. */
function registerPermissions(app: FastifyInstance): void {
  const path = '/fine_tuning/checkpoints/:checkpoint/permissions'
  const refuse = (): never => {
    throw failure.invalidRequest(
      'Permissions of checkpoints are not served: a checkpoint belongs to its organization.',
      { code: 'unsupported_operation' },
    )
  }
  const options = { schema: { hide: true }, config: SCOPE }
  app.get(path, options, refuse)
  app.post(path, options, refuse)
  app.delete(`${path}/:permission`, options, refuse)
}

function pageOf(query: Static<typeof PAGE_QUERY>, limit: number) {
  return {
    limit: query.limit ?? limit,
    ...(query.after !== undefined && { after: query.after }),
  }
}

/**
 * The filter `metadata[name]=value`; null for `metadata=null`, which selects jobs without metadata.
 */
function metadataOf(
  query: Readonly<Record<string, unknown>>,
): Readonly<Record<string, string>> | null | undefined {
  if (query.metadata === 'null') return null
  const pairs = Object.entries(query).flatMap(([name, value]) => {
    const key = /^metadata\[(.{1,64})\]$/.exec(name)?.[1]
    return key === undefined || typeof value !== 'string' ? [] : [[key, value] as const]
  })
  const isText = pairs.every(([key, value]) => isStorable(key) && isStorable(value))
  if (!isText) {
    throw failure.invalidRequest("Invalid 'metadata': it contains an invalid character.", {
      param: 'metadata',
      code: 'invalid_value',
    })
  }
  return pairs.length === 0 ? undefined : Object.fromEntries(pairs)
}
