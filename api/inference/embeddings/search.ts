import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import {
  IGNORED_MODEL,
  optionalBoolean,
  optionalInteger,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { ENGINE_PARAMS, getCapableModel, modelNameOf } from '#api/inference/model-route.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import { SAMPLING_FIELDS } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { clientSignal, type Http, runJob } from '#api/jobs/run-inference.ts'
import { listResponse } from '#api/v1/list-response.ts'
import { callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { nullable } from '#shared/schemas.ts'

import { type FileDocument, narrowFile } from './search-file.ts'

const DOCUMENTS_MAX = 200
const RERANK_DEFAULT = 200
const RERANK_MAX = 1000

const SEARCH_BODY = Type.Object(
  {
    query: Type.String({
      minLength: 1,
      description: 'The query to compare the documents with.',
    }),
    documents: Type.Optional(
      nullable(
        Type.Array(Type.String(), {
          minItems: 1,
          maxItems: DOCUMENTS_MAX,
          description: 'Texts to search, if no file is given.',
        }),
      ),
    ),
    file: optionalString({
      minLength: 1,
      description: 'The id of a file with the purpose search.',
    }),
    max_rerank: optionalInteger({
      minimum: 1,
      maximum: RERANK_MAX,
      default: RERANK_DEFAULT,
      description: 'The number of documents of the file to score. Only with `file`.',
    }),
    return_metadata: optionalBoolean({
      default: false,
      description: 'Return the metadata of the documents as well. Only with `file`.',
    }),
    user: SAMPLING_FIELDS.user,
    timeout: SAMPLING_FIELDS.timeout,
    model: IGNORED_MODEL,
  },
  { additionalProperties: false },
)
type SearchBody = Static<typeof SEARCH_BODY>

const SEARCH_RESULT = {
  type: 'object',
  required: ['object', 'document', 'score'],
  properties: {
    object: { const: 'search_result' },
    document: {
      type: 'integer',
      description: 'The position of the document in `documents` or in the file.',
    },
    score: {
      type: 'number',
      minimum: 0,
      description: 'The similarity score; above 200 usually means similar.',
    },
    text: { type: 'string', description: 'Present with `file` only.' },
    metadata: { description: 'Present with `return_metadata` only.' },
  },
}

/** `POST /engines/{engine_id}/search`: ranks documents by the likelihood of the query. */
export function registerSearch(app: FastifyInstance, services: InferenceServices): void {
  app.post('/engines/:engine_id/search', {
    config: { scope: 'search', readsContents: readsFile },
    schema: {
      operationId: 'createSearch',
      summary: 'Score documents by their similarity to a query',
      tags: ['Search'],
      deprecated: true,
      security: [{ apiKey: [] }],
      params: ENGINE_PARAMS,
      body: SEARCH_BODY,
      response: { 200: listResponse(SEARCH_RESULT), ...JOB_ERRORS },
    },
    handler: (request, reply) => search({ request, reply }, services),
  })
}

function readsFile(body: unknown): boolean {
  return typeof (body as SearchBody).file === 'string'
}

async function search(http: Http, services: InferenceServices): Promise<object> {
  const { request } = http
  const body = request.body as SearchBody
  const model = await getCapableModel(services, callerOf(request), {
    name: modelNameOf(request),
    kind: 'completion',
    capability: 'search',
    endpoint: 'v1/engines/{engine_id}/search',
  })
  const documents = body.documents ?? undefined
  const fileId = body.file ?? undefined
  if ((documents === undefined) === (fileId === undefined)) {
    throw failure.invalidRequest(
      'You should specify either `documents` or a `file`, but not both',
      { param: documents === undefined ? 'documents' : 'file', code: 'invalid_value' },
    )
  }
  const data =
    documents === undefined
      ? await searchFile(http, services, { model, body, fileId: fileId as string })
      : await searchDocuments(http, services, { model, query: body.query, documents })
  return { object: 'list', model: model.id, data }
}

async function searchDocuments(
  http: Http,
  services: InferenceServices,
  { model, query, documents }: { model: CatalogueModel; query: string; documents: string[] },
): Promise<readonly object[]> {
  const scores = await score(http, services, { model, query, documents })
  return scores.map((value, document) => ({ object: 'search_result', document, score: value }))
}

async function searchFile(
  http: Http,
  services: InferenceServices,
  { model, body, fileId }: { model: CatalogueModel; body: SearchBody; fileId: string },
): Promise<readonly object[]> {
  const { query } = body
  const file = await services.files.find(callerOf(http.request).organizationId, fileId)
  if (file === undefined) {
    throw failure.notFound(`No such File object: ${fileId.slice(0, 100)}`, { param: 'file' })
  }
  const found = await narrowFile(services.store, file, {
    query,
    limit: body.max_rerank ?? RERANK_DEFAULT,
    signal: clientSignal(http),
  })
  const documents = found.map(({ text }) => text)
  const characters = documents.reduce((sum, { length }) => sum + length, 0)
  http.request.context.contentsRoom?.shrinkTo(characters)
  const scores = await score(http, services, { model, query, documents }).catch(
    (error: unknown) => {
      throw inFile(error, found)
    },
  )
  return found
    .map(({ index, text, metadata }, at) => ({
      object: 'search_result',
      document: index,
      score: scores[at] as number,
      text,
      ...(body.return_metadata === true && { metadata }),
    }))
    .toSorted((one, other) => other.score - one.score || one.document - other.document)
}

async function score(
  http: Http,
  services: InferenceServices,
  { model, query, documents }: { model: CatalogueModel; query: string; documents: string[] },
): Promise<readonly number[]> {
  if (documents.length === 0) return []
  const input = { task: 'score', query, documents } as const
  const { result } = await runJob(http, services, { kind: 'completion', model, input })
  if (result.task !== 'score') throw new Error('a search was answered with texts')
  return result.scores.map(presentScore)
}

/** At least 0, to three decimals; a query that is impossible after a document scores 0. */
function presentScore(score: number): number {
  return Number.isFinite(score) ? Math.round(Math.max(score, 0) * 1000) / 1000 : 0
}

/** An error about one of the documents names its position in the file. */
function inFile(error: unknown, found: readonly FileDocument[]): unknown {
  const match =
    error instanceof ServiceError ? /^documents\[(\d+)\]$/.exec(error.param ?? '') : null
  const document = match === null ? undefined : found[Number(match[1])]
  if (!(error instanceof ServiceError) || document === undefined) return error
  const message = error.message.replaceAll(
    error.param ?? '',
    `document ${document.index} of the file`,
  )
  return new ServiceError(error.kind, message, {
    param: 'file',
    ...(error.code !== undefined && { code: error.code }),
    cause: error,
  })
}
