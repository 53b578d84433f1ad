import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import {
  fixed,
  ineffective,
  invalidValue,
  optionalBoolean,
  optionalInteger,
  optionalString,
  requiredUnless,
} from '#api/inference/field-schemas.ts'
import { JOB_ERRORS, PROMPT_USAGE } from '#api/inference/response-schemas.ts'
import { SAMPLING_FIELDS } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { presentDetailedError } from '#api/v1/error-dialect.ts'
import { answerHeadOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import { Type } from '#shared/schema-types.ts'
import { nullable } from '#shared/schemas.ts'

import { DOCUMENTS_MAX, type Ranking, ranked, scoreDocuments } from './rank.ts'

const DOCUMENT = Type.Union([Type.String(), Type.Object({ text: Type.String() })])

/** The body of `POST /v1/rerank`. */
export const RERANK_BODY = Type.Object(
  {
    model: optionalString({
      minLength: 1,
      description: 'The id of a model; with `texts`, the first that ranks if absent.',
    }),
    query: Type.String({
      minLength: 1,
      description: 'The subject that the documents should be about.',
    }),
    documents: Type.Optional(
      nullable(
        Type.Array(DOCUMENT, {
          minItems: 1,
          maxItems: DOCUMENTS_MAX,
          description: 'Texts, or objects with a `text`.',
        }),
      ),
    ),
    texts: Type.Optional(
      nullable(
        Type.Array(Type.String(), {
          minItems: 1,
          maxItems: DOCUMENTS_MAX,
          description:
            'Instead of `documents`, as Text Embeddings Inference has it: the answer is a list.',
        }),
      ),
    ),
    return_text: optionalBoolean({ default: false, description: 'With `texts`: repeat them.' }),
    raw_scores: ineffective({ type: ['boolean', 'null'] }, [false]),
    truncate: fixed([true]),
    truncation_direction: ineffective({ type: ['string', 'null'] }, ['Right', 'right']),
    top_n: optionalInteger({
      minimum: 1,
      description: 'How many results to answer; all if absent.',
    }),
    top_k: optionalInteger({ minimum: 1, description: 'Another name of `top_n`.' }),
    max_tokens_per_doc: ineffective({ type: ['integer', 'null'] }),
    return_documents: optionalBoolean({ default: false, description: 'Repeat the texts.' }),
    // Documents that are too long are always cut, as these fields request.
    truncate_prompt_tokens: fixed([-1]),
    truncation: fixed([true]),
    user: SAMPLING_FIELDS.user,
    timeout: SAMPLING_FIELDS.timeout,
  },
  {
    additionalProperties: false,
    allOf: [
      requiredUnless('model', 'string', ['texts']),
      requiredUnless('documents', 'array', ['texts']),
    ],
  },
)
export type RerankBody = Static<typeof RERANK_BODY>

const RELEVANCE = {
  type: 'number',
  description:
    'From 0 to 1 by a cross-encoder; by a model of several vectors the sum of the largest similarities of the tokens of the query.',
}
const RESULTS = {
  type: 'array',
  items: {
    type: 'object',
    required: ['index', 'relevance_score'],
    properties: {
      index: { type: 'integer', description: 'Position among the documents sent.' },
      relevance_score: RELEVANCE,
      document: { type: 'object', properties: { text: { type: 'string' } } },
    },
  },
}
const RANKED_RESPONSE = {
  type: 'object',
  description: 'The documents, the most relevant first.',
  required: ['id', 'object', 'model', 'results', 'usage'],
  properties: {
    id: { type: 'string' },
    object: { const: 'list' },
    model: { type: 'string' },
    results: RESULTS,
    data: {
      ...RESULTS,
      description: 'The results under the name that Voyage uses, sent with `truncation`.',
    },
    usage: PROMPT_USAGE,
  },
}

const RERANK_RESPONSE = {
  description: 'The documents, the most relevant first; a list where they are `texts`.',
  anyOf: [
    RANKED_RESPONSE,
    {
      type: 'array',
      items: {
        type: 'object',
        required: ['index', 'score'],
        properties: {
          index: { type: 'integer' },
          score: RELEVANCE,
          text: { type: 'string' },
        },
      },
    },
  ],
}

/** `POST /rerank`: documents by their relevance to a query. */
export function registerRerank(
  app: FastifyInstance,
  services: InferenceServices,
  operationId = 'createRerank',
): void {
  app.post('/rerank', {
    config: { scope: 'search', presentError: presentDetailedError },
    schema: {
      operationId,
      summary: 'Order documents by their relevance to a query',
      tags: ['Rerank'],
      security: [{ apiKey: [] }],
      body: RERANK_BODY,
      response: { 200: RERANK_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) => rerank({ request, reply }, services),
  })
}

async function rerank(http: Http, services: InferenceServices): Promise<object> {
  const body = http.request.body as RerankBody
  const ranking = rerankRanking(body)
  const outcome = await scoreDocuments(http, services, ranking)
  const id = answerHeadOf(http.request, services.clock).newId('rerank-')
  return presentRanking(body, { ...outcome, id, documents: ranking.documents })
}

/** The query and documents of a request. Throws when it has two lists of documents. */
export function rerankRanking(body: RerankBody): Ranking {
  if (body.documents && body.texts) {
    throw invalidValue('texts', "it cannot be given together with 'documents'.")
  }
  const documents = (body.texts ?? body.documents ?? []).map((document) =>
    typeof document === 'string' ? document : document.text,
  )
  return { modelName: body.model, query: body.query, documents, endpoint: 'v1/rerank' }
}

/** The answer in the dialect of the request, which its list of documents determines. */
export function presentRanking(
  body: RerankBody,
  outcome: {
    readonly id: string
    readonly documents: readonly string[]
    readonly model: CatalogueModel
    readonly scores: readonly number[]
    readonly usage: TokenUsage
  },
): object {
  const { id, documents, model, scores, usage } = outcome
  const best = ranked(scores, body.top_n ?? body.top_k)
  if (body.texts) {
    return best.map((result) => ({
      ...result,
      ...(body.return_text === true && { text: documents[result.index] }),
    }))
  }
  const results = best.map(({ index, score }) => ({
    index,
    relevance_score: score,
    ...(body.return_documents === true && { document: { text: documents[index] } }),
  }))
  return {
    id,
    object: 'list',
    model: model.id,
    results,
    // Voyage's client sends this field with every request and reads the other name.
    ...(body.truncation === true && { data: results }),
    usage: { prompt_tokens: usage.promptTokens, total_tokens: usage.promptTokens },
  }
}
