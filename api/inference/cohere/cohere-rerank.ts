import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { ineffective, optionalInteger } from '#api/inference/field-schemas.ts'
import { DOCUMENTS_MAX, ranked, scoreDocuments } from '#api/inference/rerank/rank.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { answerHeadOf } from '#api/v1/request-context.ts'
import { Type } from '#shared/schema-types.ts'

import { COHERE_ERRORS, presentCohereError } from './cohere-errors.ts'

const BODY = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'The id of a model.' }),
    query: Type.String({
      minLength: 1,
      description: 'The query to compare the documents with.',
    }),
    documents: Type.Array(Type.String(), { minItems: 1, maxItems: DOCUMENTS_MAX }),
    top_n: optionalInteger({ minimum: 1, description: 'The number of results to return.' }),
    max_tokens_per_doc: ineffective({ type: ['integer', 'null'] }),
    priority: ineffective({ type: ['integer', 'null'] }),
  },
  { additionalProperties: false },
)

const RESPONSE = {
  type: 'object',
  description: 'The documents in order of relevance, the most relevant first.',
  required: ['id', 'results', 'meta'],
  properties: {
    id: { type: 'string' },
    results: {
      type: 'array',
      items: {
        type: 'object',
        properties: { index: { type: 'integer' }, relevance_score: { type: 'number' } },
      },
    },
    meta: { type: 'object' },
  },
}

/** `POST /v2/rerank` in Cohere's dialect. */
export function registerCohereRerank(app: FastifyInstance, services: InferenceServices): void {
  app.post('/v2/rerank', {
    config: { scope: 'search', presentError: presentCohereError },
    schema: {
      operationId: 'createRerankV2',
      summary: "Rank documents by their relevance to a query, in Cohere's dialect",
      tags: ['Rerank'],
      security: [{ apiKey: [] }],
      body: BODY,
      response: { 200: RESPONSE, ...COHERE_ERRORS },
    },
    handler: (request, reply) => rerank({ request, reply }, services),
  })
}

async function rerank(http: Http, services: InferenceServices): Promise<object> {
  const body = http.request.body as Static<typeof BODY>
  const { scores } = await scoreDocuments(http, services, {
    modelName: body.model,
    query: body.query,
    documents: body.documents,
    endpoint: 'v2/rerank',
  })
  return {
    id: answerHeadOf(http.request, services.clock).newId('rerank-'),
    results: ranked(scores, body.top_n).map(({ index, score }) => ({
      index,
      relevance_score: score,
    })),
    meta: { api_version: { version: '2' }, billed_units: { search_units: 1 } },
  }
}
