import { isBug, normalizeError } from '#api/http/normalize-error.ts'
import type { ExecuteBatchable } from '#api/inference/batchable.ts'
import { presentErrorBody } from '#api/v1/error-dialect.ts'
import { type ErrorKind, failure, INTERNAL_MESSAGE, type ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import { lineIdOf } from './batch.ts'
import type { ClaimedLine, LineAnswer } from './line-store.ts'

/** The next step for a line after a run. */
type LineOutcome =
  | { readonly type: 'answered'; readonly answer: LineAnswer }
  | { readonly type: 'retry'; readonly delaySeconds: number; readonly isCounted: boolean }

const ATTEMPTS_MAX = 5
const BUSY_DELAY_SECONDS = 5
const FAILED_DELAY_SECONDS = 2

/** A temporary failure: retried until the batch expires. */
const BUSY: readonly ErrorKind[] = ['overloaded', 'rateLimited']
/** Retried a limited number of times. */
const RETRIABLE: readonly ErrorKind[] = ['internal', 'upstream', 'deadline']

/** Runs a line and separates final answers from failures that are worth a retry. */
export async function runLine(
  line: ClaimedLine,
  options: {
    readonly execute: ExecuteBatchable
    readonly log: Logger
    readonly signal: AbortSignal
  },
): Promise<LineOutcome> {
  const { execute, log, signal } = options
  // Names the line in its output file, and its usage and activity.
  const id = lineIdOf(line.batchId, line.line)
  // This many processes may die while they run the line, because the line may not be the cause.
  if (line.attempts > ATTEMPTS_MAX) return failed(id, failure.internal(INTERNAL_MESSAGE))
  try {
    const { body, ...use } = await execute({
      endpoint: line.endpoint,
      body: JSON.parse(line.body),
      organizationId: line.organizationId,
      modelIds: line.modelIds,
      requestId: id,
      apiKeyId: line.apiKeyId ?? undefined,
      userId: line.userId ?? undefined,
      signal,
    })
    return answered({ requestId: id, statusCode: 200, ...use }, body)
  } catch (thrown) {
    if (signal.aborted) return { type: 'retry', delaySeconds: 0, isCounted: false }
    const error = normalizeError(thrown)
    if (isBug(error)) log.error({ operation: 'batch.line', err: error.cause }, 'request failed')
    if (BUSY.includes(error.kind) && error.shouldRetry !== false) {
      return { type: 'retry', delaySeconds: BUSY_DELAY_SECONDS, isCounted: false }
    }
    if (RETRIABLE.includes(error.kind) && line.attempts < ATTEMPTS_MAX) {
      return { type: 'retry', delaySeconds: FAILED_DELAY_SECONDS, isCounted: true }
    }
    return failed(id, error)
  }
}

function failed(id: string, error: ServiceError): LineOutcome {
  return answered({ requestId: id, statusCode: error.status }, presentErrorBody(error))
}

function answered(head: Omit<LineAnswer, 'body'>, answer: object | string): LineOutcome {
  const body = typeof answer === 'string' ? answer : JSON.stringify(answer)
  return { type: 'answered', answer: { ...head, body } }
}
