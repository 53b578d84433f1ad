import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import {
  TRUNCATION_DIRECTION,
  TRUNCATION_SIDE,
  truncationSide,
} from '#api/inference/embeddings/embedding-request.ts'
import { type FieldNames, withFieldNames } from '#api/inference/field-names.ts'
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
      description: 'The id of a model; with `texts`, the first reranker if absent.',
    }),
    query: Type.String({
      minLength: 1,
      description: 'The query to compare the documents with.',
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
            'The documents in the format of Text Embeddings Inference, instead of `documents`; the answer is then a list.',
        }),
      ),
    ),
    return_text: optionalBoolean({
      default: false,
      description: 'With `texts`: return the texts as well.',
    }),
    raw_scores: optionalBoolean({
      default: false,
      description: 'Return the logits of a cross-encoder instead of scores from 0 to 1.',
    }),
    use_activation: optionalBoolean({
      default: true,
      description: 'The opposite of `raw_scores`.',
    }),
    truncate: optionalBoolean({
      default: true,
      description: 'Cut documents that do not fit beside the query; if false, they are refused.',
    }),
    truncation_direction: TRUNCATION_DIRECTION,
    top_n: optionalInteger({
      minimum: 0,
      description: 'The number of results to return; all if absent or 0.',
    }),
    top_k: optionalInteger({ minimum: 0, description: 'Alias of `top_n`.' }),
    max_tokens_per_doc: ineffective({ type: ['integer', 'null'] }),
    return_documents: optionalBoolean({
      description:
        'Return the texts of the documents as well; true if absent, but false if the request has `truncation`.',
    }),
    truncate_prompt_tokens: fixed([-1]),
    truncation: optionalBoolean({ default: true, description: 'Alias of `truncate`.' }),
    truncation_side: TRUNCATION_SIDE,
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
    'The score: from 0 to 1 for a cross-encoder; for a model with several vectors per text, the sum of the largest similarity of each token of the query.',
}
const RESULTS = {
  type: 'array',
  items: {
    type: 'object',
    required: ['index', 'relevance_score'],
    properties: {
      index: { type: 'integer', description: 'The position of the document in the request.' },
      relevance_score: RELEVANCE,
      document: { type: 'object', properties: { text: { type: 'string' } } },
    },
  },
}
const RANKED_RESPONSE = {
  type: 'object',
  description: 'The documents in order of relevance, the most relevant first.',
  required: ['id', 'object', 'model', 'results', 'usage'],
  properties: {
    id: { type: 'string' },
    object: { const: 'list' },
    model: { type: 'string' },
    results: RESULTS,
    data: {
      ...RESULTS,
      description:
        'The same results under the name that Voyage uses; present if the request has `truncation`.',
    },
    usage: PROMPT_USAGE,
  },
}

const RERANK_RESPONSE = {
  description:
    'The documents in order of relevance, the most relevant first; a plain list if the request has `texts`.',
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
      summary: 'Rank documents by their relevance to a query',
      tags: ['Rerank'],
      security: [{ apiKey: [] }],
      body: RERANK_BODY,
      response: { 200: RERANK_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) =>
      withFieldNames(rerankFields(request.body as RerankBody), () =>
        rerank({ request, reply }, services),
      ),
  })
}

async function rerank(http: Http, services: InferenceServices): Promise<object> {
  const body = http.request.body as RerankBody
  const ranking = rerankRanking(body)
  const outcome = await scoreDocuments(http, services, ranking)
  const id = answerHeadOf(http.request, services.clock).newId('rerank-')
  return presentRanking(body, { ...outcome, id, documents: ranking.documents })
}

/** The name of the documents. */
export function rerankFields({ texts }: RerankBody): FieldNames {
  return texts ? { documents: 'texts' } : {}
}

/** The query and documents of a request. Throws when it has two lists of documents. */
export function rerankRanking(body: RerankBody): Ranking {
  if (body.documents && body.texts) {
    throw invalidValue('texts', "it cannot be given together with 'documents'.")
  }
  const documents = (body.texts ?? body.documents ?? []).map((document) =>
    typeof document === 'string' ? document : document.text,
  )
  return {
    modelName: body.model,
    query: body.query,
    documents,
    isActivated: body.raw_scores !== true && body.use_activation !== false,
    isCut: body.truncate !== false && body.truncation !== false,
    ...truncationSide(body.truncation_direction ?? body.truncation_side),
    endpoint: 'v1/rerank',
  }
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
  // Voyage's client sends `truncation` with every request; only its dialect has `top_k`.
  const isVoyageClient = typeof body.truncation === 'boolean'
  const isVoyage = isVoyageClient || typeof body.top_k === 'number'
  const returnsDocuments = body.return_documents ?? !isVoyageClient
  const results = best.map(({ index, score }) => ({
    index,
    relevance_score: score,
    ...(returnsDocuments && { document: { text: documents[index] } }),
  }))
  return {
    id,
    object: 'list',
    model: model.id,
    results,
    ...(isVoyage && { data: results }),
    usage: { prompt_tokens: usage.promptTokens, total_tokens: usage.promptTokens },
  }
}
