import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { TRUNCATION_SIDE, truncationSide } from '#api/inference/embeddings/embedding-request.ts'
import { type FieldNames, withFieldNames } from '#api/inference/field-names.ts'
import {
  fixed,
  ineffective,
  invalidValue,
  optionalBoolean,
  optionalString,
  requiredUnless,
} from '#api/inference/field-schemas.ts'
import { JOB_ERRORS, rowsAnswer } from '#api/inference/response-schemas.ts'
import { SAMPLING_FIELDS } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { answerHeadOf } from '#api/v1/request-context.ts'
import { Type } from '#shared/schema-types.ts'
import { nullable } from '#shared/schemas.ts'

import { DOCUMENTS_MAX, scoreDocuments } from './rank.ts'

const TEXT = Type.String({ minLength: 1 })
const TEXTS = Type.Array(TEXT, { minItems: 1, maxItems: DOCUMENTS_MAX })
const texts = (description: string) =>
  Type.Optional(Type.Union([nullable(TEXT), TEXTS], { description }))

const SCORE_BODY = Type.Object(
  {
    model: optionalString({ minLength: 1, description: 'The id of a model.' }),
    text_1: texts('The query, or as many queries as `text_2` has texts.'),
    text_2: texts('A text, or several.'),
    queries: texts('Another name of `text_1`.'),
    documents: texts('Another name of `text_2`.'),
    items: texts('Another name of `text_2`.'),
    data_1: texts('Another name of `text_1`.'),
    data_2: texts('Another name of `text_2`.'),
    use_activation: optionalBoolean({
      default: true,
      description: 'Return scores from 0 to 1; if false, return the logits of a cross-encoder.',
    }),
    // Texts that are too long are always cut, as this field requests.
    truncate_prompt_tokens: fixed([-1]),
    truncation_side: TRUNCATION_SIDE,
    priority: ineffective({ type: ['integer', 'null'] }),
    user: SAMPLING_FIELDS.user,
  },
  {
    additionalProperties: false,
    allOf: [
      requiredUnless('text_1', ['string', 'array'], ['queries', 'data_1']),
      requiredUnless('text_2', ['string', 'array'], ['documents', 'items', 'data_2']),
    ],
  },
)
type ScoreBody = Static<typeof SCORE_BODY>

const SCORE_RESPONSE = rowsAnswer('The scores, in the order of the texts.', {
  properties: {
    index: { type: 'integer' },
    object: { const: 'score' },
    score: { type: 'number' },
  },
})

/** `POST /score` of vLLM: the relevance of texts to a query. */
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
    handler: (request, reply) =>
      withFieldNames(fieldsOf(request.body as ScoreBody), () =>
        score({ request, reply }, services),
      ),
  })
}

// vLLM has several names for the two fields; the first that is given counts.
const QUERY_FIELDS = ['text_1', 'queries', 'data_1'] as const
const DOCUMENT_FIELDS = ['text_2', 'documents', 'items', 'data_2'] as const

function fieldsOf(body: ScoreBody): FieldNames {
  const given = (name: keyof ScoreBody): boolean => (body[name] ?? null) !== null
  return { query: QUERY_FIELDS.find(given), documents: DOCUMENT_FIELDS.find(given) }
}

async function score(http: Http, services: InferenceServices): Promise<object> {
  const body = http.request.body as ScoreBody
  const queries = [body.text_1 ?? body.queries ?? body.data_1 ?? []].flat()
  const documents = [body.text_2 ?? body.documents ?? body.items ?? body.data_2 ?? []].flat()
  const [query = ''] = queries
  if (queries.length > 1 && queries.length !== documents.length) {
    throw invalidValue(
      'query',
      `expected one text, or ${documents.length} as the other field has, but got ${queries.length}.`,
    )
  }
  const { model, scores, usage } = await scoreDocuments(http, services, {
    modelName: body.model,
    query,
    documents,
    endpoint: 'v1/score',
    isActivated: body.use_activation !== false,
    ...truncationSide(body.truncation_side),
    ...(queries.length > 1 && { queries }),
  })
  const { created, newId } = answerHeadOf(http.request, services.clock)
  return {
    id: newId('score-'),
    object: 'list',
    created,
    model: model.id,
    data: scores.map((value, index) => ({ index, object: 'score', score: value })),
    usage: { prompt_tokens: usage.promptTokens, total_tokens: usage.promptTokens },
  }
}
