import { setTimeout as pause } from 'node:timers/promises'

import { authFailure } from '#api/auth/errors.ts'
import type { Clock } from '#shared/clock.ts'
import type { HookTarget } from '#shared/config/auth-hooks.ts'
import { failure } from '#shared/errors.ts'
import { createGuardedFetch, OutgoingError, type OutgoingReply } from '#shared/net/guarded-fetch.ts'
import { signWebhook } from '#shared/net/standard-webhooks.ts'

type HttpTarget = Extract<HookTarget, { kind: 'http' }>

/** Posts a payload to a receiver; returns its JSON, undefined for none. */
export type HttpHook = (
  target: HttpTarget,
  message: { readonly id: string; readonly text: string },
) => Promise<unknown>

interface Limits {
  readonly clock: Clock
  /** The time limit of all attempts together. */
  readonly timeoutMs: number
  readonly retryPauseMs: number
  readonly answerBytesMax: number
}

const ATTEMPTS_MAX = 3
const TOO_MANY_REQUESTS = 429
const UNAVAILABLE = 503

/**
 * Calls hooks over HTTP, signed as in Standard Webhooks. A receiver that cannot be reached is tried
 * again after a pause; one that answers 429 or 503 with Retry-After is tried again at once.
 * Redirects are not followed, because they would send the payload to a host that the operator has
 * not named.
 */
export function createHttpHook(limits: Limits): HttpHook {
  const { clock, timeoutMs, retryPauseMs } = limits
  const fetch = createGuardedFetch({
    timeoutMs,
    bodyBytesMax: limits.answerBytesMax,
    // The operator sets the URL, and receivers are usually in a private network.
    allowsPrivateAddresses: true,
  })
  return async (target, message) => {
    const signal = AbortSignal.timeout(timeoutMs)
    for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt += 1) {
      const headers = signWebhook(target.secrets, { ...message, nowMs: clock.now() })
      const request = {
        url: target.url,
        method: 'POST',
        headers,
        json: message.text,
        signal,
      } as const
      const reply = await fetch(request).catch((error: unknown) => translate(error, limits))
      if (reply === undefined) {
        if (attempt === ATTEMPTS_MAX) throw unreachable()
        await pause(retryPauseMs, undefined, { signal }).catch(() => {
          throw timedOut(timeoutMs)
        })
      } else if (!isAskedToRetry(reply)) return readReply(reply)
    }
    throw failure.internal(BUSY, { code: 'unexpected_failure' })
  }
}

/** Undefined for a failure that another attempt may avoid. */
function translate(error: unknown, limits: Limits): undefined {
  if (!(error instanceof OutgoingError)) throw error
  if (error.reason === 'timeout') throw timedOut(limits.timeoutMs)
  if (error.reason === 'size') {
    const message = `Payload size exceeded size limit of ${limits.answerBytesMax} bytes`
    throw authFailure('hook_payload_over_size_limit', { message })
  }
  return undefined
}

function isAskedToRetry({ status, retryAfter }: OutgoingReply): boolean {
  return (status === TOO_MANY_REQUESTS || status === UNAVAILABLE) && retryAfter !== ''
}

const BUSY = 'Service currently unavailable due to hook'

const FAILED_STATUSES: Readonly<Record<number, string>> = {
  400: 'Invalid payload sent to hook',
  401: 'Hook requires authorization token',
  [TOO_MANY_REQUESTS]: BUSY,
  [UNAVAILABLE]: BUSY,
}

function readReply({ status, contentType, text }: OutgoingReply): unknown {
  if (![200, 202, 204].includes(status)) {
    const message =
      FAILED_STATUSES[status] ?? `Unexpected status code returned from hook: ${status}`
    throw failure.internal(message, { code: 'unexpected_failure' })
  }
  if (status === 204) return undefined
  if (contentType === '') {
    const message = 'Invalid Content-Type: Missing Content-Type header'
    throw authFailure('hook_payload_invalid_content_type', { message })
  }
  if (!/^application\/json\s*(;|$)/i.test(contentType)) {
    const message = `Invalid JSON response. Received content-type: ${contentType.slice(0, 100)}`
    throw authFailure('hook_payload_invalid_content_type', { message })
  }
  try {
    return JSON.parse(text)
  } catch {
    // The text may repeat the payload of the hook.
    throw failure.internal('Error unmarshaling JSON output.', { code: 'unexpected_failure' })
  }
}

function timedOut(timeoutMs: number): Error {
  const seconds = (timeoutMs / 1000).toFixed(6)
  const message = `Failed to reach hook within maximum time of ${seconds} seconds`
  return authFailure('hook_timeout', { message })
}

function unreachable(): Error {
  return authFailure('hook_timeout_after_retry')
}
