import type { FastifyRequest } from 'fastify'

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
