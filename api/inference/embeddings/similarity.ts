import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { type FieldNames, withFieldNames } from '#api/inference/field-names.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { Type } from '#shared/schema-types.ts'
import { nullable } from '#shared/schemas.ts'

import { EMBED_SPARSE_BODY } from './embed-sparse.ts'
import { embedInput, INPUTS_MAX, truncationSide } from './embedding-request.ts'
import { decodeFloats, getEmbeddingModel, runEmbedding, writeVectors } from './embeddings.ts'

const { model, truncate, truncation_direction, prompt_name, user, timeout } =
  EMBED_SPARSE_BODY.properties
const TEXT = Type.String({ minLength: 1 })

const BODY = Type.Object(
  {
    model,
    inputs: Type.Object(
      {
        source_sentence: Type.String({
          minLength: 1,
          description: 'The text to compare the others with.',
        }),
        sentences: Type.Array(TEXT, {
          minItems: 1,
          maxItems: INPUTS_MAX - 1,
          description: 'The texts to compare.',
        }),
      },
      { additionalProperties: false },
    ),
    parameters: Type.Optional(
      nullable(
        Type.Object(
          { truncate, truncation_direction, prompt_name },
          { additionalProperties: false },
        ),
      ),
    ),
    user,
    timeout,
  },
  { additionalProperties: false },
)
type Body = Static<typeof BODY>

const RESPONSE = {
  type: 'array',
  description: 'The cosine similarity of each sentence to the source, from -1 to 1.',
  items: { type: 'number' },
}

/** `POST /similarity` of Text Embeddings Inference: how similar texts are to one text. */
export function registerSimilarity(app: FastifyInstance, services: InferenceServices): void {
  app.post('/similarity', {
    config: { scope: 'embeddings' },
    schema: {
      operationId: 'createSimilarity',
      summary: 'Compare texts with one text, as Text Embeddings Inference does',
      tags: ['Embeddings'],
      security: [{ apiKey: [] }],
      body: BODY,
      response: { 200: RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) =>
      withFieldNames(fieldNames(request.body as Body), () => compare({ request, reply }, services)),
  })
}

/** The source is the last input of the job, so that sentences keep their indices in errors. */
function fieldNames({ inputs }: Body): FieldNames {
  return {
    input: 'inputs.sentences',
    [`input[${inputs.sentences.length}]`]: 'inputs.source_sentence',
    input_type: 'parameters.prompt_name',
  }
}

async function compare(http: Http, services: InferenceServices): Promise<string> {
  const { model: name, inputs, parameters } = http.request.body as Body
  const model = await getEmbeddingModel(services, callerOf(http.request), name, 'similarity')
  const body = {
    input: [...inputs.sentences, inputs.source_sentence],
    input_type: parameters?.prompt_name ?? null,
    ...(parameters?.truncate === true && { truncate: true }),
    truncation_side: truncationSide(parameters?.truncation_direction).truncationSide ?? null,
  }
  const embedding = await embedInput(body, { model, modelName: name ?? model.id })
  const { vectors } = await runEmbedding(http, services, { model, ...embedding })
  const source = decodeFloats(vectors.at(-1) ?? '')
  return writeVectors(vectors.slice(0, -1), (vector) => cosine(source, decodeFloats(vector)))
}

/** The cosine of two vectors as a 32-bit float; 0 if one has no length. */
function cosine(one: readonly number[], other: readonly number[]): number {
  const length = Math.sqrt(dot(one, one) * dot(other, other))
  return length === 0 ? 0 : Math.fround(dot(one, other) / length)
}

function dot(one: readonly number[], other: readonly number[]): number {
  return one.reduce((sum, value, index) => sum + value * (other[index] ?? 0), 0)
}
