import type { FastifyInstance } from 'fastify'
import { type Static, Type } from 'typebox'

import { fixed, ineffective } from '#api/inference/field-schemas.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import { SAMPLING_FIELDS } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { type AnswerHead, answerHeadOf, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { EmbeddingResult } from '#shared/contracts/embedding.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { classifyingJob, TEXTS_MAX } from './classify-texts.ts'

const TEXT = Type.String({ minLength: 1 })
/** The body of `POST /v1/classify`. */
export const CLASSIFY_BODY = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'The id of a model.' }),
    input: Type.Union([TEXT, Type.Array(TEXT, { minItems: 1, maxItems: TEXTS_MAX })], {
      description: 'A text, or several.',
    }),
    truncate_prompt_tokens: fixed([-1]),
    priority: ineffective({ type: ['integer', 'null'] }),
    user: SAMPLING_FIELDS.user,
  },
  { additionalProperties: false },
)

export type ClassifyBody = Static<typeof CLASSIFY_BODY>

const CLASSIFY_RESPONSE = {
  type: 'object',
  description: 'The label of each text, in their order.',
  required: ['id', 'object', 'created', 'model', 'data', 'usage'],
  properties: {
    id: { type: 'string' },
    object: { const: 'list' },
    created: { type: 'integer' },
    model: { type: 'string' },
    data: {
      type: 'array',
      items: {
        type: 'object',
        required: ['index', 'label', 'probs', 'num_classes'],
        properties: {
          index: { type: 'integer' },
          label: { type: 'string', description: 'The most probable label.' },
          probs: {
            type: 'array',
            description: 'The probability of each label, in the order of the model.',
            items: { type: 'number', minimum: 0, maximum: 1 },
          },
          num_classes: { type: 'integer' },
        },
      },
    },
    usage: {
      type: 'object',
      properties: { prompt_tokens: { type: 'integer' }, total_tokens: { type: 'integer' } },
    },
  },
}

/** `POST /classify`, as vLLM has it: the labels of texts. */
export function registerClassify(
  app: FastifyInstance,
  services: InferenceServices,
  operationId = 'createClassification',
): void {
  app.post('/classify', {
    config: { scope: 'embeddings' },
    schema: {
      operationId,
      summary: 'Label texts',
      tags: ['Moderations'],
      security: [{ apiKey: [] }],
      body: CLASSIFY_BODY,
      response: { 200: CLASSIFY_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) => classify({ request, reply }, services),
  })
}

async function classify(http: Http, services: InferenceServices): Promise<object> {
  const { request } = http
  const wanted = await labellingJob(services, callerOf(request), request.body as ClassifyBody)
  const { result, usage } = await runJob(http, services, { kind: 'embedding', ...wanted })
  if (result.task !== 'classify') throw new Error('a classification was answered otherwise')
  const head = answerHeadOf(request, services.clock)
  return presentLabels({ head, model: wanted.model, result, usage })
}

/** The job that labels the texts of a request. Throws for unsuitable models. */
export function labellingJob(
  models: Parameters<typeof classifyingJob>[0],
  caller: Parameters<typeof classifyingJob>[1],
  { model: modelName, input, ...rest }: ClassifyBody,
): ReturnType<typeof classifyingJob> {
  return classifyingJob(models, caller, {
    ...{ modelName, texts: [input].flat(), endpoint: 'v1/classify' },
    excess: rest.truncate_prompt_tokens === -1 ? 'cut' : 'refuse',
  })
}

/** The answer in the form of vLLM. */
export function presentLabels({
  head,
  model,
  result: { labels, probabilities },
  usage,
}: {
  readonly head: AnswerHead
  readonly model: CatalogueModel
  readonly result: Extract<EmbeddingResult, { task: 'classify' }>
  readonly usage: TokenUsage
}): object {
  return {
    id: head.newId('classify-'),
    ...{ object: 'list', created: head.created, model: model.id },
    data: probabilities.map((probs, index) => ({
      index,
      label: labels[probs.indexOf(Math.max(...probs))],
      probs,
      num_classes: probs.length,
    })),
    usage: { prompt_tokens: usage.promptTokens, total_tokens: usage.promptTokens },
  }
}
