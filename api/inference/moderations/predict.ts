import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import {
  TRUNCATION_DIRECTION,
  truncationSide,
} from '#api/inference/embeddings/embedding-request.ts'
import { INPUTS, withFieldNames } from '#api/inference/field-names.ts'
import {
  ineffective,
  invalidValue,
  optionalBoolean,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { Type } from '#shared/schema-types.ts'

import { checkTextCount, classifyingJob } from './classifying-job.ts'

const TEXT = Type.String({ minLength: 1 })
const BODY = Type.Object(
  {
    model: optionalString({
      minLength: 1,
      description: 'The id of a model; the first text classifier if absent.',
    }),
    inputs: Type.Union(
      [TEXT, Type.Array(TEXT, { minItems: 1 }), Type.Array(Type.Array(TEXT, { minItems: 1 }))],
      { description: 'A text, or a list of lists with one text each.' },
    ),
    raw_scores: optionalBoolean({
      default: false,
      description: 'Return the logits of the model instead of probabilities.',
    }),
    truncate: optionalBoolean({
      default: false,
      description:
        'Truncate inputs that do not fit into the context of the model; otherwise they are refused.',
    }),
    truncation_direction: TRUNCATION_DIRECTION,
    parameters: ineffective({ type: ['object', 'null'] }),
  },
  { additionalProperties: false },
)

const LABELS = {
  type: 'array',
  items: {
    type: 'object',
    required: ['label', 'score'],
    properties: { label: { type: 'string' }, score: { type: 'number' } },
  },
}
const RESPONSE = {
  description:
    'The labels of the text, the most probable first; for several texts, a list of such lists.',
  anyOf: [LABELS, { type: 'array', items: LABELS }],
}

/** `POST /predict` of Text Embeddings Inference: the labels of texts. */
export function registerPredict(app: FastifyInstance, services: InferenceServices): void {
  app.post('/predict', {
    config: { scope: 'embeddings' },
    preValidation: async ({ body }) => checkTextCount(body, 'inputs'),
    schema: {
      operationId: 'createPrediction',
      summary: 'Classify texts, as Text Embeddings Inference does',
      tags: ['Moderations'],
      security: [{ apiKey: [] }],
      body: BODY,
      response: { 200: RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) =>
      withFieldNames(INPUTS, () => predict({ request, reply }, services)),
  })
}

async function predict(http: Http, services: InferenceServices): Promise<object> {
  const body = http.request.body as Static<typeof BODY>
  refuseLabels(body.parameters)
  const job = await classifyingJob(services, callerOf(http.request), {
    modelName: body.model,
    endpoint: 'predict',
    items: textsOf(body.inputs),
    ...(body.truncate === true && { tokensMax: 'context' as const }),
    ...truncationSide(body.truncation_direction),
    hasMarkers: true,
    isActivated: body.raw_scores !== true,
  })
  const { result } = await runJob(http, services, { kind: 'embedding', ...job })
  if (result.task !== 'classify') throw new Error('a classification was answered otherwise')
  const rows = result.probabilities.map((scores) =>
    scores
      .map((score, index) => ({ score, label: result.labels[index] ?? String(index) }))
      .toSorted((one, other) => other.score - one.score),
  )
  const isSeveral = Array.isArray(body.inputs) && Array.isArray(body.inputs[0])
  return isSeveral ? rows : (rows[0] ?? [])
}

/** Refuses labels of the client's own: the answer would have those of the model instead. */
function refuseLabels(parameters: unknown): void {
  const { candidate_labels: labels } = (parameters ?? {}) as { candidate_labels?: unknown }
  if (labels === undefined) return
  throw invalidValue(
    'parameters.candidate_labels',
    'the labels are those of the model. Send your own as `candidate_labels` to /v1/classify.',
  )
}

/** The texts of a request. In that server a list of two is a pair, for models of pairs. */
function textsOf(inputs: Static<typeof BODY>['inputs']): readonly string[] {
  if (typeof inputs === 'string') return [inputs]
  const lists = inputs.map((entry, index) => {
    return typeof entry === 'string'
      ? { texts: inputs as readonly string[], path: 'inputs' }
      : { texts: entry, path: `inputs[${index}]` }
  })
  const pair = lists.find(({ texts }) => texts.length > 1)
  if (pair !== undefined) {
    throw invalidValue(pair.path, 'expected one text; put each of several texts into a list.')
  }
  return lists.flatMap(({ texts }) => texts)
}
