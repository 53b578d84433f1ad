import { CancelledError, failure, INTERNAL_MESSAGE, ServiceError } from '#shared/errors.ts'

/** The fields of a foreign error that decide its kind. */
interface ForeignError {
  readonly code?: unknown
  readonly statusCode?: unknown
  readonly message?: unknown
  readonly cause?: unknown
}

type Rule = (error: ForeignError) => ServiceError

// Errors of Fastify, its plugins, Postgres and Redis by their stable codes.
const RULES: Readonly<Record<string, Rule>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: () => failure.tooLarge('The request body is too large.'),
  FST_REQ_FILE_TOO_LARGE: () => failure.tooLarge('An uploaded file is too large.'),
  FST_FILES_LIMIT: () => failure.tooLarge('The request has too many files.'),
  FST_PARTS_LIMIT: () => failure.tooLarge('The request has too many parts.'),
  FST_FIELDS_LIMIT: () => failure.tooLarge('The request has too many fields.'),
  FST_ERR_CTP_INVALID_MEDIA_TYPE: () =>
    failure.unsupportedMediaType(
      'Unsupported Content-Type: send JSON as application/json, and files as multipart/form-data.',
    ),
  FST_INVALID_MULTIPART_CONTENT_TYPE: () =>
    failure.unsupportedMediaType('The request must be multipart/form-data.'),
  FST_ERR_CTP_EMPTY_JSON_BODY: (error) => malformedJson(error),
  FST_ERR_CTP_INVALID_JSON_BODY: (error) => malformedJson(error),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: () =>
    failure.invalidRequest('The body is not as long as Content-Length says.'),
  FST_ERR_BAD_URL: () => failure.invalidRequest('The URL is not valid.'),
  ECONNREFUSED: (error) => unavailable(error),
  ECONNRESET: (error) => unavailable(error),
  ETIMEDOUT: (error) => unavailable(error),
  EPIPE: (error) => unavailable(error),
  // Postgres cannot store NUL characters in text.
  '22021': (error) => failure.invalidRequest('A text holds a zero byte.', { cause: error }),
  '22P05': (error) => failure.invalidRequest('A text holds a zero byte.', { cause: error }),
  EHOSTUNREACH: (error) => unavailable(error),
  ENETUNREACH: (error) => unavailable(error),
  EAI_AGAIN: (error) => unavailable(error),
  // Postgres: deadlock, lock not available, out of resources, read-only server.
  '40001': (error) => unavailable(error),
  '40P01': (error) => unavailable(error),
  '55P03': (error) => unavailable(error),
  '25006': (error) => unavailable(error),
  '53100': (error) => unavailable(error),
  '53200': (error) => unavailable(error),
  // Postgres: statement cancelled, for instance by its time limit.
  '57014': (error) => failure.deadline('The database took too long. Try again.', { cause: error }),
  // Postgres: refused role or password, missing database.
  '28000': (error) => unavailable(error),
  '28P01': (error) => unavailable(error),
  '3D000': (error) => unavailable(error),
  // Postgres: too many connections, shutting down, starting up, connection failures.
  '53300': (error) => unavailable(error),
  '57P01': (error) => unavailable(error),
  '57P02': (error) => unavailable(error),
  '57P03': (error) => unavailable(error),
  '57P05': (error) => unavailable(error),
  '08000': (error) => unavailable(error),
  '08001': (error) => unavailable(error),
  '08003': (error) => unavailable(error),
  '08006': (error) => unavailable(error),
  // Poolers report their own failures, such as a missing server, as protocol violations.
  '08P01': (error) => unavailable(error),
}

// Drivers report a lost connection only in the message, and so does Redis when it cannot serve.
const CONNECTION_LOST = new RegExp(
  [
    'Connection terminated|Client has encountered a connection error|Connection is closed',
    'timeout exceeded when trying to connect|Client was closed and is not queryable',
    "Query read timeout|Stream isn't writeable|Command timed out|Cannot use a pool after",
    'Reached the max retries per request|connect ETIMEDOUT',
    "Too many Cluster redirections|Cluster isn't ready|Failed to refresh slots cache",
    '^(?:LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|OOM|BUSY|NOREPLICAS|UNBLOCKED) ',
    '^(?:MISCONF|NOAUTH|NOPERM|WRONGPASS) ',
  ].join('|'),
)

/**
 * Converts anything that was thrown while serving a request to a `ServiceError`: expected failures
 * pass, known errors of frameworks and drivers are translated, and everything else becomes
 * `internal` with the thrown value as its cause, which the caller logs and never shows.
 */
export function normalizeError(thrown: unknown): ServiceError {
  if (thrown instanceof ServiceError) return thrown
  if (thrown instanceof CancelledError) {
    return failure.invalidRequest('The client closed the request.', { cause: thrown })
  }
  if (typeof thrown !== 'object' || thrown === null) return internal(thrown)
  return translate(thrown as ForeignError) ?? internal(thrown)
}

/** Whether the error is a bug, which must be logged with its stack. */
export function isBug(error: ServiceError): boolean {
  return error.kind === 'internal' && error.cause !== undefined
}

function translate(error: ForeignError): ServiceError | undefined {
  const rule = typeof error.code === 'string' ? RULES[error.code] : undefined
  if (rule !== undefined) return rule(error)
  if (error.statusCode === 400 && error instanceof SyntaxError) return malformedJson(error)
  if (typeof error.message === 'string' && CONNECTION_LOST.test(error.message)) {
    return unavailable(error)
  }
  // Drivers and query builders wrap the original error.
  if (typeof error.cause === 'object' && error.cause !== null) {
    const inner = error.cause instanceof ServiceError ? error.cause : translate(error.cause)
    if (inner !== undefined) return inner
  }
  return clientError(error)
}

function clientError(error: ForeignError): ServiceError | undefined {
  const { statusCode, message } = error
  if (typeof statusCode !== 'number' || statusCode < 400 || statusCode > 499) return undefined
  const text = typeof message === 'string' ? message : 'The request is not valid.'
  if (statusCode === 404) return failure.notFound(text, { cause: error })
  if (statusCode === 413) return failure.tooLarge(text, { cause: error })
  if (statusCode === 415) return failure.unsupportedMediaType(text, { cause: error })
  return failure.invalidRequest(text, { cause: error })
}

function malformedJson(error: ForeignError): ServiceError {
  return failure.invalidRequest(
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The API expects a JSON payload, but what was sent was not valid JSON.) A field named __proto__ is refused too.",
    { cause: error },
  )
}

function unavailable(error: ForeignError): ServiceError {
  return failure.overloaded('A service that this request needs is not available. Try again soon.', {
    code: 'service_unavailable',
    retryAfterSeconds: 1,
    cause: error,
  })
}

function internal(thrown: unknown): ServiceError {
  return failure.internal(INTERNAL_MESSAGE, { cause: thrown ?? new Error('nothing was thrown') })
}
