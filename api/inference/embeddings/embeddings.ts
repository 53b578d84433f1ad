import { setImmediate } from 'node:timers/promises'

import type { FastifyInstance } from 'fastify'

import { type FieldNames, withFieldNames } from '#api/inference/field-names.ts'
import {
  getCapableModel,
  type ModelDirectory,
  modelNameOf,
  registerModelRoute,
} from '#api/inference/model-route.ts'
import { withImages } from '#api/inference/request-images.ts'
import { PROMPT_USAGE } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { presentDetailedError } from '#api/v1/error-dialect.ts'
import { type Caller, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'

import {
  checkEmbeddingBody,
  EMBEDDING_BODY,
  type Embedding,
  type EmbeddingBody,
  ENGINE_EMBEDDING_BODY,
  embedInput,
  watchTokens,
} from './embedding-request.ts'

/** The schema of an answer with the vectors of each input, in the field `name`. */
export function vectorsResponse(
  name: 'embedding' | 'embeddings',
  vectors: object,
  description: string,
): object {
  return {
    type: 'object',
    description,
    required: ['object', 'data', 'model', 'usage'],
    properties: {
      object: { const: 'list' },
      data: {
        type: 'array',
        items: {
          type: 'object',
          required: ['object', 'index', name],
          properties: { object: { const: name }, index: { type: 'integer' }, [name]: vectors },
        },
      },
      model: { type: 'string' },
      usage: PROMPT_USAGE,
    },
  }
}

const EMBEDDING = {
  anyOf: [
    { type: 'array', items: { type: 'number' } },
    { type: 'string', description: 'Base64 of little-endian 32-bit floats.' },
  ],
}

/** `POST /embeddings` and its older path. */
export function registerEmbeddings(app: FastifyInstance, services: InferenceServices): void {
  registerModelRoute(app, {
    path: '/embeddings',
    scope: 'embeddings',
    noun: 'Embedding',
    summary: 'Embed texts and images as vectors',
    tag: 'Embeddings',
    body: EMBEDDING_BODY,
    engineBody: ENGINE_EMBEDDING_BODY,
    answer: vectorsResponse('embedding', EMBEDDING, 'The vectors, in the order of the inputs.'),
    precheck: checkEmbeddingBody,
    presentError: presentDetailedError,
    handle: (http) =>
      withFieldNames(embeddingFields(http.request.body as EmbeddingBody), () =>
        embed(http, services),
      ),
  })
}

/** The names of fields that have several. */
export function embeddingFields(body: EmbeddingBody): FieldNames {
  return typeof body.dimensions === 'number' ? {} : { dimensions: 'output_dimension' }
}

async function embed(http: Http, services: InferenceServices): Promise<string> {
  const { request } = http
  const body = request.body as EmbeddingBody
  const modelName = modelNameOf(request)
  const model = await getEmbeddingModel(services, callerOf(request), modelName)
  const embedding = await embedInput(body, { model, modelName })
  const embedded = await runEmbedding(http, services, { model, ...embedding })
  return writeEmbeddings(model, body, embedded)
}

/** Embeds the inputs of a request, in any dialect that answers JSON text. */
export async function runEmbedding(
  http: Http,
  services: InferenceServices,
  { model, input, images }: Embedding & { readonly model: CatalogueModel },
): Promise<Embedded> {
  const { organizationId } = callerOf(http.request)
  const job = { kind: 'embedding', model, input, watch: watchTokens } as const
  const { result, usage } = await withImages(services, { images, organizationId }, () =>
    runJob(http, services, job),
  )
  if (result.task !== 'embed') throw new Error('an embedding was answered with scores')
  http.reply.type('application/json; charset=utf-8')
  return { vectors: result.vectors, usage }
}

/** Capabilities of models of this kind that produce something other than dense vectors. */
const OTHERS = ['rerank', 'classify', 'sparse', 'multi-vector']

/** The named model, or the first that produces dense vectors. Throws for other models. */
export function getEmbeddingModel(
  models: ModelDirectory,
  caller: Caller,
  name: string | null | undefined,
  endpoint = 'v1/embeddings',
): Promise<CatalogueModel> {
  const first = models.catalogue.models.find(
    ({ kind, capabilities }) =>
      kind === 'embedding' && !OTHERS.some((other) => capabilities.includes(other)),
  )
  return getCapableModel(models, caller, {
    name: name ?? first?.id ?? 'embedding',
    kind: 'embedding',
    without: OTHERS,
    endpoint,
  })
}

interface Embedded {
  readonly vectors: readonly string[]
  readonly usage: TokenUsage
}

// About 10 ms of writing numbers.
const SLICE_CHARS = 65_536

/** The answer as JSON text, with numbers or the worker's base64. */
export async function writeEmbeddings(
  model: CatalogueModel,
  body: EmbeddingBody,
  { vectors, usage }: Embedded,
): Promise<string> {
  const data = await writeVectors(vectors, (vector, index) => presentVector(body, vector, index))
  return writeList(model, usage, data)
}

/** The JSON text of an answer around its `data`, which is JSON text already. */
export function writeList(
  { id }: CatalogueModel,
  { promptTokens }: TokenUsage,
  data: string,
): string {
  const usage = { prompt_tokens: promptTokens, total_tokens: promptTokens }
  const around = JSON.stringify({ object: 'list', model: id, usage })
  return `${around.slice(0, -1)},"data":${data}}`
}

/**
 * The list of vectors as JSON text. Two thousand large vectors are millions of numbers, a second's
 * work, so the event loop runs between slices.
 */
export async function writeVectors(
  vectors: readonly string[],
  present: (vector: string, index: number) => unknown,
): Promise<string> {
  const written: string[] = []
  let chars = 0
  for (const [index, vector] of vectors.entries()) {
    written.push(JSON.stringify(present(vector, index)))
    chars += vector.length
    if (chars < SLICE_CHARS) continue
    chars = 0
    await setImmediate()
  }
  return `[${written.join(',')}]`
}

function presentVector(body: EmbeddingBody, vector: string, index: number): object {
  const embedding = body.encoding_format === 'base64' ? vector : decodeFloats(vector)
  return { object: 'embedding', index, embedding }
}

/** The numbers of a vector, which the worker writes as base64 of little-endian 32-bit floats. */
export function decodeFloats(base64: string): number[] {
  const bytes = Buffer.from(base64, 'base64')
  return Array.from({ length: bytes.length / Float32Array.BYTES_PER_ELEMENT }, (_, index) =>
    bytes.readFloatLE(index * Float32Array.BYTES_PER_ELEMENT),
  )
}
