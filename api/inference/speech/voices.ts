import type { FastifyInstance } from 'fastify'

import { visibleModels } from '#api/inference/model-route.ts'
import { errorResponses } from '#api/inference/response-schemas.ts'
import type { InferenceServices } from '#api/inference/services.ts'
import { type Caller, callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'

const NAMED = {
  type: 'array',
  items: {
    type: 'object',
    required: ['id', 'name'],
    properties: { id: { type: 'string' }, name: { type: 'string' } },
  },
}

/** `GET /audio/models` and `GET /audio/voices`, which Open WebUI requests. */
export function registerVoices(app: FastifyInstance, services: InferenceServices): void {
  const common = { tags: ['Audio'], security: [{ apiKey: [] }] }
  app.get('/audio/models', {
    config: { scope: 'audio' },
    schema: {
      operationId: 'listSpeechModels',
      summary: 'List the models that speak',
      ...common,
      response: {
        200: answer('models', 'The models for `POST /v1/audio/speech`.'),
        ...errorResponses(401, 403),
      },
    },
    handler: async (request) => {
      const models = await speechModels(services, callerOf(request))
      return { models: models.map(({ id }) => ({ id, name: id })) }
    },
  })
  app.get('/audio/voices', {
    config: { scope: 'audio' },
    schema: {
      operationId: 'listVoices',
      summary: 'List the voices of the models that speak',
      ...common,
      response: {
        200: answer('voices', 'The voices of the models that a live worker serves.'),
        ...errorResponses(401, 403),
      },
    },
    handler: async (request) => {
      const models = await speechModels(services, callerOf(request))
      const ids = new Set(models.map(({ id }) => id))
      const queues = services.workersSeen().flatMap((worker) => worker.queues)
      const served = queues.filter(({ kind, modelId }) => kind === 'speech' && ids.has(modelId))
      const names = new Set(served.flatMap(({ voices = [] }) => voices))
      return { voices: [...names].map((name) => ({ id: name, name })) }
    },
  })
}

async function speechModels(
  services: InferenceServices,
  caller: Caller,
): Promise<readonly CatalogueModel[]> {
  return (await visibleModels(services, caller)).filter(({ kind }) => kind === 'speech')
}

function answer(name: string, description: string): object {
  return { type: 'object', description, required: [name], properties: { [name]: NAMED } }
}
