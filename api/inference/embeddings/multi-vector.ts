import { setImmediate } from 'node:timers/promises'

import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import {
  ineffective,
  optionalBoolean,
  optionalEnum,
  optionalInteger,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { getTaskModel, type ModelDirectory } from '#api/inference/model-route.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import { SAMPLING_FIELDS } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { presentDetailedError } from '#api/v1/error-dialect.ts'
import { type Caller, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { EmbeddingResult, MultiVectorInput } from '#shared/contracts/embedding.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable } from '#shared/schemas.ts'

import { checkInputCount, watchTokens } from './embedding-request.ts'
import { vectorsResponse, writeList } from './embeddings.ts'

const TEXT = Type.String({ minLength: 1 })
const DOCUMENT = Type.Object(
  { id: optionalString({ description: 'Accepted, but not returned.' }), text: TEXT },
  { additionalProperties: false },
)
const FORMAT = choice(['float', 'base64'])
const FORMATS_MAX = 2

/** The body of `POST /v1/multi-vector`. */
export const MULTI_VECTOR_BODY = Type.Object(
  {
    model: optionalString({
      minLength: 1,
      description: 'The id of a model; if absent, the first model with several vectors per text.',
    }),
    input: Type.Union([TEXT, DOCUMENT, Type.Array(Type.Union([TEXT, DOCUMENT]), { minItems: 1 })], {
      description: 'One or several texts, as strings or as objects with a `text`.',
    }),
    input_type: optionalEnum(['document', 'query', 'passage'], {
      default: 'document',
      description:
        'The purpose of the texts: models mark and pad queries, and drop the vectors of punctuation in documents.',
    }),
    embedding_type: Type.Optional(
      Type.Union([nullable(FORMAT), Type.Array(FORMAT, { minItems: 1, maxItems: FORMATS_MAX })], {
        description:
          'Numbers, or base64 of little-endian 32-bit floats for each vector. With a list of formats, `embeddings` is an object with one entry per format.',
      }),
    ),
    dimensions: optionalInteger({
      minimum: 1,
      maximum: 65_536,
      description: 'Keep this many leading dimensions; for models that are trained for it.',
    }),
    truncate: optionalBoolean({
      default: true,
      description:
        'Truncate texts to the maximum length of queries or documents of the model; if false, longer texts are refused.',
    }),
    normalized: ineffective({ type: ['boolean', 'null'] }, [true]),
    user: SAMPLING_FIELDS.user,
    timeout: SAMPLING_FIELDS.timeout,
  },
  { additionalProperties: false },
)
export type MultiVectorBody = Static<typeof MULTI_VECTOR_BODY>

const NUMBERS = { type: 'array', items: { type: 'array', items: { type: 'number' } } }
const ENCODED = { type: 'array', items: { type: 'string' } }
const MULTI_VECTOR_RESPONSE = vectorsResponse(
  'embeddings',
  {
    anyOf: [NUMBERS, ENCODED, { type: 'object', properties: { float: NUMBERS, base64: ENCODED } }],
  },
  'The vectors of the tokens of each text, in the order of the inputs.',
)

/** `POST /multi-vector` of Jina: texts as one vector for each of their tokens. */
export function registerMultiVector(app: FastifyInstance, services: InferenceServices): void {
  app.post('/multi-vector', {
    config: { scope: 'embeddings', presentError: presentDetailedError },
    preValidation: async ({ body }) => checkInputCount(body),
    schema: {
      operationId: 'createMultiVectorEmbedding',
      summary: 'Embed texts as one vector per token',
      tags: ['Embeddings'],
      security: [{ apiKey: [] }],
      body: MULTI_VECTOR_BODY,
      response: { 200: MULTI_VECTOR_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) => embedTokens({ request, reply }, services),
  })
}

async function embedTokens(http: Http, services: InferenceServices): Promise<string> {
  const { request } = http
  const body = request.body as MultiVectorBody
  const job = await multiVectorJob(services, callerOf(request), body)
  const { result, usage } = await runJob(http, services, {
    kind: 'embedding',
    ...job,
    watch: watchTokens,
  })
  if (result.task !== 'multi-vector') throw new Error('vectors of tokens were answered otherwise')
  http.reply.type('application/json; charset=utf-8')
  return writeMultiVector(job.model, body, { result, usage })
}

/** The job that embeds the texts of a request. Throws unless its model is a multi-vector model. */
export async function multiVectorJob(
  models: ModelDirectory,
  caller: Caller,
  body: MultiVectorBody,
): Promise<{ readonly model: CatalogueModel; readonly input: MultiVectorInput }> {
  const need = { name: body.model, task: 'multi-vector', endpoint: 'v1/multi-vector' } as const
  const model = await getTaskModel(models, caller, need)
  const input: MultiVectorInput = {
    task: 'multi-vector',
    items: [body.input].flat().map((item) => (typeof item === 'string' ? item : item.text)),
    role: body.input_type === 'query' ? 'query' : 'passage',
    dimensions: body.dimensions ?? null,
    isCut: body.truncate !== false,
  }
  return { model, input }
}

type Result = Extract<EmbeddingResult, { task: 'multi-vector' }>

// About 10 ms of writing numbers.
const SLICE_VALUES = 16_384

/** The answer as JSON text. The event loop runs between slices of a large answer. */
export async function writeMultiVector(
  model: CatalogueModel,
  { embedding_type: formats }: MultiVectorBody,
  { result, usage }: { readonly result: Result; readonly usage: TokenUsage },
): Promise<string> {
  const written: string[] = []
  for (const [index, matrix] of result.matrices.entries()) {
    const embeddings = await writeFormats(Buffer.from(matrix, 'base64'), result.width, formats)
    written.push(`{"object":"embeddings","index":${index},"embeddings":${embeddings}}`)
  }
  return writeList(model, usage, `[${written.join(',')}]`)
}

async function writeFormats(
  bytes: Buffer,
  width: number,
  formats: MultiVectorBody['embedding_type'],
): Promise<string> {
  if (!Array.isArray(formats)) return writeMatrix(bytes, width, formats ?? 'float')
  const members: string[] = []
  for (const format of new Set(formats)) {
    members.push(`"${format}":${await writeMatrix(bytes, width, format)}`)
  }
  return `{${members.join(',')}}`
}

async function writeMatrix(
  bytes: Buffer,
  width: number,
  format: 'float' | 'base64',
): Promise<string> {
  const rows: string[] = []
  const rowBytes = width * Float32Array.BYTES_PER_ELEMENT
  const rowsPerSlice = Math.max(Math.floor(SLICE_VALUES / width), 1)
  for (let start = 0; start < bytes.length; start += rowBytes) {
    const row = bytes.subarray(start, start + rowBytes)
    rows.push(format === 'base64' ? `"${row.toString('base64')}"` : writeNumbers(row))
    if (rows.length % rowsPerSlice === 0) await setImmediate()
  }
  return `[${rows.join(',')}]`
}

function writeNumbers(row: Buffer): string {
  const numbers = Array.from({ length: row.length / Float32Array.BYTES_PER_ELEMENT }, (_, at) =>
    row.readFloatLE(at * Float32Array.BYTES_PER_ELEMENT),
  )
  return JSON.stringify(numbers)
}
