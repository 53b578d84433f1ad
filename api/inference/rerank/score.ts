import type { FastifyInstance } from 'fastify'
import { type Static, Type } from 'typebox'

import { optionalString } from '#api/inference/field-schemas.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { answerHeadOf } from '#api/v1/durable.ts'

import { DOCUMENTS_MAX, scoreDocuments } from './rank.ts'

const TEXT = { type: 'string', minLength: 1 }
const SCORE_BODY = Type.Object(
  {
    model: optionalString({ minLength: 1, description: 'The id of a model.' }),
    text_1: Type.String({ minLength: 1, description: 'The query.' }),
    text_2: Type.Unsafe<string | string[]>({
      anyOf: [TEXT, { type: 'array', minItems: 1, maxItems: DOCUMENTS_MAX, items: TEXT }],
      description: 'A text, or several.',
    }),
  },
  { additionalProperties: false },
)

const SCORE_RESPONSE = {
  type: 'object',
  description: 'The scores, in the order of the texts.',
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
        properties: {
          index: { type: 'integer' },
          object: { const: 'score' },
          score: { type: 'number' },
        },
      },
    },
    usage: {
      type: 'object',
      properties: { prompt_tokens: { type: 'integer' }, total_tokens: { type: 'integer' } },
    },
  },
}

/** `POST /score`, as vLLM has it: how relevant texts are to a query. */
export function registerScore(
  app: FastifyInstance,
  services: InferenceServices,
  operationId = 'createScore',
): void {
  app.post('/score', {
    config: { scope: 'search' },
    schema: {
      operationId,
      summary: 'Score texts by their relevance to a query',
      tags: ['Rerank'],
      security: [{ apiKey: [] }],
      body: SCORE_BODY,
      response: { 200: SCORE_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) => score({ request, reply }, services),
  })
}

async function score(http: Http, services: InferenceServices): Promise<object> {
  const body = http.request.body as Static<typeof SCORE_BODY>
  const { model, scores, usage } = await scoreDocuments(http, services, {
    ...{ modelName: body.model, query: body.text_1, documents: [body.text_2].flat() },
    endpoint: 'v1/score',
  })
  const { created, newId } = answerHeadOf(http.request, services.clock)
  return {
    id: newId('score-'),
    ...{ object: 'list', created, model: model.id },
    data: scores.map((value, index) => ({ index, object: 'score', score: value })),
    usage: { prompt_tokens: usage.promptTokens, total_tokens: usage.promptTokens },
  }
}
