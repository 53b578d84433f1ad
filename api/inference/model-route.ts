import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

import type { Scope } from '#api/v1/scopes.ts'

import type { Http } from './jobs/run-job.ts'
import { JOB_ERRORS } from './response-schemas.ts'

/** An endpoint whose body names the model. */
interface ModelRoute {
  readonly path: `/${string}`
  readonly scope: Scope
  /** The name of its answer in the API description: `ChatCompletion`. */
  readonly noun: string
  readonly summary: string
  readonly tag: string
  readonly isDeprecated?: boolean
  readonly body: object
  /** The body of the older path, where naming the model is needless. */
  readonly engineBody: object
  readonly answer: object
  /** Bounds the counts of a body before the validator reads all of it; throws what it refuses. */
  precheck?(body: unknown): void
  handle(http: Http): Promise<unknown>
}

/** Serves it at its path and below `/engines/{id}`, the older path, which names the model. */
export function registerModelRoute(app: FastifyInstance, route: ModelRoute): void {
  const { path, scope, noun, summary, isDeprecated = false } = route
  const handler = (request: FastifyRequest, reply: FastifyReply): Promise<unknown> =>
    route.handle({ request, reply })
  const preValidation = async ({ body }: FastifyRequest): Promise<void> => route.precheck?.(body)
  const common = {
    security: [{ apiKey: [] }],
    response: { 200: route.answer, ...JOB_ERRORS },
  }
  app.post(path, {
    config: { scope },
    preValidation,
    schema: {
      operationId: `create${noun}`,
      summary,
      tags: [route.tag],
      ...(isDeprecated && { deprecated: true }),
      ...common,
      body: route.body,
    },
    handler,
  })
  app.post(`/engines/:engine_id${path}`, {
    config: { scope },
    preValidation,
    schema: {
      operationId: `createEngine${noun}`,
      summary: `${summary} with the model of the path`,
      tags: ['Engines'],
      deprecated: true,
      ...common,
      params: ENGINE_PARAMS,
      body: route.engineBody,
    },
    handler,
  })
}

/** The path parameter of the older paths. */
export const ENGINE_PARAMS = {
  type: 'object',
  required: ['engine_id'],
  properties: {
    engine_id: { type: 'string', description: 'The id of a model, percent-encoded.' },
  },
}

/** The model that a request names: in its path, else in its body. */
export function modelNameOf(request: FastifyRequest): string {
  const { engine_id: engineId } = request.params as { engine_id?: string }
  return engineId ?? (request.body as { model: string }).model
}
