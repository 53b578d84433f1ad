import { authFailure } from '#api/auth/errors.ts'
import type { HookTarget } from '#shared/config/auth-hooks.ts'
import type { Db } from '#shared/db/client.ts'
import { callFunction, limitTransaction } from '#shared/db/expressions.ts'
import { failure } from '#shared/errors.ts'

type FunctionTarget = Extract<HookTarget, { kind: 'pgFunction' }>

/**
 * Calls a database function with the payload as its only argument, in its own transaction: a
 * refusal undoes its writes. The names are checked where the setting is read.
 */
export async function callPostgresHook(
  limits: { readonly db: Db; readonly timeoutMs: number; readonly answerBytesMax: number },
  { schema, name }: FunctionTarget,
  payload: string,
): Promise<unknown> {
  return limits.db.transaction(async (tx) => {
    await limitTransaction(tx, 'statement_timeout', limits.timeoutMs)
    const answer = await callFunction(tx, [schema, name], payload)
    return readValue(answer, limits.answerBytesMax)
  })
}

/** The driver parses JSON columns but not text; `void` is an empty text. */
function readValue(value: unknown, bytesMax: number): unknown {
  if (value === null || value === undefined || value === '') return undefined
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  if (Buffer.byteLength(text) > bytesMax) {
    const message = `Payload size exceeded size limit of ${bytesMax} bytes`
    throw authFailure('hook_payload_over_size_limit', { message })
  }
  try {
    return typeof value === 'string' ? JSON.parse(value) : value
  } catch {
    throw failure.internal('Error unmarshaling JSON output.', { code: 'unexpected_failure' })
  }
}
