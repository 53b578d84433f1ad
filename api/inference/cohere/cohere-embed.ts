import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { addIgnoredFields } from '#api/http/validation.ts'
import {
  checkInputCount,
  type Embedding,
  sourceOf,
} from '#api/inference/embeddings/embedding-request.ts'
import {
  decodeFloats,
  getEmbeddingModel,
  runEmbedding,
  writeVectors,
} from '#api/inference/embeddings/embeddings.ts'
import { type FieldNames, withFieldNames } from '#api/inference/field-names.ts'
import {
  ineffective,
  invalidValue,
  missingParameter,
  optionalEnum,
  optionalInteger,
} from '#api/inference/field-schemas.ts'
import { RequestImages, requireVision } from '#api/inference/request-images.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { variantSchema } from '#api/inference/variant-schema.ts'
import type { Http } from '#api/jobs/run-inference.ts'
import { answerHeadOf, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { EmbedInput } from '#shared/contracts/embedding.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable } from '#shared/schemas.ts'

import { COHERE_ERRORS, presentCohereError } from './cohere-errors.ts'

const TEXT = Type.String({ minLength: 1 })
const PART = variantSchema({
  text: { text: TEXT },
  image_url: { image_url: Type.Object({ url: TEXT }, { additionalProperties: false }) },
})
const INPUT = Type.Object(
  { content: Type.Array(PART, { minItems: 1, maxItems: 1 }) },
  { additionalProperties: false },
)
const ROLES = {
  search_query: 'query',
  search_document: 'passage',
  classification: 'none',
  clustering: 'none',
  image: 'none',
} as const
type InputType = keyof typeof ROLES

const BODY = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'The id of a model.' }),
    texts: Type.Optional(nullable(Type.Array(TEXT, { minItems: 1 }))),
    images: Type.Optional(
      nullable(
        Type.Array(TEXT, { minItems: 1, description: 'Images as data URLs or https URLs.' }),
      ),
    ),
    inputs: Type.Optional(
      nullable(
        Type.Array(INPUT, { minItems: 1, description: 'Objects with one text or one image each.' }),
      ),
    ),
    input_type: optionalEnum(Object.keys(ROLES) as [InputType, ...InputType[]], {
      description:
        'The purpose of the texts; for models that are trained with a prefix per purpose.',
    }),
    embedding_types: Type.Optional(
      nullable(
        Type.Array(choice(['float', 'base64']), {
          minItems: 1,
          description:
            'Numbers, or base64 of little-endian 32-bit floats. Without it, version 1 answers a list of vectors.',
        }),
      ),
    ),
    output_dimension: optionalInteger({
      minimum: 1,
      description: 'Keep this many leading dimensions; for models that are trained for it.',
    }),
    max_tokens: optionalInteger({
      minimum: 1,
      description: 'Keep this many tokens of each input.',
    }),
    truncate: optionalEnum(['NONE', 'START', 'END'], {
      default: 'END',
      description:
        'The handling of inputs that do not fit into the context of the model: `NONE` refuses them, `START` drops their beginning and `END` their end.',
    }),
    priority: ineffective({ type: ['integer', 'null'] }, [0]),
  },
  { additionalProperties: false },
)
type CohereEmbedBody = Static<typeof BODY>
/** Exactly one of them holds the inputs. */
const FIELDS = ['texts', 'images', 'inputs'] as const

const VECTORS = { type: 'array', items: { type: 'array', items: { type: 'number' } } }
const RESPONSE = {
  type: 'object',
  description: 'The vectors, in the order of the inputs.',
  required: ['id', 'embeddings', 'meta', 'response_type'],
  properties: {
    id: { type: 'string' },
    response_type: { type: 'string', enum: ['embeddings_by_type', 'embeddings_floats'] },
    texts: { type: 'array', items: { type: 'string' } },
    meta: { type: 'object' },
    embeddings: {
      anyOf: [
        VECTORS,
        {
          type: 'object',
          properties: { float: VECTORS, base64: { type: 'array', items: { type: 'string' } } },
        },
      ],
    },
  },
}

type Version = '1' | '2'

/** `POST /v2/embed`, or `/v1/embed` of Cohere's older clients. */
export function registerCohereEmbed(
  app: FastifyInstance,
  services: InferenceServices,
  version: Version,
): void {
  // The routes of version 1 have their prefix already.
  app.post(version === '1' ? '/embed' : '/v2/embed', {
    config: { scope: 'embeddings', presentError: presentCohereError },
    preValidation: async ({ body }) => {
      for (const param of FIELDS) checkInputCount(body, param)
    },
    schema: {
      operationId: `createEmbedV${version}`,
      summary: "Embed texts and images as vectors, in Cohere's dialect",
      tags: ['Embeddings'],
      security: [{ apiKey: [] }],
      body: BODY,
      response: { 200: RESPONSE, ...COHERE_ERRORS },
    },
    handler: (request, reply) =>
      withFieldNames(fieldsOf(request.body as CohereEmbedBody), () =>
        embed({ request, reply }, services, version),
      ),
  })
}

function fieldsOf(body: CohereEmbedBody): FieldNames {
  return { input: FIELDS.find((name) => body[name]), dimensions: 'output_dimension' }
}

async function embed(http: Http, services: InferenceServices, version: Version): Promise<string> {
  const { request } = http
  const body = request.body as CohereEmbedBody
  const model = await getEmbeddingModel(
    services,
    callerOf(request),
    body.model,
    `v${version}/embed`,
  )
  const embedding = embeddingOf(body, model)
  const { vectors, usage } = await runEmbedding(http, services, { model, ...embedding })
  const id = answerHeadOf(request, services.clock).newId('embed-')
  return writeAnswer(presentAround({ id, body, usage, version }), body, { vectors, version })
}

/** The request in the form of the workers. Throws for faults that the schema cannot express. */
function embeddingOf(body: CohereEmbedBody, model: CatalogueModel): Embedding {
  const images = new RequestImages()
  const items = itemsOf(body, images)
  requireVision(model, images)
  const { input_type: type, max_tokens: tokens, truncate, output_dimension: dimensions } = body
  if (type === 'classification' || type === 'clustering') addIgnoredFields(body, ['input_type'])
  if (truncate === 'NONE' && typeof tokens === 'number') {
    throw invalidValue('max_tokens', "it contradicts 'truncate', NONE.")
  }
  const input: EmbedInput = {
    task: 'embed',
    items,
    role: type ? ROLES[type] : 'none',
    dimensions: dimensions ?? null,
    ...(truncate !== 'NONE' && { tokensMax: tokens ?? 'context' }),
    ...(truncate === 'START' && { truncationSide: 'left' }),
  }
  return { input, images }
}

function itemsOf(body: CohereEmbedBody, images: RequestImages): EmbedInput['items'] {
  const given = FIELDS.filter((name) => body[name])
  const [, second] = given
  if (second !== undefined) {
    throw invalidValue(second, `it cannot be given together with '${given[0]}'.`)
  }
  const imageAt = (url: string, path: string) => images.add(sourceOf(url), { path })
  if (body.texts) return body.texts
  if (body.images) return body.images.map((url, index) => imageAt(url, `images[${index}]`))
  if (!body.inputs) throw missingParameter('texts')
  return body.inputs.flatMap(({ content }, index) =>
    content.map((part) =>
      part.type === 'text'
        ? part.text
        : imageAt(part.image_url.url, `inputs[${index}].content[0].image_url.url`),
    ),
  )
}

function presentAround(answer: {
  readonly id: string
  readonly body: CohereEmbedBody
  readonly usage: TokenUsage
  readonly version: Version
}): object {
  const { id, body, usage, version } = answer
  return {
    id,
    ...(body.texts && { texts: body.texts }),
    meta: {
      api_version: { version },
      billed_units: { input_tokens: usage.promptTokens },
    },
  }
}

/** The answer as JSON text, with vectors of each requested type. */
async function writeAnswer(
  around: object,
  { embedding_types: types }: CohereEmbedBody,
  { vectors, version }: { readonly vectors: readonly string[]; readonly version: Version },
): Promise<string> {
  const head = JSON.stringify(around).slice(0, -1)
  const isPlain = !types && version === '1'
  if (isPlain) {
    const floats = await writeVectors(vectors, decodeFloats)
    return `${head},"response_type":"embeddings_floats","embeddings":${floats}}`
  }
  const lists: string[] = []
  for (const type of new Set(types ?? ['float'])) {
    const written = await writeVectors(vectors, type === 'float' ? decodeFloats : String)
    lists.push(`"${type}":${written}`)
  }
  return `${head},"response_type":"embeddings_by_type","embeddings":{${lists.join(',')}}}`
}
