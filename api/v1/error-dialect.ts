import { ERROR_KINDS, type ServiceError } from '#shared/errors.ts'

/** The body of every error; all four keys are present, `code` is a string or null. */
interface ErrorBody {
  readonly error: {
    readonly message: string
    readonly type: string
    readonly param: string | null
    readonly code: string | null
  }
}

/** An error in the format of `/v1`. */
export interface ErrorAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: object
}

// Clients ignore Retry-After above a minute and fall back to their own backoff.
const RETRY_AFTER_SECONDS_MAX = 60

/**
 * Adds `detail`, the only part of an error that the Voyage and Jina clients show. It therefore
 * names the field.
 */
export function presentDetailedError(error: ServiceError): ErrorAnswer {
  const { message, param } = error
  const answer = presentError(error)
  const isNamed = param === undefined || message.includes(param)
  return { ...answer, body: { ...answer.body, detail: isNamed ? message : `${param}: ${message}` } }
}

/** Renders a failure in the dialect of `/v1`. */
export function presentError(error: ServiceError): ErrorAnswer {
  const kind = ERROR_KINDS[error.kind]
  const retry = error.retryAfterSeconds
  const retryMax = error.shouldRetry === false ? Infinity : RETRY_AFTER_SECONDS_MAX
  return {
    status: kind.status,
    headers: {
      ...(error.kind === 'unauthenticated' && {
        'www-authenticate': 'Bearer realm="Millrace API"',
      }),
      ...(retry !== undefined && {
        'retry-after': String(Math.min(retryMax, Math.max(1, Math.ceil(retry)))),
      }),
      ...(error.shouldRetry !== undefined && { 'x-should-retry': String(error.shouldRetry) }),
    },
    body: presentErrorBody(error),
  }
}

/** The body alone, which is also the error event of a started stream. */
export function presentErrorBody(error: ServiceError): ErrorBody {
  return {
    error: {
      message: error.message,
      type: error.openaiType ?? ERROR_KINDS[error.kind].openaiType,
      param: error.param ?? null,
      code: error.code ?? null,
    },
  }
}
