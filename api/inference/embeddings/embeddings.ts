import type { FastifyInstance } from 'fastify'

import type { CatalogueModel } from '#shared/catalogue.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import { callerOf, type Caller } from '#api/v1/caller.ts'
import type { JobEvent } from '#api/inference/jobs/job-events.ts'
import { runJob, type Http } from '#api/inference/jobs/run-job.ts'
import { getCapableModel } from '#api/inference/model-lookup.ts'
import { registerModelRoute } from '#api/inference/model-route.ts'
import { modelNameOf } from '#api/inference/route-params.ts'
import type { InferenceServices } from '#api/inference/services.ts'

import {
  EMBEDDING_BODY,
  EMBEDDING_TOKENS_MAX,
  embedInput,
  ENGINE_EMBEDDING_BODY,
  tooManyTokens,
  type EmbeddingBody,
} from './embedding-request.ts'

const EMBEDDING_RESPONSE = {
  type: 'object',
  description: 'The vectors, in the order of the inputs.',
  required: ['object', 'data', 'model', 'usage'],
  properties: {
    object: { const: 'list' },
    data: {
      type: 'array',
      items: {
        type: 'object',
        required: ['object', 'index', 'embedding'],
        properties: {
          object: { const: 'embedding' },
          index: { type: 'integer' },
          embedding: {
            anyOf: [
              { type: 'array', items: { type: 'number' } },
              { type: 'string', description: 'Base64 of little-endian 32-bit floats.' },
            ],
          },
        },
      },
    },
    model: { type: 'string' },
    usage: {
      type: 'object',
      required: ['prompt_tokens', 'total_tokens'],
      properties: { prompt_tokens: { type: 'integer' }, total_tokens: { type: 'integer' } },
    },
  },
}

/** `POST /embeddings` and its older path. */
export function registerEmbeddings(app: FastifyInstance, services: InferenceServices): void {
  registerModelRoute(app, {
    path: '/embeddings',
    scope: 'embeddings',
    noun: 'Embedding',
    summary: 'Turn texts into vectors',
    tag: 'Embeddings',
    body: EMBEDDING_BODY,
    engineBody: ENGINE_EMBEDDING_BODY,
    answer: EMBEDDING_RESPONSE,
    handle: (http) => embed(http, services),
  })
}

async function embed(http: Http, services: InferenceServices): Promise<object> {
  const { request } = http
  const body = request.body as EmbeddingBody
  const model = getEmbeddingModel(services, callerOf(request), modelNameOf(request))
  const input = embedInput(body, model)
  const job = { kind: 'embedding', model, input, watch: refuseTooManyTokens } as const
  const { result, usage } = await runJob(http, services, job)
  if (result.task !== 'embed') throw new Error('an embedding was answered with scores')
  return presentEmbeddings(model, body, { vectors: result.vectors, usage })
}

/** The model behind a name. Throws unless it makes vectors. */
export function getEmbeddingModel(
  { catalogue }: Pick<InferenceServices, 'catalogue'>,
  caller: Caller,
  name: string,
): CatalogueModel {
  return getCapableModel(catalogue, caller, {
    name,
    kind: 'embedding',
    without: 'rerank',
    endpoint: 'v1/embeddings',
  })
}

/** Texts are counted by the worker, before it begins to compute. */
export function refuseTooManyTokens(event: JobEvent<'embedding'>): void {
  if (event.type === 'started' && event.promptTokens > EMBEDDING_TOKENS_MAX) {
    throw tooManyTokens(event.promptTokens)
  }
}

/** The answer, as numbers or just as the worker wrote the vectors. */
export function presentEmbeddings(
  model: CatalogueModel,
  body: EmbeddingBody,
  outcome: { readonly vectors: readonly string[]; readonly usage: TokenUsage },
): object {
  const { promptTokens } = outcome.usage
  const present = body.encoding_format === 'base64' ? (text: string) => text : decodeFloats
  return {
    object: 'list',
    data: outcome.vectors.map((vector, index) => ({
      object: 'embedding',
      index,
      embedding: present(vector),
    })),
    model: model.id,
    usage: { prompt_tokens: promptTokens, total_tokens: promptTokens },
  }
}

function decodeFloats(base64: string): number[] {
  const bytes = Buffer.from(base64, 'base64')
  return Array.from({ length: bytes.length / Float32Array.BYTES_PER_ELEMENT }, (_, index) =>
    bytes.readFloatLE(index * Float32Array.BYTES_PER_ELEMENT),
  )
}
