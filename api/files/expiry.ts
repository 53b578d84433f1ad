import { missingParameter } from '#api/http/form.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'

const ANCHOR = 'expires_after[anchor]'
const SECONDS = 'expires_after[seconds]'
const SECONDS_MIN = 3600 // an hour
const SECONDS_MAX = 2_592_000 // thirty days

/** The form fields that set the expiry of a file. */
export const EXPIRY_FIELDS = [ANCHOR, SECONDS] as const

/** The same fields of a JSON body. */
export const EXPIRES_AFTER = Type.Object(
  {
    anchor: Type.Literal('created_at'),
    seconds: Type.Integer({ minimum: SECONDS_MIN, maximum: SECONDS_MAX }),
  },
  { additionalProperties: false },
)

/**
 * The retention of a file according to the fields of its upload; undefined when they are absent.
 */
export function retentionSeconds(fields: Readonly<Record<string, unknown>>): {
  retentionSeconds?: number
} {
  const anchor = fields[ANCHOR]
  const text = fields[SECONDS]
  if (anchor === undefined && text === undefined) return {}
  if (anchor === undefined) throw missingParameter(ANCHOR)
  if (text === undefined) throw missingParameter(SECONDS)
  if (anchor !== 'created_at') {
    const message = `Invalid value: '${String(anchor).slice(0, 64)}'. Supported values are: 'created_at'.`
    throw failure.invalidRequest(message, { param: ANCHOR, code: 'invalid_value' })
  }
  if (!/^\d{1,15}$/.test(String(text))) {
    throw failure.invalidRequest(
      `Invalid type for '${SECONDS}': expected an integer, but got '${String(text).slice(0, 64)}' instead.`,
      { param: SECONDS, code: 'invalid_type' },
    )
  }
  const seconds = Number(text)
  if (seconds < SECONDS_MIN) throw outOfRange('below minimum', `>= ${SECONDS_MIN}`, seconds)
  if (seconds > SECONDS_MAX) throw outOfRange('above maximum', `<= ${SECONDS_MAX}`, seconds)
  return { retentionSeconds: seconds }
}

function outOfRange(where: string, expected: string, seconds: number): Error {
  return failure.invalidRequest(
    `Invalid '${SECONDS}': integer ${where} value. Expected a value ${expected}, but got ${seconds} instead.`,
    { param: SECONDS, code: `integer_${where.replace(' ', '_').replace('imum', '')}_value` },
  )
}
