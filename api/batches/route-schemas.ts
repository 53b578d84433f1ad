import { EXPIRES_AFTER } from '#api/files/expiry.ts'
import { USAGE } from '#api/inference/responses/responses-schemas.ts'
import { listResponse, NULLABLE_STRING } from '#api/v1/list-response.ts'
import { METADATA_FIELD } from '#api/v1/metadata-field.ts'
import { Type } from '#shared/schema-types.ts'
import { choice } from '#shared/schemas.ts'

import { BATCH_ENDPOINTS } from './batch.ts'

const LIST_LIMIT_MAX = 100
const TAGS = ['Batches']
const SECURITY = [{ apiKey: [] }]

/** The body of `POST /v1/batches`. */
export const CREATE_BODY = Type.Object(
  {
    input_file_id: Type.String({
      minLength: 1,
      description: 'The id of a JSON-lines file with the purpose batch.',
    }),
    endpoint: choice(Object.keys(BATCH_ENDPOINTS), {
      description: 'The endpoint that every line of the file is a request for.',
    }),
    completion_window: choice(['24h']),
    metadata: METADATA_FIELD,
    output_expires_after: Type.Optional(
      Type.Union([EXPIRES_AFTER, Type.Null()], {
        description:
          'The time after which the output and error files expire, counted from their creation.',
      }),
    ),
  },
  { additionalProperties: false },
)

/** The path parameter. */
export const BATCH_ID = Type.Object({ batch_id: Type.String({ minLength: 1, maxLength: 200 }) })

const TIME = { type: ['integer', 'null'], description: 'A time in Unix seconds.' }

const BATCH = {
  type: 'object',
  description: 'A batch.',
  required: ['id', 'object', 'endpoint', 'input_file_id', 'status', 'created_at'],
  properties: {
    id: { type: 'string' },
    object: { const: 'batch' },
    endpoint: { type: 'string' },
    errors: {
      type: ['object', 'null'],
      properties: { object: { const: 'list' }, data: { type: 'array' } },
    },
    input_file_id: { type: 'string' },
    completion_window: { type: 'string' },
    status: {
      type: 'string',
      enum: [
        'validating',
        'failed',
        'in_progress',
        'finalizing',
        'completed',
        'expired',
        'cancelling',
        'cancelled',
      ],
    },
    output_file_id: NULLABLE_STRING,
    error_file_id: NULLABLE_STRING,
    created_at: { type: 'integer' },
    in_progress_at: TIME,
    expires_at: TIME,
    finalizing_at: TIME,
    completed_at: TIME,
    failed_at: TIME,
    expired_at: TIME,
    cancelling_at: TIME,
    cancelled_at: TIME,
    request_counts: {
      type: 'object',
      properties: {
        total: { type: 'integer' },
        completed: { type: 'integer' },
        failed: { type: 'integer' },
      },
    },
    model: { ...NULLABLE_STRING, description: 'The model of the first answer.' },
    usage: { ...USAGE, description: 'The tokens of all answered requests.' },
    metadata: { type: ['object', 'null'] },
    output_expires_after: {
      type: ['object', 'null'],
      properties: { anchor: { const: 'created_at' }, seconds: { type: 'integer' } },
    },
  },
}

/** `POST /batches`. */
export const CREATE = {
  operationId: 'createBatch',
  summary: 'Run the requests of a file within a day',
  tags: TAGS,
  security: SECURITY,
  body: CREATE_BODY,
  response: { 200: BATCH },
}

/** `GET /batches`. */
export const LIST = {
  operationId: 'listBatches',
  summary: 'List the batches of the organization',
  tags: TAGS,
  security: SECURITY,
  querystring: Type.Object(
    {
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: LIST_LIMIT_MAX })),
      after: Type.Optional(Type.String({ maxLength: 200 })),
    },
    { additionalProperties: false },
  ),
  response: {
    200: listResponse(BATCH),
  },
}

/** `GET /batches/{batch_id}`. */
export const RETRIEVE = {
  operationId: 'retrieveBatch',
  summary: 'Show a batch',
  tags: TAGS,
  security: SECURITY,
  params: BATCH_ID,
  response: { 200: BATCH },
}

/** `POST /batches/{batch_id}/cancel`. */
export const CANCEL = {
  operationId: 'cancelBatch',
  summary: 'Cancel a batch; its answers so far are kept',
  tags: TAGS,
  security: SECURITY,
  params: BATCH_ID,
  response: { 200: BATCH },
}
