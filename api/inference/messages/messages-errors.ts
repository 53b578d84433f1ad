import type { FastifyRequest } from 'fastify'

import { type ErrorAnswer, presentError } from '#api/v1/error-dialect.ts'
import type { ServiceError } from '#shared/errors.ts'

// The status of an overloaded service in this dialect.
const OVERLOADED = 529

const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  504: 'timeout_error',
  [OVERLOADED]: 'overloaded_error',
}

/** Renders a failure in the dialect of Anthropic's Messages. */
export function presentMessagesError(error: ServiceError, request: FastifyRequest): ErrorAnswer {
  const { status, headers } = presentError(error)
  return {
    status: statusOf(status),
    headers: { ...headers, 'request-id': request.id },
    body: messagesErrorBody(error, request.id),
  }
}

/** The body alone, which is also the error event of a started stream. */
export function messagesErrorBody(error: ServiceError, requestId: string | null): object {
  const status = statusOf(error.status)
  const type = TYPES[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error')
  return { type: 'error', error: { type, message: error.message }, request_id: requestId }
}

function statusOf(status: number): number {
  return status === 503 ? OVERLOADED : status
}
