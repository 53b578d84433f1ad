import { toStorable } from './storable.ts'

/** The kind of a failure: each is one row of `ERROR_KINDS`. */
export type ErrorKind = keyof typeof ERROR_KINDS

/**
 * The whole error hierarchy as a table: HTTP status, the `type` slug of the OpenAI dialect, and
 * whether the queue may run the job again when nothing has been delivered yet.
 */
export const ERROR_KINDS = {
  invalidRequest: { status: 400, openaiType: 'invalid_request_error', isRetryable: false },
  unauthenticated: { status: 401, openaiType: 'invalid_request_error', isRetryable: false },
  accessDenied: { status: 403, openaiType: 'invalid_request_error', isRetryable: false },
  notFound: { status: 404, openaiType: 'invalid_request_error', isRetryable: false },
  methodNotAllowed: { status: 405, openaiType: 'invalid_request_error', isRetryable: false },
  conflict: { status: 409, openaiType: 'invalid_request_error', isRetryable: false },
  tooLarge: { status: 413, openaiType: 'invalid_request_error', isRetryable: false },
  unsupportedMediaType: { status: 415, openaiType: 'invalid_request_error', isRetryable: false },
  rangeNotSatisfiable: { status: 416, openaiType: 'invalid_request_error', isRetryable: false },
  unprocessable: { status: 422, openaiType: 'invalid_request_error', isRetryable: false },
  rateLimited: { status: 429, openaiType: 'rate_limit_error', isRetryable: false },
  internal: { status: 500, openaiType: 'server_error', isRetryable: true },
  upstream: { status: 502, openaiType: 'server_error', isRetryable: false },
  overloaded: { status: 503, openaiType: 'overloaded_error', isRetryable: false },
  deadline: { status: 504, openaiType: 'timeout_error', isRetryable: false },
} as const satisfies Record<string, { status: number; openaiType: string; isRetryable: boolean }>

/** Optional details of a failure; `cause` never leaves the process. */
export interface FailureDetails {
  /** Stable slug such as `model_not_found`. */
  readonly code?: string
  /** The request field at fault, as the client wrote it. */
  readonly param?: string
  /** Overrides the kind's `type` slug in the OpenAI dialect. */
  readonly openaiType?: string
  /** A failure by deadline suggests one second unless another wait is known. */
  readonly retryAfterSeconds?: number
  /** False means that a retry cannot help. */
  readonly shouldRetry?: boolean
  readonly cause?: unknown
}

// Messages and fields may quote the request, which may have megabytes, and are stored with jobs.
const MESSAGE_CHARACTERS_MAX = 4000
const PARAM_CHARACTERS_MAX = 500

/** An expected failure whose message is safe to show and to store; a long one is shortened. */
export class ServiceError extends Error {
  readonly kind: ErrorKind
  readonly code: string | undefined
  readonly param: string | undefined
  readonly openaiType: string | undefined
  readonly retryAfterSeconds: number | undefined
  readonly shouldRetry: boolean | undefined

  constructor(kind: ErrorKind, message: string, details: FailureDetails = {}) {
    super(shortened(message, MESSAGE_CHARACTERS_MAX), { cause: details.cause })
    this.name = 'ServiceError'
    this.kind = kind
    this.code = details.code
    this.param = details.param && shortened(details.param, PARAM_CHARACTERS_MAX)
    this.openaiType = details.openaiType
    this.retryAfterSeconds = details.retryAfterSeconds ?? (kind === 'deadline' ? 1 : undefined)
    this.shouldRetry = details.shouldRetry
  }

  get status(): number {
    return ERROR_KINDS[this.kind].status
  }
}

function shortened(text: string, charactersMax: number): string {
  const isLong = text.length > charactersMax
  return toStorable(isLong ? `${text.slice(0, charactersMax)}…` : text)
}

/** The client disconnected; never rendered, never retried. */
export class CancelledError extends Error {
  constructor(reason = 'cancelled by the caller') {
    super(reason)
    this.name = 'CancelledError'
  }
}

type FailureFactory = (message: string, details?: FailureDetails) => ServiceError

/** One factory per kind: `throw failure.notFound('…', { param: 'model' })`. */
export const failure = Object.fromEntries(
  Object.keys(ERROR_KINDS).map((kind) => [
    kind,
    (message: string, details?: FailureDetails) =>
      new ServiceError(kind as ErrorKind, message, details),
  ]),
) as Record<ErrorKind, FailureFactory>

/** A failure as Redis transports it. */
export interface WireError {
  readonly kind: ErrorKind
  readonly message: string
  readonly code?: string
  readonly param?: string
  readonly openaiType?: string
  readonly retryAfterSeconds?: number
}

/**
 * Converts any thrown value into its wire form; messages of unknown errors never leave the process.
 */
export function toWireError(thrown: unknown): WireError {
  if (!(thrown instanceof ServiceError)) {
    return { kind: 'internal', message: INTERNAL_MESSAGE }
  }
  const { kind, message, code, param, openaiType, retryAfterSeconds } = thrown
  return {
    kind,
    message,
    ...(code !== undefined && { code }),
    ...(param !== undefined && { param }),
    ...(openaiType !== undefined && { openaiType }),
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
  }
}

/** The inverse of `toWireError`. */
export function fromWireError(wire: WireError): ServiceError {
  return new ServiceError(wire.kind, wire.message, wire)
}

/** The message that a client reads for an internal error. */
export const INTERNAL_MESSAGE =
  'The server had an error while processing your request. Sorry about that!'
