import type { FastifyInstance } from 'fastify'
import { type Static, Type } from 'typebox'

import { invalidValue, optionalString } from '#api/inference/field-schemas.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { answerHeadOf, type Caller, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { EmbeddingResult } from '#shared/contracts/embedding.ts'

import { CATEGORIES, moderate } from './categories.ts'
import { type ClassifyServices, checkTextCount, classifyingJob } from './classify-texts.ts'

/** Names that clients send without a choice of their own. */
const OPENAI_MODELS: ReadonlySet<string> = new Set([
  ...['omni-moderation-latest', 'omni-moderation-2024-09-26'],
  ...['text-moderation-latest', 'text-moderation-stable', 'text-moderation-007'],
])

const PART = Type.Union([
  Type.Object({ type: Type.Literal('text'), text: Type.String() }, { additionalProperties: false }),
  Type.Object(
    { type: Type.Literal('image_url'), image_url: Type.Object({ url: Type.String() }) },
    { additionalProperties: false, description: 'No model here judges images.' },
  ),
])

/** The body of `POST /v1/moderations`. */
export const MODERATION_BODY = Type.Object(
  {
    input: Type.Union(
      [
        Type.String(),
        Type.Array(Type.String(), { minItems: 1 }),
        Type.Array(PART, { minItems: 1 }),
      ],
      { description: 'A text, several texts, or the parts of one message.' },
    ),
    model: optionalString({
      minLength: 1,
      description:
        'The id of a model. The first that classifies if absent, or if it is a name of OpenAI that no model has.',
    }),
  },
  { additionalProperties: false },
)
export type ModerationBody = Static<typeof MODERATION_BODY>

const byCategory = (schema: object): object => ({
  type: 'object',
  required: CATEGORIES,
  properties: Object.fromEntries(CATEGORIES.map((name) => [name, schema])),
  additionalProperties: schema,
})
const MODERATION_RESPONSE = {
  type: 'object',
  description: 'The judgement of each text; one for all parts of a message.',
  required: ['id', 'model', 'results'],
  properties: {
    id: { type: 'string' },
    model: { type: 'string' },
    results: {
      type: 'array',
      items: {
        type: 'object',
        required: ['flagged', 'categories', 'category_scores', 'category_applied_input_types'],
        properties: {
          flagged: { type: 'boolean' },
          categories: byCategory({ type: 'boolean' }),
          category_scores: byCategory({ type: 'number', minimum: 0, maximum: 1 }),
          category_applied_input_types: byCategory({
            type: 'array',
            description: 'Empty for categories that the model does not judge.',
            items: { const: 'text' },
          }),
        },
      },
    },
  },
}

/** `POST /moderations`. */
export function registerModerations(app: FastifyInstance, services: InferenceServices): void {
  app.post('/moderations', {
    config: { scope: 'embeddings' },
    preValidation: async ({ body }) => checkTextCount(body),
    schema: {
      operationId: 'createModeration',
      summary: 'Judge texts by categories of harm',
      tags: ['Moderations'],
      security: [{ apiKey: [] }],
      body: MODERATION_BODY,
      response: { 200: MODERATION_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) => answer({ request, reply }, services),
  })
}

async function answer(http: Http, services: InferenceServices): Promise<object> {
  const { request } = http
  const wanted = await moderatingJob(services, callerOf(request), request.body as ModerationBody)
  const { result } = await runJob(http, services, { kind: 'embedding', ...wanted })
  if (result.task !== 'classify') throw new Error('a moderation was answered otherwise')
  const id = answerHeadOf(request, services.clock).newId('modr-')
  return presentModeration({ id, model: wanted.model, result })
}

/** The job that judges the texts of a request. Throws for images and unsuitable models. */
export function moderatingJob(
  services: ClassifyServices,
  caller: Caller,
  { model, input }: ModerationBody,
): ReturnType<typeof classifyingJob> {
  const isOpenAi =
    OPENAI_MODELS.has(model ?? '') && services.catalogue.find(`${model}`) === undefined
  return classifyingJob(services, caller, {
    ...{ modelName: isOpenAi ? null : model, endpoint: 'v1/moderations' },
    ...{ items: textsOf(input), tokensMax: 'split', hasMarkers: true, isActivated: true },
  })
}

function textsOf(input: ModerationBody['input']): readonly string[] {
  if (typeof input === 'string') return [input]
  const parts = input.filter((item) => typeof item !== 'string')
  if (parts.length === 0) return input.filter((item) => typeof item === 'string')
  const texts = parts.map((part, index) => {
    if (part.type === 'text') return part.text
    throw invalidValue(`input[${index}]`, 'no model of this server judges images, only texts.')
  })
  return [texts.join('\n')]
}

/** The answer in the form of the API. */
export function presentModeration({
  id,
  model,
  result,
}: {
  readonly id: string
  readonly model: CatalogueModel
  readonly result: Extract<EmbeddingResult, { readonly task: 'classify' }>
}): object {
  const { labels, probabilities } = result
  return { id, model: model.id, results: probabilities.map((row) => moderate(model, labels, row)) }
}
