import { setImmediate } from 'node:timers/promises'

import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { INPUTS, withFieldNames } from '#api/inference/field-names.ts'
import { optionalBoolean, optionalEnum, optionalString } from '#api/inference/field-schemas.ts'
import { getTaskModel, type ModelDirectory } from '#api/inference/model-route.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import { SAMPLING_FIELDS } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { type Caller, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { EmbeddingResult, SparseInput } from '#shared/contracts/embedding.ts'
import { Type } from '#shared/schema-types.ts'

import {
  checkInputCount,
  checkTokenCount,
  itemsOf,
  TEXTS_OR_TOKEN_IDS,
  TRUNCATION_DIRECTION,
  truncationSide,
  watchTokens,
} from './embedding-request.ts'

/** The body of `POST /v1/embed_sparse`. */
export const EMBED_SPARSE_BODY = Type.Object(
  {
    model: optionalString({
      minLength: 1,
      description: 'The id of a model; the first sparse encoder if absent.',
    }),
    inputs: Type.Union([...TEXTS_OR_TOKEN_IDS], {
      description: 'A text, several texts, the token ids of one text, or lists of token ids.',
    }),
    truncate: optionalBoolean({
      default: false,
      description:
        'Truncate inputs that do not fit into the context of the model; otherwise they are refused.',
    }),
    truncation_direction: TRUNCATION_DIRECTION,
    prompt_name: optionalEnum(['query', 'document', 'passage'], {
      description:
        'The purpose of the texts; for models that are trained with a prefix per purpose.',
    }),
    user: SAMPLING_FIELDS.user,
    timeout: SAMPLING_FIELDS.timeout,
  },
  { additionalProperties: false },
)
export type EmbedSparseBody = Static<typeof EMBED_SPARSE_BODY>

const EMBED_SPARSE_RESPONSE = {
  type: 'array',
  description: 'The tokens of the vocabulary with a weight above zero, for each input.',
  items: {
    type: 'array',
    items: {
      type: 'object',
      required: ['index', 'value'],
      properties: {
        index: { type: 'integer', description: 'The id of a token.' },
        value: { type: 'number', description: 'The weight of the token.' },
      },
    },
  },
}

/** `POST /embed_sparse` of Text Embeddings Inference: texts as weights of tokens. */
export function registerEmbedSparse(
  app: FastifyInstance,
  services: InferenceServices,
  operationId = 'createSparseEmbedding',
): void {
  app.post('/embed_sparse', {
    config: { scope: 'embeddings' },
    preValidation: async ({ body }) => checkInputCount(body, 'inputs'),
    schema: {
      operationId,
      summary: 'Embed texts as sparse vectors',
      tags: ['Embeddings'],
      security: [{ apiKey: [] }],
      body: EMBED_SPARSE_BODY,
      response: { 200: EMBED_SPARSE_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) =>
      withFieldNames(INPUTS, () => embedSparse({ request, reply }, services)),
  })
}

async function embedSparse(http: Http, services: InferenceServices): Promise<string> {
  const { request } = http
  const job = await sparseJob(services, callerOf(request), request.body as EmbedSparseBody)
  const { result } = await runJob(http, services, {
    ...({ kind: 'embedding', ...job } as const),
    watch: watchTokens,
  })
  if (result.task !== 'sparse') throw new Error('a sparse embedding was answered otherwise')
  http.reply.type('application/json; charset=utf-8')
  return writeSparse(result.vectors)
}

/** The job that embeds the texts of a request. Throws unless its model is a sparse encoder. */
export async function sparseJob(
  models: ModelDirectory,
  caller: Caller,
  body: EmbedSparseBody,
): Promise<{ readonly model: CatalogueModel; readonly input: SparseInput }> {
  const need = { name: body.model, task: 'sparse', endpoint: 'v1/embed_sparse' } as const
  return { model: await getTaskModel(models, caller, need), input: inputOf(body) }
}

function inputOf(body: EmbedSparseBody): SparseInput {
  const { inputs, truncate, prompt_name: name, truncation_direction: side } = body
  // The schema takes no images.
  const items = itemsOf(inputs).items as SparseInput['items']
  checkTokenCount(items)
  return {
    task: 'sparse',
    items,
    role: name === 'document' ? 'passage' : (name ?? 'none'),
    ...(truncate === true && { tokensMax: 'context' }),
    ...truncationSide(side),
  }
}

type Vectors = Extract<EmbeddingResult, { task: 'sparse' }>['vectors']

// About 10 ms of writing numbers.
const SLICE_VALUES = 10_000

/** The answer as JSON text. The event loop runs between slices of a large answer. */
export async function writeSparse(vectors: Vectors): Promise<string> {
  const written: string[] = []
  let valueCount = 0
  for (const vector of vectors) {
    const rows = presentVector(vector)
    written.push(JSON.stringify(rows))
    valueCount += rows.length
    if (valueCount < SLICE_VALUES) continue
    valueCount = 0
    await setImmediate()
  }
  return `[${written.join(',')}]`
}

function presentVector({ indices, values }: Vectors[number]): readonly object[] {
  const [ids, weights] = [Buffer.from(indices, 'base64'), Buffer.from(values, 'base64')]
  return Array.from({ length: ids.length / Uint32Array.BYTES_PER_ELEMENT }, (_, row) => ({
    index: ids.readUInt32LE(row * Uint32Array.BYTES_PER_ELEMENT),
    value: weights.readFloatLE(row * Float32Array.BYTES_PER_ELEMENT),
  }))
}
