import { listResponse, NULLABLE_STRING } from '#api/v1/list-response.ts'
import { JOB_PRIORITIES, JOB_STATES } from '#shared/db/schema/jobs.ts'
import { Type } from '#shared/schema-types.ts'

const TAGS = ['Jobs']
const SECURITY = [{ apiKey: [] }]
const LIST_LIMIT_MAX = 100
const TIME = { type: ['integer', 'null'], description: 'Unix seconds.' }

/** The path parameter. */
export const JOB_ID = Type.Object({ job_id: Type.String({ minLength: 1, maxLength: 200 }) })

const JOB = {
  type: 'object',
  description: 'A background job.',
  required: ['id', 'object', 'endpoint', 'status', 'created_at'],
  properties: {
    id: { type: 'string' },
    object: { const: 'job' },
    endpoint: { type: 'string', description: 'The path that its request was sent to.' },
    model: NULLABLE_STRING,
    status: { type: 'string', enum: [...JOB_STATES] },
    priority: { type: 'string', enum: [...JOB_PRIORITIES] },
    response_id: NULLABLE_STRING,
    metadata: { type: ['object', 'null'] },
    error: {
      type: ['object', 'null'],
      properties: { code: { type: 'string' }, message: { type: 'string' } },
    },
    attempts: { type: 'integer' },
    created_at: { type: 'integer', description: 'Unix seconds.' },
    not_before: { type: 'integer', description: 'Unix seconds.' },
    expires_at: { type: 'integer', description: 'Its deadline, in Unix seconds.' },
    started_at: TIME,
    ended_at: TIME,
    cancelled_at: TIME,
    result_status: { type: ['integer', 'null'], description: 'The status of its answer.' },
  },
}

/** The query of `GET /jobs`. */
export const LIST_QUERY = Type.Object(
  {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: LIST_LIMIT_MAX })),
    after: Type.Optional(Type.String({ maxLength: 200 })),
    status: Type.Optional(Type.Enum(JOB_STATES)),
    endpoint: Type.Optional(Type.String({ maxLength: 200 })),
    model: Type.Optional(Type.String({ maxLength: 200 })),
    metadata: Type.Optional(
      Type.String({
        maxLength: 4096,
        description: 'Pairs that a job must have, as a JSON object.',
      }),
    ),
  },
  { additionalProperties: false },
)

/** `GET /jobs`. */
export const LIST = {
  operationId: 'listJobs',
  summary: 'List the background jobs of the organization',
  tags: TAGS,
  security: SECURITY,
  querystring: LIST_QUERY,
  response: {
    200: listResponse(JOB),
  },
}

const one = (operationId: string, summary: string, response: object) => ({
  operationId,
  summary,
  tags: TAGS,
  security: SECURITY,
  params: JOB_ID,
  response: { 200: response },
})

/** `GET /jobs/{job_id}`. */
export const RETRIEVE = one('retrieveJob', 'Show a background job', JOB)
/** The body of `PATCH /jobs/{job_id}`. */
export const JOB_CHANGE = Type.Object(
  {
    priority: Type.Enum(JOB_PRIORITIES, {
      description: 'Priority among the waiting jobs of the organization.',
    }),
  },
  { additionalProperties: false },
)
/** `PATCH /jobs/{job_id}`. */
export const CHANGE = {
  ...one('updateJob', 'Change the priority of a waiting background job', JOB),
  body: JOB_CHANGE,
}
/** `POST /jobs/{job_id}/cancel`. */
export const CANCEL = one('cancelJob', 'Cancel a background job', JOB)
/** `GET /jobs/{job_id}/result`. */
export const RESULT = one('retrieveJobResult', 'Fetch the answer of a background job', {
  description: 'What the request would have been answered, with its status and type.',
  content: { 'application/json': { schema: {} }, 'text/event-stream': { schema: {} } },
})
/** The query of routes that stream the events of a job. */
export const EVENTS_QUERY = Type.Object(
  {
    starting_after: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: Number.MAX_SAFE_INTEGER,
        description: 'The number of the last event that the client has.',
      }),
    ),
  },
  { additionalProperties: false },
)
/** `GET /jobs/{job_id}/events`. */
export const EVENTS = {
  ...one('streamJobEvents', 'Stream the events of a background job', {
    description: 'Server-sent events from the given place on, until the job has ended.',
    content: { 'text/event-stream': { schema: {} } },
  }),
  querystring: EVENTS_QUERY,
}
