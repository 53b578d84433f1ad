import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Static } from 'typebox'

import type { ResponseStorage } from '#api/inference/services.ts'
import { hasEnded } from '#api/jobs/job.ts'
import type { JobSummary } from '#api/jobs/job-store.ts'
import { streamEvents } from '#api/jobs/routes.ts'
import type { StoredAnswer } from '#api/stored/answer-store.ts'
import { presentItems } from '#api/stored/conversation-routes.ts'
import { deletedResponse, listResponse } from '#api/v1/list-response.ts'
import { callerOf, contentsReaderOf } from '#api/v1/request-context.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'

import { RESPONSE } from './responses-schemas.ts'

const CONFIG = { scope: 'responses', readsContents: true } as const
const TAGS = ['Responses']
const SECURITY = [{ apiKey: [] }]
const ID = Type.Object({ response_id: Type.String({ minLength: 1, maxLength: 200 }) })
const INCLUDE = Type.Optional(Type.Array(Type.String({ maxLength: 100 }), { maxItems: 16 }))
const RETRIEVE_QUERY = Type.Object(
  {
    stream: Type.Optional(Type.Boolean({ description: 'Stream the events of the response.' })),
    starting_after: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: Number.MAX_SAFE_INTEGER,
        description: 'The `sequence_number` of the last event that the client has received.',
      }),
    ),
    include: INCLUDE,
    include_obfuscation: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: true },
)
const ITEMS_QUERY = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
    order: Type.Optional(Type.Enum(['asc', 'desc'])),
    after: Type.Optional(Type.String({ maxLength: 512 })),
    include: INCLUDE,
  },
  { additionalProperties: true },
)
const ITEM_LIST = listResponse({ type: 'object' }, 'A list of items.')

const route = (operationId: string, summary: string, answer: object, querystring?: object) => ({
  config: CONFIG,
  schema: {
    operationId,
    summary,
    tags: TAGS,
    security: SECURITY,
    params: ID,
    ...(querystring !== undefined && { querystring }),
    response: { 200: answer },
  },
})
const DELETED = deletedResponse('response')

/**
 * `/responses/{response_id}`: fetch, follow, list the input, cancel and delete stored responses.
 */
export function registerStoredResponses(app: FastifyInstance, stored: ResponseStorage): void {
  const { answers, jobs, background } = stored
  const read = async (request: FastifyRequest): Promise<StoredAnswer> => {
    const { response_id: id } = request.params as Static<typeof ID>
    const found = await answers.find(contentsReaderOf(request), 'response', id)
    if (found === undefined) throw noSuchResponse(id)
    return found
  }
  const find = async (request: FastifyRequest): Promise<StoredAnswer & { job?: JobSummary }> => {
    const found = await read(request)
    const { jobId, organizationId } = found.row
    const job = jobId === null ? undefined : await jobs.find(organizationId, jobId)
    if (job === undefined) return found
    // A job stores its answer before it ends, so the row above may be older than both.
    return hasEnded(job) && isQueued(found) ? { ...(await read(request)), job } : { ...found, job }
  }
  const retrieve = route('retrieveResponse', 'Fetch a stored response', RESPONSE, RETRIEVE_QUERY)
  app.get('/responses/:response_id', retrieve, async (request, reply) => {
    const found = await find(request)
    const { stream, starting_after: after } = request.query as Static<typeof RETRIEVE_QUERY>
    if (stream !== true) return presentStored(found)
    if (found.job === undefined) {
      throw failure.invalidRequest(
        'Only a response that runs in the background can be streamed later.',
        { param: 'stream', code: 'invalid_value' },
      )
    }
    const from = after === undefined ? 0 : after + 1
    return streamEvents(reply, { background, job: found.job, from })
  })

  const inputs = route('listInputItems', 'List the input of a response', ITEM_LIST, ITEMS_QUERY)
  app.get('/responses/:response_id/input_items', inputs, async (request) => {
    const { input } = await find(request)
    const { limit = 20, order = 'desc', after } = request.query as Static<typeof ITEMS_QUERY>
    const ordered = order === 'asc' ? input : input.toReversed()
    const start = after === undefined ? 0 : ordered.findIndex(({ id }) => id === after) + 1
    if (after !== undefined && start === 0) throw noSuchItem(after)
    const page = ordered.slice(start, start + limit)
    return presentItems({ items: page, hasMore: start + limit < ordered.length })
  })

  const cancel = route('cancelResponse', 'Cancel a response that runs in the background', RESPONSE)
  app.post('/responses/:response_id/cancel', cancel, async (request) => {
    const { row, job } = await find(request)
    if (job === undefined) {
      throw failure.invalidRequest('Only a response that runs in the background can be cancelled.')
    }
    await jobs.cancel(row.organizationId, job.id)
    return presentStored(await find(request))
  })

  const remove = route('deleteResponse', 'Delete a stored response', DELETED)
  app.delete('/responses/:response_id', remove, async (request) => {
    const { response_id: id } = request.params as Static<typeof ID>
    const { organizationId } = callerOf(request)
    const row = await answers.remove(organizationId, 'response', id)
    if (row === undefined) throw noSuchResponse(id)
    if (row.jobId !== null) await jobs.cancel(organizationId, row.jobId)
    return { id, object: 'response', deleted: true }
  })
}

/** Whether the response's job has not stored an answer yet. */
function isQueued({ answer }: StoredAnswer): boolean {
  return answer.status === 'queued'
}

/**
 * A stored response; a response of a job has the state of the job. One without its job, whose
 * process died before it stored the job, has failed.
 */
function presentStored(stored: StoredAnswer & { readonly job?: JobSummary }): object {
  const { row, answer, job } = stored
  const presented = { ...answer, metadata: row.metadata ?? {} }
  if (!isQueued(stored)) return presented
  if (job !== undefined && job.cancelledAt !== null) return { ...presented, status: 'cancelled' }
  if (job?.state === 'queued' || job?.state === 'in_progress') {
    return { ...presented, status: job.state }
  }
  const message = job?.error?.message ?? 'The response could not be completed.'
  return { ...presented, status: 'failed', error: { code: 'server_error', message } }
}

function noSuchResponse(id: string): ServiceError {
  return failure.notFound(`Response with id '${id.slice(0, 100)}' not found.`, {
    param: 'response_id',
  })
}

function noSuchItem(id: string): ServiceError {
  return failure.notFound(`Item with id '${id.slice(0, 100)}' not found.`, { param: 'after' })
}
