import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { INPUTS, withFieldNames } from '#api/inference/field-names.ts'
import { ineffective, optionalInteger } from '#api/inference/field-schemas.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { Type } from '#shared/schema-types.ts'

import { EMBED_SPARSE_BODY } from './embed-sparse.ts'
import { checkInputCount, embedInput, truncationSide } from './embedding-request.ts'
import { decodeFloats, getEmbeddingModel, runEmbedding, writeVectors } from './embeddings.ts'

const BODY = Type.Object(
  {
    ...EMBED_SPARSE_BODY.properties,
    normalize: ineffective({ type: ['boolean', 'null'] }, [true]),
    dimensions: optionalInteger({
      minimum: 1,
      description: 'Keep this many leading dimensions; for models that are trained for it.',
    }),
  },
  { additionalProperties: false },
)

const RESPONSE = {
  type: 'array',
  description: 'The vector of each input.',
  items: { type: 'array', items: { type: 'number' } },
}

/** `POST /embed` of Text Embeddings Inference: texts as vectors, without a wrapper. */
export function registerEmbed(app: FastifyInstance, services: InferenceServices): void {
  app.post('/embed', {
    config: { scope: 'embeddings' },
    preValidation: async ({ body }) => checkInputCount(body, 'inputs'),
    schema: {
      operationId: 'createEmbed',
      summary: 'Embed texts as vectors, as Text Embeddings Inference does',
      tags: ['Embeddings'],
      security: [{ apiKey: [] }],
      body: BODY,
      response: { 200: RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) => withFieldNames(INPUTS, () => embed({ request, reply }, services)),
  })
}

async function embed(http: Http, services: InferenceServices): Promise<string> {
  const {
    model: name,
    inputs,
    prompt_name: prompt,
    ...rest
  } = http.request.body as Static<typeof BODY>
  const model = await getEmbeddingModel(services, callerOf(http.request), name, 'embed')
  const { truncate, dimensions, truncation_direction: direction } = rest
  const body = {
    input: inputs,
    dimensions: dimensions ?? null,
    input_type: prompt ?? null,
    ...(truncate === true && { truncate }),
    truncation_side: truncationSide(direction).truncationSide ?? null,
  }
  const embedding = await embedInput(body, { model, modelName: name ?? model.id })
  const { vectors } = await runEmbedding(http, services, { model, ...embedding })
  return writeVectors(vectors, decodeFloats)
}
