import type { FastifyRequest } from 'fastify'

import { errorResponses } from '#api/inference/response-schemas.ts'
import { type ErrorAnswer, presentError } from '#api/v1/error-dialect.ts'
import type { ServiceError } from '#shared/errors.ts'

const ERROR = {
  type: 'object',
  required: ['id', 'message'],
  properties: {
    id: { type: 'string', description: 'The id of the request.' },
    message: { type: 'string' },
  },
}

/** The errors of Cohere's dialect, for the description of its routes. */
export const COHERE_ERRORS = Object.fromEntries(
  [400, 401, 403, 404, 413, 415, 429, 500, 503, 504].map((status) => {
    const [known] = Object.values(errorResponses(status))
    const { description } = known as { description: string }
    return [status, { description, ...ERROR }]
  }),
)

/** Writes an error as Cohere does. */
export function presentCohereError(error: ServiceError, request: FastifyRequest): ErrorAnswer {
  return { ...presentError(error), body: { id: request.id, message: error.message } }
}
