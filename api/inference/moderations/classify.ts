import type { FastifyInstance } from 'fastify'
import type { Static } from 'typebox'

import {
  itemsOf,
  refuseMessages,
  TEXT_OR_IMAGE,
  TRUNCATION_SIDE,
  tokensMaxOf,
  truncationSide,
} from '#api/inference/embeddings/embedding-request.ts'
import { type FieldNames, withFieldNames } from '#api/inference/field-names.ts'
import {
  fixed,
  ineffective,
  invalidValue,
  optionalBoolean,
  optionalInteger,
} from '#api/inference/field-schemas.ts'
import { type RequestImages, withImages } from '#api/inference/request-images.ts'
import { JOB_ERRORS, rowsAnswer } from '#api/inference/response-schemas.ts'
import { SAMPLING_FIELDS } from '#api/inference/sampling-fields.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { type AnswerHead, answerHeadOf, type Caller, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { EmbeddingResult } from '#shared/contracts/embedding.ts'
import type { TokenUsage } from '#shared/contracts/reply.ts'
import { Type } from '#shared/schema-types.ts'

import { CANDIDATE_FIELDS, candidatesOf } from './candidate-labels.ts'
import {
  type ClassifyingJob,
  type ClassifyServices,
  checkTextCount,
  classifyingJob,
} from './classifying-job.ts'

const TOKENS_MAX = 300_000
const TEXT = Type.String({ minLength: 1 })
const TOKEN_IDS = Type.Array(Type.Integer({ minimum: 0 }), { minItems: 1, maxItems: TOKENS_MAX })
/** The body of `POST /v1/classify`. */
export const CLASSIFY_BODY = Type.Object(
  {
    model: Type.String({ minLength: 1, description: 'The id of a model.' }),
    input: Type.Union(
      [
        TEXT,
        Type.Array(TEXT, { minItems: 1 }),
        TOKEN_IDS,
        Type.Array(TOKEN_IDS, { minItems: 1 }),
        Type.Array(TEXT_OR_IMAGE, { minItems: 1 }),
      ],
      {
        description:
          'A text, several texts, the token ids of one text, lists of token ids, or objects with one text or one image each.',
      },
    ),
    truncate_prompt_tokens: optionalInteger({
      minimum: -1,
      description:
        'Keep this many tokens of each input, including special tokens; -1 keeps as many as fit into the context. If absent, an input that does not fit is refused.',
    }),
    truncation_side: TRUNCATION_SIDE,
    add_special_tokens: optionalBoolean({
      default: true,
      description: 'Add the special tokens of the model to texts; token ids are used unchanged.',
    }),
    use_activation: optionalBoolean({
      default: true,
      description: 'Return probabilities; if false, return the logits of the model.',
    }),
    activation: optionalBoolean({ description: 'Alias of `use_activation`.' }),
    softmax: optionalBoolean({ description: 'Alias of `use_activation`.' }),
    ...CANDIDATE_FIELDS,
    padding: fixed(['do_not_pad']),
    priority: ineffective({ type: ['integer', 'null'] }, [0]),
    request_id: ineffective({ type: ['string', 'null'] }),
    cache_salt: ineffective({ type: ['string', 'null'] }),
    user: SAMPLING_FIELDS.user,
  },
  { additionalProperties: false },
)
export type ClassifyBody = Static<typeof CLASSIFY_BODY>

const CLASSIFY_RESPONSE = rowsAnswer('The label of each text or image, in their order.', {
  required: ['index', 'label', 'probs', 'num_classes'],
  properties: {
    index: { type: 'integer' },
    label: { type: 'string', description: 'The most probable label.' },
    probs: {
      type: 'array',
      description:
        'The probability of each label, in the order of the model or of the labels in the request; logits if the activation is off.',
      items: { type: 'number' },
    },
    num_classes: { type: 'integer' },
  },
})

/** `POST /classify` of vLLM: the labels of texts, and also of images. */
export function registerClassify(
  app: FastifyInstance,
  services: InferenceServices,
  operationId = 'createClassification',
): void {
  app.post('/classify', {
    config: { scope: 'embeddings' },
    preValidation: async ({ body }) => checkClassifyBody(body),
    schema: {
      operationId,
      summary: 'Classify texts and images by the labels of a model',
      tags: ['Moderations'],
      security: [{ apiKey: [] }],
      body: CLASSIFY_BODY,
      response: { 200: CLASSIFY_RESPONSE, ...JOB_ERRORS },
    },
    handler: (request, reply) =>
      withFieldNames(classifyFields(request.body as ClassifyBody), () =>
        classify({ request, reply }, services),
      ),
  })
}

/**
 * Refuses too many inputs before the validator reads them all, and vLLM's conversations, which
 * would need a chat template.
 */
export function checkClassifyBody(body: unknown): void {
  checkTextCount(body)
  refuseMessages(body, 'Classifiers')
}

/** The name of the labels. */
export function classifyFields({ labels }: ClassifyBody): FieldNames {
  return labels ? { candidate_labels: 'labels' } : {}
}

async function classify(http: Http, services: InferenceServices): Promise<object> {
  const { request } = http
  const caller = callerOf(request)
  const { job, images } = await labellingJob(services, caller, request.body as ClassifyBody)
  const { organizationId } = caller
  const { result, usage } = await withImages(services, { images, organizationId }, () =>
    runJob(http, services, { kind: 'embedding', ...job }),
  )
  if (result.task !== 'classify') throw new Error('a classification was answered otherwise')
  const head = answerHeadOf(request, services.clock)
  return presentLabels({ head, model: job.model, result, usage })
}

/** The job that labels the inputs of a request. Throws for unsuitable models. */
export async function labellingJob(
  services: ClassifyServices,
  caller: Caller,
  body: ClassifyBody,
): Promise<{ readonly job: ClassifyingJob; readonly images: RequestImages }> {
  const tokensMax = tokensMaxOf(body)
  const zeroShot = candidatesOf(body)
  const { items, images } = itemsOf(body.input)
  const job = await classifyingJob(services, caller, {
    modelName: body.model,
    endpoint: 'v1/classify',
    items,
    reads: images.all.length > 0 ? 'images' : 'texts',
    ...(tokensMax !== undefined && { tokensMax }),
    ...truncationSide(body.truncation_side),
    hasMarkers: body.add_special_tokens ?? true,
    isActivated: isActivated(body),
    ...(zeroShot !== undefined && { zeroShot }),
  })
  return { job, images }
}

/** The answer in the format of vLLM. */
export function presentLabels({
  head,
  model,
  result: { labels, probabilities },
  usage,
}: {
  readonly head: AnswerHead
  readonly model: CatalogueModel
  readonly result: Extract<EmbeddingResult, { task: 'classify' }>
  readonly usage: TokenUsage
}): object {
  return {
    id: head.newId('classify-'),
    object: 'list',
    created: head.created,
    model: model.id,
    data: probabilities.map((probs, index) => ({
      index,
      label: labels[probs.indexOf(Math.max(...probs))],
      probs,
      num_classes: probs.length,
    })),
    usage: { prompt_tokens: usage.promptTokens, total_tokens: usage.promptTokens },
  }
}

/** vLLM has renamed the field twice; the values must agree. */
function isActivated(body: ClassifyBody): boolean {
  const [first, ...others] = (['use_activation', 'activation', 'softmax'] as const).flatMap(
    (name) => {
      const value = body[name]
      return typeof value === 'boolean' ? [{ name, value }] : []
    },
  )
  const other = others.find(({ value }) => value !== first?.value)
  if (first !== undefined && other !== undefined) {
    throw invalidValue(other.name, `${other.value} contradicts '${first.name}', ${first.value}.`)
  }
  return first?.value ?? true
}
