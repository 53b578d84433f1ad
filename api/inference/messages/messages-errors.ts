import type { FastifyRequest } from 'fastify'

import { type ErrorAnswer, presentError } from '#api/v1/error-dialect.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

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

const THREADS_UNSUPPORTED = 'thread_unsupported_request'

/**
 * 400: conversations are not kept between messages. Clients know the code and then send the whole
 * conversation with every request.
 */
export function threadsUnsupported(): ServiceError {
  return failure.invalidRequest(
    'thread: conversations are not kept here. Send the whole conversation in `messages`.',
    { param: 'thread', code: THREADS_UNSUPPORTED },
  )
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

/** Whether a client speaks Anthropic's dialect: its clients send its version with every request. */
export function isAnthropic(request: FastifyRequest): boolean {
  return request.headers['anthropic-version'] !== undefined
}

/** Renders a failure in the dialect of the client, for paths that are not of one dialect. */
export function presentErrorByVersion(error: ServiceError, request: FastifyRequest): ErrorAnswer {
  return isAnthropic(request) ? presentMessagesError(error, request) : presentError(error)
}

/** The body, which is also the error event of a started stream. */
export function messagesErrorBody(error: ServiceError, requestId: string | null): object {
  const status = statusOf(error.status)
  const type = TYPES[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error')
  const details = error.code === THREADS_UNSUPPORTED && {
    details: { error_code: error.code, unsupported: ['thread'] },
  }
  return {
    type: 'error',
    error: { type, message: error.message, ...details },
    request_id: requestId,
  }
}

function statusOf(status: number): number {
  return status === 503 ? OVERLOADED : status
}
