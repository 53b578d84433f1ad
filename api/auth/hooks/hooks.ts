import { randomUUID } from 'node:crypto'

import { HookError } from '#api/auth/errors.ts'
import type { Clock } from '#shared/clock.ts'
import type { HookName, HooksConfig, HookTarget } from '#shared/config/auth-hooks.ts'
import type { Db } from '#shared/db/client.ts'
import { failure, ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import { createHttpHook, type HttpHook } from './http-hook.ts'
import { callPostgresHook } from './postgres-hook.ts'

/** The unchecked answer of a hook. */
export type HookAnswer = Readonly<Record<string, unknown>>

/** Calls the receivers of the settings. */
export interface AuthHooks {
  isEnabled(name: HookName): boolean
  /** Throws `HookError` for a refusal, and `ServiceError` if the hook cannot be called. */
  invoke(
    name: HookName,
    payload: Readonly<Record<string, unknown>>,
    /** The same for a call that is repeated. */
    id?: string,
  ): Promise<HookAnswer>
}

/** The limit of an answer in bytes. */
const ANSWER_BYTES_MAX = 200 * 1024
const HTTP_TIMEOUT_MS = 5000
const RETRY_PAUSE_MS = 2000
const FUNCTION_TIMEOUT_MS = 2000

/** Creates the configured hooks, without network calls. */
export function createHooks(options: {
  readonly config: HooksConfig
  readonly db: Db
  readonly clock: Clock
  readonly log: Logger
  /** Replaces the time limits, in milliseconds. */
  readonly limits?: {
    readonly httpMs?: number
    readonly retryPauseMs?: number
    readonly functionMs?: number
  }
}): AuthHooks {
  const { config, db, clock, log, limits = {} } = options
  warnOfUnsigned(config, log)
  const http = createHttpHook({
    clock,
    answerBytesMax: ANSWER_BYTES_MAX,
    timeoutMs: limits.httpMs ?? HTTP_TIMEOUT_MS,
    retryPauseMs: limits.retryPauseMs ?? RETRY_PAUSE_MS,
  })
  const functions = {
    db,
    answerBytesMax: ANSWER_BYTES_MAX,
    timeoutMs: limits.functionMs ?? FUNCTION_TIMEOUT_MS,
  }
  return {
    isEnabled: (name) => config[name] !== undefined,
    async invoke(name, payload, id = randomUUID()) {
      const target = config[name]
      if (target === undefined) throw new Error(`the hook ${name} is not enabled`)
      const since = clock.monotonic()
      const described = { operation: 'auth.hook', hook: name, receiver: receiverOf(target) }
      const runMs = (): number => Math.round(clock.monotonic() - since)
      try {
        const message = { id, text: JSON.stringify(payload) }
        const answer = readAnswer(await call(target, message, { http, functions }))
        log.debug({ ...described, runMs: runMs() }, 'a hook answered')
        return answer
      } catch (error) {
        // Without the message: a hook's message may repeat addresses.
        const { name: type, code } = error as { readonly name?: string; readonly code?: string }
        log.warn({ ...described, runMs: runMs(), type, code }, 'a hook failed or refused')
        if (error instanceof ServiceError) throw error
        throw failure.internal('Error running the hook', {
          code: 'unexpected_failure',
          cause: error,
        })
      }
    },
  }
}

function warnOfUnsigned(config: HooksConfig, log: Logger): void {
  for (const [hook, target] of Object.entries(config)) {
    if (target.kind !== 'http' || target.secrets.length > 0) continue
    const message = 'a hook over HTTP has no secret: its receiver cannot verify requests'
    log.warn({ operation: 'auth.hook', hook }, message)
  }
}

function call(
  target: HookTarget,
  message: { readonly id: string; readonly text: string },
  dispatchers: {
    readonly http: HttpHook
    readonly functions: Parameters<typeof callPostgresHook>[0]
  },
): Promise<unknown> {
  return target.kind === 'http'
    ? dispatchers.http(target, message)
    : callPostgresHook(dispatchers.functions, target, message.text)
}

// Without path, query and user of the URL, which may contain secrets.
function receiverOf(target: HookTarget): string {
  return target.kind === 'http' ? new URL(target.url).host : `${target.schema}.${target.name}`
}

function readAnswer(answer: unknown): HookAnswer {
  if (answer === undefined || answer === null) return {}
  if (typeof answer !== 'object' || Array.isArray(answer)) {
    throw failure.internal('Error unmarshaling JSON output.', { code: 'unexpected_failure' })
  }
  const { error } = answer as HookAnswer
  if (typeof error === 'object' && error !== null) refuse(error)
  return answer as HookAnswer
}

const MESSAGE_CHARACTERS_MAX = 1000

// An error without a message is a refusal too.
function refuse(error: { readonly http_code?: unknown; readonly message?: unknown }): void {
  const { http_code: status, message } = error
  const hasMessage = typeof message === 'string' && message !== ''
  if (!hasMessage && status === undefined) return
  const text = hasMessage
    ? message.slice(0, MESSAGE_CHARACTERS_MAX)
    : 'The hook refused the request'
  const isStatus =
    typeof status === 'number' && Number.isInteger(status) && status >= 400 && status < 600
  throw new HookError(isStatus ? status : 500, text)
}
