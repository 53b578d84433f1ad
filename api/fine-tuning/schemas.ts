import type { TSchema } from 'typebox'

import { deletedResponse, listResponse, NULLABLE_STRING } from '#api/v1/list-response.ts'
import { METADATA_FIELD } from '#api/v1/metadata-field.ts'
import { TUNING_STATES } from '#shared/db/schema/fine-tuning.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, ofType } from '#shared/schemas.ts'

const TAGS = ['Fine-tuning']
const SECURITY = [{ apiKey: [] }]
const LIST_LIMIT_MAX = 100
/** The characters of a model name's suffix. */
const SUFFIX = { maxLength: 64, pattern: '^[A-Za-z0-9._-]*$' }
const FILE_ID = { minLength: 1, maxLength: 200 }

const REFUSED = Type.Optional(
  Type.Unknown({ description: 'Not supported: a request with this field is refused.' }),
)

const autoOr = (type: 'integer' | 'number', limits: object, description: string) =>
  Type.Optional(
    Type.Union([choice(['auto']), ofType([type], limits), Type.Null()], { description }),
  )

/** The settings of both generations of the API. */
const HYPERPARAMETERS = {
  n_epochs: autoOr('integer', { minimum: 1 }, 'Passes over the examples.'),
  batch_size: autoOr('integer', { minimum: 1, maximum: 256 }, 'Examples of one step.'),
  learning_rate_multiplier: autoOr(
    'number',
    { exclusiveMinimum: 0, maximum: 100 },
    'A factor of the usual learning rate.',
  ),
}
const HYPERPARAMETERS_FIELD = Type.Optional(
  Type.Union([Type.Object(HYPERPARAMETERS, { additionalProperties: false }), Type.Null()]),
)
const MODEL_FIELD = Type.String({
  minLength: 1,
  maxLength: 200,
  description: 'The base model; it must have the capability `fine-tune`.',
})
const optional = <T extends TSchema>(schema: T) => Type.Optional(Type.Union([schema, Type.Null()]))

/** The body of `POST /fine_tuning/jobs`. */
export const CREATE_BODY = Type.Object(
  {
    model: MODEL_FIELD,
    training_file: Type.String({
      ...FILE_ID,
      description: 'The id of a JSON-lines file with the purpose fine-tune.',
    }),
    validation_file: optional(Type.String(FILE_ID)),
    suffix: optional(Type.String(SUFFIX)),
    seed: optional(Type.Integer({ minimum: 0, maximum: 2_147_483_647 })),
    hyperparameters: HYPERPARAMETERS_FIELD,
    method: optional(
      Type.Object(
        {
          type: choice(['supervised', 'dpo', 'reinforcement'], {
            description: 'The training method; only `supervised` is supported.',
          }),
          supervised: optional(
            Type.Object(
              { hyperparameters: HYPERPARAMETERS_FIELD },
              { additionalProperties: false },
            ),
          ),
          dpo: REFUSED,
          reinforcement: REFUSED,
        },
        { additionalProperties: false },
      ),
    ),
    metadata: METADATA_FIELD,
    integrations: Type.Optional(
      ofType(['array', 'null'], { description: 'Must be empty; anything else is refused.' }),
    ),
  },
  { additionalProperties: false },
)

/** The body of `POST /fine-tunes`. */
export const FINE_TUNE_BODY = Type.Object(
  {
    training_file: Type.String(FILE_ID),
    validation_file: optional(Type.String(FILE_ID)),
    model: optional(MODEL_FIELD),
    n_epochs: HYPERPARAMETERS.n_epochs,
    batch_size: HYPERPARAMETERS.batch_size,
    learning_rate_multiplier: HYPERPARAMETERS.learning_rate_multiplier,
    prompt_loss_weight: optional(
      Type.Number({ description: 'Must be 0: the loss is never computed over prompts.' }),
    ),
    compute_classification_metrics: optional(Type.Boolean({ description: 'Must be false.' })),
    classification_n_classes: REFUSED,
    classification_positive_class: REFUSED,
    classification_betas: REFUSED,
    suffix: optional(Type.String({ ...SUFFIX, maxLength: 40 })),
  },
  { additionalProperties: false },
)

/** The path parameters. */
export const JOB_ID = Type.Object({ job_id: Type.String({ minLength: 1, maxLength: 200 }) })
export const FINE_TUNE_ID = Type.Object({
  fine_tune_id: Type.String({ minLength: 1, maxLength: 200 }),
})
const PAGE = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: LIST_LIMIT_MAX })),
  after: Type.Optional(Type.String({ maxLength: 200 })),
}
export const PAGE_QUERY = Type.Object(PAGE)
const STREAM = {
  stream: Type.Optional(
    Type.Boolean({ description: 'Answer with server-sent events until the job has ended.' }),
  ),
}
export const EVENTS_QUERY = Type.Object({ ...PAGE, ...STREAM })
export const FINE_TUNE_EVENTS_QUERY = Type.Object(STREAM)

const TIME = { type: ['integer', 'null'], description: 'A time in Unix seconds.' }

const JOB = {
  type: 'object',
  description: 'A fine-tuning job.',
  required: ['id', 'object', 'model', 'status', 'created_at', 'training_file', 'hyperparameters'],
  properties: {
    id: { type: 'string' },
    object: { const: 'fine_tuning.job' },
    model: { type: 'string' },
    created_at: { type: 'integer' },
    finished_at: TIME,
    fine_tuned_model: NULLABLE_STRING,
    organization_id: { type: 'string' },
    result_files: { type: 'array', items: { type: 'string' } },
    status: { type: 'string', enum: TUNING_STATES },
    validation_file: NULLABLE_STRING,
    training_file: { type: 'string' },
    hyperparameters: { type: 'object' },
    trained_tokens: { type: ['integer', 'null'] },
    error: { type: ['object', 'null'] },
    user_provided_suffix: NULLABLE_STRING,
    seed: { type: 'integer' },
    estimated_finish: TIME,
    integrations: { type: 'array' },
    metadata: { type: ['object', 'null'] },
    method: { type: 'object' },
  },
}
const EVENT = {
  type: 'object',
  description: 'An event of a job.',
  properties: {
    id: { type: 'string' },
    object: { const: 'fine_tuning.job.event' },
    created_at: { type: 'integer' },
    level: { type: 'string', enum: ['info', 'warn', 'error'] },
    message: { type: 'string' },
    type: { type: 'string', enum: ['message', 'metrics'] },
    data: { type: ['object', 'null'] },
  },
}
const CHECKPOINT = {
  type: 'object',
  description: 'A checkpoint of a job.',
  properties: {
    id: { type: 'string' },
    object: { const: 'fine_tuning.job.checkpoint' },
    created_at: { type: 'integer' },
    fine_tuned_model_checkpoint: { type: 'string' },
    fine_tuning_job_id: { type: 'string' },
    metrics: { type: 'object' },
    step_number: { type: 'integer' },
  },
}
const FINE_TUNE = {
  type: 'object',
  description: 'A fine-tuning job in the older format.',
  properties: {
    id: { type: 'string' },
    object: { const: 'fine-tune' },
    model: { type: 'string' },
    created_at: { type: 'integer' },
    updated_at: { type: 'integer' },
    fine_tuned_model: NULLABLE_STRING,
    organization_id: { type: 'string' },
    status: { type: 'string' },
    hyperparams: { type: 'object' },
    training_files: { type: 'array' },
    validation_files: { type: 'array' },
    result_files: { type: 'array' },
    events: { type: 'array' },
  },
}
const FINE_TUNE_EVENT = {
  type: 'object',
  properties: {
    object: { const: 'fine-tune-event' },
    created_at: { type: 'integer' },
    level: { type: 'string' },
    message: { type: 'string' },
  },
}

/** A list, or a stream with `stream=true`. */
function listOrStream(items: object): object {
  return {
    description: 'A list; if `stream` is true, events as they happen.',
    content: {
      'application/json': { schema: listResponse(items) },
      'text/event-stream': {
        schema: { description: 'Server-sent events `data: {…}` with one event of the job each.' },
      },
    },
  }
}

interface Operation {
  readonly operationId: string
  readonly summary: string
  readonly answer: object
  readonly params?: object
  readonly querystring?: object
  readonly body?: object
  readonly deprecated?: boolean
}

function operation({ answer, ...rest }: Operation) {
  return { ...rest, tags: TAGS, security: SECURITY, response: { 200: answer } }
}

const onJob = (operationId: string, summary: string, answer: object = JOB) =>
  operation({ operationId, summary, answer, params: JOB_ID })

/** The operations on jobs. */
export const CREATE = operation({
  operationId: 'createFineTuningJob',
  summary: 'Fine-tune a model',
  body: CREATE_BODY,
  answer: JOB,
})
export const LIST = operation({
  operationId: 'listFineTuningJobs',
  summary: 'List the fine-tuning jobs of the organization; `metadata[name]=value` filters them',
  querystring: PAGE_QUERY,
  answer: listResponse(JOB),
})
export const RETRIEVE = onJob('retrieveFineTuningJob', 'Show a fine-tuning job')
export const CANCEL = onJob('cancelFineTuningJob', 'Cancel a fine-tuning job')
export const PAUSE = onJob('pauseFineTuningJob', 'Pause a fine-tuning job')
export const RESUME = onJob('resumeFineTuningJob', 'Resume a paused fine-tuning job')
export const EVENTS = {
  ...onJob('listFineTuningEvents', 'List or follow the events of a job', listOrStream(EVENT)),
  querystring: EVENTS_QUERY,
}
export const CHECKPOINTS = {
  ...onJob(
    'listFineTuningJobCheckpoints',
    'List the checkpoints of a job',
    listResponse(CHECKPOINT),
  ),
  querystring: PAGE_QUERY,
}

const onFineTune = (operationId: string, summary: string, answer: object = FINE_TUNE) =>
  operation({ operationId, summary, answer, params: FINE_TUNE_ID, deprecated: true })

/** The older operations. */
export const CREATE_FINE_TUNE = operation({
  operationId: 'createFineTune',
  summary: 'Fine-tune a model',
  deprecated: true,
  body: FINE_TUNE_BODY,
  answer: FINE_TUNE,
})
export const LIST_FINE_TUNES = operation({
  operationId: 'listFineTunes',
  summary: 'List the fine-tuning jobs',
  deprecated: true,
  answer: listResponse(FINE_TUNE),
})
export const RETRIEVE_FINE_TUNE = onFineTune('retrieveFineTune', 'Show a fine-tuning job')
export const CANCEL_FINE_TUNE = onFineTune('cancelFineTune', 'Cancel a fine-tuning job')
export const FINE_TUNE_EVENTS = {
  ...onFineTune('listFineTuneEvents', 'List or follow its events', listOrStream(FINE_TUNE_EVENT)),
  querystring: FINE_TUNE_EVENTS_QUERY,
}

/** `DELETE /models/{model}`. */
export const DELETE_MODEL = operation({
  operationId: 'deleteModel',
  summary: 'Delete a fine-tuned model and its stored objects',
  params: {
    type: 'object',
    required: ['model'],
    properties: { model: { type: 'string', description: 'The name of a fine-tuned model.' } },
  },
  answer: deletedResponse('model'),
})
