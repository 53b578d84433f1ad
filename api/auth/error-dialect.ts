import type { ErrorKind, ServiceError } from '#shared/errors.ts'

import { OAuthError, WeakPasswordError } from './errors.ts'

/** An error as a client of the user server reads it. */
interface AuthErrorAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Readonly<Record<string, unknown>>
}

/** The first API version whose errors carry a textual `code`. */
const TEXTUAL_CODES_SINCE = '2024-01-01'

/**
 * Renders a failure. Clients that send `X-Supabase-Api-Version` of 2024 or later read `{code,
 * message}` and need the version echoed; all others read `{code: status, error_code, msg}`.
 */
export function presentAuthError(
  error: ServiceError,
  request: { readonly apiVersion: string | undefined; readonly requestId: string },
): AuthErrorAnswer {
  const code = error.code ?? CODE_BY_KIND[error.kind]
  const { status } = error
  const retry = error.retryAfterSeconds
  const headers = {
    'x-sb-error-code': code,
    ...(retry !== undefined && { 'retry-after': String(Math.max(1, Math.ceil(retry))) }),
  }
  const extras = {
    ...(error instanceof WeakPasswordError && { weak_password: { reasons: error.reasons } }),
    ...(status >= 500 && { error_id: request.requestId }),
  }
  if (error instanceof OAuthError) {
    const body = { error: error.error, error_description: error.message }
    return {
      status,
      headers,
      body: { ...body, code: status, error_code: code, msg: error.message },
    }
  }
  const message = error.kind === 'internal' && error.code === undefined ? UNEXPECTED : error.message
  if (hasTextualCodes(request.apiVersion)) {
    return {
      status,
      headers: { ...headers, 'x-supabase-api-version': TEXTUAL_CODES_SINCE },
      body: { code, message, ...extras },
    }
  }
  return { status, headers, body: { code: status, error_code: code, msg: message, ...extras } }
}

const UNEXPECTED = 'Unexpected failure, please check server logs for more information'

const CODE_BY_KIND: Readonly<Record<ErrorKind, string>> = {
  invalidRequest: 'validation_failed',
  unauthenticated: 'no_authorization',
  accessDenied: 'not_admin',
  notFound: 'not_found',
  methodNotAllowed: 'method_not_allowed',
  conflict: 'conflict',
  tooLarge: 'request_too_large',
  unsupportedMediaType: 'bad_json',
  rangeNotSatisfiable: 'validation_failed',
  unprocessable: 'validation_failed',
  rateLimited: 'over_request_rate_limit',
  internal: 'unexpected_failure',
  upstream: 'unexpected_failure',
  overloaded: 'service_unavailable',
  deadline: 'request_timeout',
}

// Dates compare as text; anything that is not a date means the oldest version.
function hasTextualCodes(apiVersion: string | undefined): boolean {
  if (apiVersion === undefined || !/^\d{4}-\d{2}-\d{2}$/.test(apiVersion)) return false
  return !Number.isNaN(Date.parse(apiVersion)) && apiVersion >= TEXTUAL_CODES_SINCE
}
