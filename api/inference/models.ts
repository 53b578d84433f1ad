import type { FastifyInstance, FastifyRequest } from 'fastify'

import { listResponse } from '#api/v1/list-response.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { type CatalogueModel, servingIdOf } from '#shared/catalogue.ts'
import type { SamplingDefaults } from '#shared/contracts/completion.ts'
import { MODEL_KINDS } from '#shared/contracts/job.ts'

import { isAnthropic, presentErrorByVersion } from './messages/messages-errors.ts'
import { presentModelInfo, presentModelInfos } from './messages/model-infos.ts'
import { getModel, visibleModels } from './model-route.ts'
import { errorResponses } from './response-schemas.ts'
import type { InferenceServices } from './services.ts'

const MODEL_RESPONSE = {
  type: 'object',
  description: 'A model.',
  required: ['id', 'object', 'created', 'owned_by'],
  properties: {
    id: { type: 'string' },
    object: { const: 'model' },
    created: { type: 'integer' },
    owned_by: { type: 'string' },
    root: { type: 'string' },
    parent: { type: ['string', 'null'], description: 'The base model of a fine-tuned model.' },
    permission: { type: 'array' },
    kind: { type: 'string', enum: MODEL_KINDS },
    capabilities: { type: 'array', items: { type: 'string' } },
    aliases: { type: 'array', items: { type: 'string' } },
    max_model_len: {
      type: 'integer',
      description:
        'The context length in tokens; present if the model reads text and a live worker serves it.',
    },
    sampling_defaults: {
      type: 'object',
      description: 'Sampling parameters that the model uses if a request does not set them.',
      properties: {
        temperature: { type: 'number' },
        top_p: { type: 'number' },
        top_k: { type: 'integer' },
        min_p: { type: 'number' },
        repetition_penalty: { type: 'number' },
      },
    },
  },
}

const MODELS = { scope: 'any', presentError: presentErrorByVersion } as const

/** `GET /models` and `GET /models/{model}`; ids may hold slashes and colons. */
export function registerModels(app: FastifyInstance, services: InferenceServices): void {
  app.get('/models', {
    config: MODELS,
    schema: {
      operationId: 'listModels',
      summary: 'List the models',
      tags: ['Models'],
      security: [{ apiKey: [] }],
      response: { 200: listResponse(MODEL_RESPONSE), ...errorResponses(401, 403) },
    },
    handler: async (request) => {
      const caller = callerOf(request)
      const models = await visibleModels(services, caller)
      const lengths = contextLengths(services.workersSeen())
      if (isAnthropic(request)) return presentModelInfos(models, lengths, request.query)
      return { object: 'list', data: models.map((model) => presentModel(model, lengths, services)) }
    },
  })
  const retrieve = async (request: FastifyRequest, id: string): Promise<object> => {
    const model = await getModel(services, callerOf(request), id, 'model')
    const lengths = contextLengths(services.workersSeen())
    if (isAnthropic(request)) return presentModelInfo(model, lengths)
    return presentModel(model, lengths, services)
  }
  app.get<{ Params: { model: string } }>('/models/:model', {
    config: MODELS,
    schema: {
      operationId: 'retrieveModel',
      summary: 'Show a model',
      tags: ['Models'],
      security: [{ apiKey: [] }],
      params: {
        type: 'object',
        required: ['model'],
        properties: { model: { type: 'string', description: 'The id or an alias of the model.' } },
      },
      response: { 200: MODEL_RESPONSE, ...errorResponses(401, 403, 404) },
    },
    handler: (request) => retrieve(request, request.params.model),
  })
  // The same for ids whose slashes are not percent-encoded.
  app.get<{ Params: { '*': string } }>('/models/*', {
    config: MODELS,
    schema: { hide: true },
    handler: (request) => retrieve(request, request.params['*']),
  })
}

/** The smallest value that live workers report, because any of them may answer. */
export function contextLengths(
  workersSeen: ReturnType<InferenceServices['workersSeen']>,
): ReadonlyMap<string, number> {
  const lengths = new Map<string, number>()
  for (const { modelId, contextLength } of workersSeen.flatMap(({ queues }) => queues)) {
    if (contextLength === undefined) continue
    lengths.set(modelId, Math.min(contextLength, lengths.get(modelId) ?? contextLength))
  }
  return lengths
}

function presentModel(
  model: CatalogueModel,
  lengths: ReadonlyMap<string, number>,
  { workersSeen }: InferenceServices,
): object {
  const servingId = servingIdOf(model)
  const defaults = workersSeen()
    .flatMap(({ queues }) => queues)
    .find(
      ({ modelId, samplingDefaults }) => modelId === servingId && samplingDefaults !== undefined,
    )?.samplingDefaults
  const contextLength = lengths.get(servingId)
  return {
    id: model.id,
    object: 'model',
    created: model.created,
    owned_by: model.ownedBy,
    root: servingId,
    parent: model.adapter?.baseId ?? null,
    permission: [],
    kind: model.kind,
    capabilities: model.capabilities,
    aliases: model.aliases,
    ...(contextLength !== undefined && { max_model_len: contextLength }),
    ...(defaults !== undefined && { sampling_defaults: presentDefaults(defaults) }),
  }
}

function presentDefaults(defaults: SamplingDefaults): object {
  const { temperature, topP, topK, minP, repetitionPenalty } = defaults
  return {
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { top_p: topP }),
    ...(topK !== undefined && { top_k: topK }),
    ...(minP !== undefined && { min_p: minP }),
    ...(repetitionPenalty !== undefined && { repetition_penalty: repetitionPenalty }),
  }
}
