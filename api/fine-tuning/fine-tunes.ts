import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { callerOf } from '#api/v1/request-context.ts'
import { unixSeconds } from '#shared/clock.ts'
import type { TuningEventRow, TuningJobRow } from '#shared/db/schema/fine-tuning.ts'
import type { Turns } from '#shared/turns.ts'

import { cancelTuningJob, jobOf, type TuningServices } from './changes.ts'
import { type CreateServices, createTuningJob, requestedByFineTune } from './create-job.ts'
import { streamTuningEvents } from './event-stream.ts'
import { presentFineTune, presentFineTuneEvent } from './present.ts'
import {
  CANCEL_FINE_TUNE,
  CREATE_FINE_TUNE,
  type FINE_TUNE_BODY,
  FINE_TUNE_EVENTS,
  type FINE_TUNE_EVENTS_QUERY,
  LIST_FINE_TUNES,
  RETRIEVE_FINE_TUNE,
} from './schemas.ts'

const SCOPE = { scope: 'fine_tuning' } as const
/** Clients of 2021 do not page through lists. */
const LISTED_MAX = 1000
const EVENTS_MAX = 2000

/** `/fine-tunes`: the same jobs in the API of 2021. */
export function registerFineTunes(
  app: FastifyInstance,
  services: TuningServices,
  reads: Turns,
): void {
  const { tuning } = services
  const present = async (job: TuningJobRow): Promise<object> =>
    presentFineTune(job, await filesOf(services, job), await eventsOf(services, job))

  app.post('/fine-tunes', { schema: CREATE_FINE_TUNE, config: SCOPE }, async (request) => {
    const wanted = requestedByFineTune(request.body as Static<typeof FINE_TUNE_BODY>)
    return present(await createTuningJob(request, services, wanted))
  })

  app.get('/fine-tunes', { schema: LIST_FINE_TUNES, config: SCOPE }, async (request) => {
    const { organizationId } = callerOf(request)
    const { rows } = await tuning.list(organizationId, { limit: LISTED_MAX })
    const data = rows.map((job) => presentFineTune(job, namesOf(job)))
    return { object: 'list', data }
  })

  const retrieve = { schema: RETRIEVE_FINE_TUNE, config: SCOPE }
  app.get('/fine-tunes/:fine_tune_id', retrieve, async (request) =>
    present(await jobOf(request, tuning)),
  )

  const cancel = { schema: CANCEL_FINE_TUNE, config: SCOPE }
  app.post('/fine-tunes/:fine_tune_id/cancel', cancel, async (request) =>
    present(await cancelTuningJob(services, await jobOf(request, tuning))),
  )

  const events = { schema: FINE_TUNE_EVENTS, config: SCOPE }
  app.get('/fine-tunes/:fine_tune_id/events', events, async (request, reply) => {
    const job = await jobOf(request, tuning)
    const { stream } = request.query as Static<typeof FINE_TUNE_EVENTS_QUERY>
    if (stream === true) {
      return streamTuningEvents(reply, { tuning, reads, job, present: presentFineTuneEvent })
    }
    const rows = await eventsOf(services, job)
    return { object: 'list', data: rows.map(presentFineTuneEvent) }
  })
}

function eventsOf({ tuning }: TuningServices, { id }: TuningJobRow): Promise<TuningEventRow[]> {
  return tuning.eventsBehind(id, 0, EVENTS_MAX)
}

/** The files of a job that are still stored. */
async function filesOf({ files }: Pick<CreateServices, 'files'>, job: TuningJobRow) {
  const read = async (id: string | null): Promise<readonly object[]> => {
    const file = id === null ? undefined : await files.find(job.organizationId, id)
    if (file === undefined) return id === null ? [] : [named(id)]
    const { bytes, filename, createdAt } = file
    const created = unixSeconds(createdAt.getTime())
    return [{ ...named(String(id)), bytes, filename, created_at: created, status: 'processed' }]
  }
  return { training: await read(job.trainingFile), validation: await read(job.validationFile) }
}

function namesOf({ trainingFile, validationFile }: TuningJobRow) {
  return {
    training: [named(trainingFile)],
    validation: validationFile === null ? [] : [named(validationFile)],
  }
}

function named(id: string): object {
  return { id, object: 'file', purpose: 'fine-tune' }
}
