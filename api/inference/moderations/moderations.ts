import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import { optionalString } from '#api/inference/field-schemas.ts'
import { readsOf } from '#api/inference/model-route.ts'
import { RequestImages, withImages } from '#api/inference/request-images.ts'
import { JOB_ERRORS } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { answerHeadOf, type Caller, callerOf } from '#api/v1/request-context.ts'
import type { ClassifyInput, EmbeddingResult } from '#shared/contracts/embedding.ts'
import { Type } from '#shared/schema-types.ts'

import { CATEGORIES, type Judgement, moderate } from './categories.ts'
import {
  type ClassifyingJob,
  type ClassifyServices,
  checkTextCount,
  classifyingJob,
} from './classifying-job.ts'

/** Names that clients send by default. */
const OPENAI_MODELS: ReadonlySet<string> = new Set([
  ...['omni-moderation-latest', 'omni-moderation-2024-09-26'],
  ...['text-moderation-latest', 'text-moderation-stable', 'text-moderation-007'],
])

const PART = Type.Union([
  Type.Object({ type: Type.Literal('text'), text: Type.String() }, { additionalProperties: false }),
  Type.Object(
    { type: Type.Literal('image_url'), image_url: Type.Object({ url: Type.String() }) },
    {
      additionalProperties: false,
      description:
        'An image as a data URL, or as an https URL that the server fetches; for models that classify images.',
    },
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
        'The id of a model. If absent, or an OpenAI model name that is not in the catalogue, the first text classifier classifies the texts and the first image classifier the images.',
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
  description: 'One result per text, or one for all parts of a message.',
  required: ['id', 'model', 'results'],
  properties: {
    id: { type: 'string' },
    model: { type: 'string', description: 'The ids of the models, separated by commas.' },
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
            description:
              'The types of input that each category applies to; empty for categories that the model does not classify.',
            items: { enum: ['text', 'image'] },
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
      summary: 'Classify texts and images by categories of harm',
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
  const caller = callerOf(request)
  const { jobs, images } = await moderatingJobs(services, caller, request.body as ModerationBody)
  const { organizationId } = caller
  const answered = await withImages(services, { images, organizationId }, async () => {
    const results: AnsweredModeration[] = []
    for (const job of jobs) {
      const { result } = await runJob(http, services, { kind: 'embedding', ...job })
      results.push({ ...job, result })
    }
    return results
  })
  const id = answerHeadOf(request, services.clock).newId('modr-')
  return presentModeration(id, answered)
}

interface Moderation {
  /** One for texts, one for images, or both. */
  readonly jobs: readonly ClassifyingJob[]
  readonly images: RequestImages
}

/** The jobs that judge the inputs of a request. Throws for unsuitable models. */
export async function moderatingJobs(
  services: ClassifyServices,
  caller: Caller,
  { model, input }: ModerationBody,
): Promise<Moderation> {
  const { texts, images } = inputsOf(input)
  const judge = (reads: 'texts' | 'images', rest: Pick<ClassifyInput, 'items' | 'tokensMax'>) =>
    classifyingJob(services, caller, {
      modelName: nameOf(services, model, reads),
      endpoint: 'v1/moderations',
      reads,
      ...rest,
      hasMarkers: true,
      isActivated: true,
    })
  const jobs: ClassifyingJob[] = []
  if (texts.length > 0) jobs.push(await judge('texts', { items: texts, tokensMax: 'split' }))
  if (images.all.length > 0) {
    const items = images.all.map(({ key, path }) => ({ key, path }))
    jobs.push(await judge('images', { items }))
  }
  return { jobs, images }
}

/**
 * Drops a name of OpenAI unless a model of this server has that name and reads the given inputs.
 */
function nameOf(
  { catalogue }: ClassifyServices,
  name: string | null | undefined,
  reads: 'texts' | 'images',
): string | null | undefined {
  if (!OPENAI_MODELS.has(name ?? '')) return name
  const model = catalogue.find(`${name}`)
  return model !== undefined && readsOf(model) === reads ? name : null
}

/** The inputs: texts one by one, but all texts of a message together, beside its images. */
function inputsOf(input: ModerationBody['input']): {
  readonly texts: readonly string[]
  readonly images: RequestImages
} {
  const images = new RequestImages()
  if (typeof input === 'string') return { texts: [input], images }
  const parts = input.filter((item) => typeof item !== 'string')
  if (parts.length === 0) return { texts: input.filter((item) => typeof item === 'string'), images }
  const texts: string[] = []
  for (const [index, part] of parts.entries()) {
    if (part.type === 'text') texts.push(part.text)
    else images.add({ kind: 'url', url: part.image_url.url }, { path: `input[${index}].image_url` })
  }
  return { texts: texts.length > 0 ? [texts.join('\n')] : [], images }
}

/** A job of a moderation and its result. */
interface AnsweredModeration extends Pick<ClassifyingJob, 'model' | 'input'> {
  readonly result: EmbeddingResult
}

/** The answer in the form of the API: one result for each text, or one for a message. */
export function presentModeration(id: string, answered: readonly AnsweredModeration[]): object {
  const judgements = answered.flatMap(({ model, result }) => {
    if (result.task !== 'classify') throw new Error('a moderation was answered otherwise')
    const type = readsOf(model) === 'images' ? 'image' : 'text'
    const { labels } = result
    return result.probabilities.map((row): Judgement => {
      return { model, type, labels, probabilities: row }
    })
  })
  const isMessage = judgements.some(({ type }) => type === 'image')
  const results = isMessage ? [moderate(judgements)] : judgements.map((one) => moderate([one]))
  return { id, model: answered.map(({ model }) => model.id).join(','), results }
}
