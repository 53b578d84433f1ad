import type { FastifyInstance, FastifyRequest } from 'fastify'

import { listResponse } from '#api/v1/list-response.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { type CatalogueModel, servingIdOf } from '#shared/catalogue.ts'

import { ENGINE_PARAMS, getModel, visibleModels } from './model-route.ts'
import { errorResponses } from './response-schemas.ts'
import type { InferenceServices } from './services.ts'

const ENGINE_RESPONSE = {
  type: 'object',
  description: 'An engine.',
  required: ['id', 'object', 'owner', 'ready'],
  properties: {
    id: { type: 'string' },
    object: { const: 'engine' },
    owner: { type: 'string' },
    ready: { type: 'boolean', description: 'Whether a live worker has the model loaded.' },
    created: { type: ['integer', 'null'] },
    permissions: { type: 'null' },
  },
}

/** `GET /engines` and `GET /engines/{engine_id}`: the models and whether they are ready. */
export function registerEngines(app: FastifyInstance, services: InferenceServices): void {
  app.get('/engines', {
    config: { scope: 'any' },
    schema: {
      operationId: 'listEngines',
      summary: 'List the engines',
      tags: ['Engines'],
      deprecated: true,
      security: [{ apiKey: [] }],
      response: { 200: listResponse(ENGINE_RESPONSE), ...errorResponses(401, 403) },
    },
    handler: async (request) => {
      const caller = callerOf(request)
      const models = await visibleModels(services, caller)
      const ready = await readyModels(services)
      return { object: 'list', data: models.map((model) => presentEngine(model, ready)) }
    },
  })
  const retrieve = async (request: FastifyRequest, id: string): Promise<object> =>
    presentEngine(await getModel(services, callerOf(request), id), await readyModels(services))
  app.get<{ Params: { engine_id: string } }>('/engines/:engine_id', {
    config: { scope: 'any' },
    schema: {
      operationId: 'retrieveEngine',
      summary: 'Show an engine',
      tags: ['Engines'],
      deprecated: true,
      security: [{ apiKey: [] }],
      params: ENGINE_PARAMS,
      response: { 200: ENGINE_RESPONSE, ...errorResponses(401, 403, 404) },
    },
    handler: (request) => retrieve(request, request.params.engine_id),
  })
  // The same for ids whose slashes are not percent-encoded.
  app.get<{ Params: { '*': string } }>('/engines/*', {
    config: { scope: 'any' },
    schema: { hide: true },
    handler: (request) => retrieve(request, request.params['*']),
  })
}

async function readyModels(services: InferenceServices): Promise<ReadonlySet<string>> {
  const workers = await services.workers()
  return new Set(
    workers.flatMap(({ queues }) =>
      queues
        .filter(({ kind, isReady }) => isReady && kind !== 'training')
        .map(({ modelId }) => modelId),
    ),
  )
}

function presentEngine(model: CatalogueModel, ready: ReadonlySet<string>): object {
  return {
    id: model.id,
    object: 'engine',
    owner: model.ownedBy,
    ready: ready.has(servingIdOf(model)),
    created: null,
    permissions: null,
  }
}
