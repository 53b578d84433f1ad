import type { Static } from 'typebox'

import type { KeyLimits } from '#shared/db/api-keys.ts'
import { Type } from '#shared/schema-types.ts'
import { ofType } from '#shared/schemas.ts'

const LIMIT_MAX = 1e12

const limitField = (description: string) =>
  Type.Optional(
    ofType(['integer', 'null'], {
      minimum: 1,
      maximum: LIMIT_MAX,
      description: `${description}; the limits of the server and the organization hold besides it.`,
    }),
  )

/** The fields in which a request names the limits of an API key; null removes one. */
export const KEY_LIMIT_FIELDS = {
  requests_per_minute: limitField('Requests of this key in a minute at most'),
  tokens_per_minute: limitField('Tokens of this key in a minute at most'),
  concurrent_requests: limitField('Requests of this key that run jobs at the same time at most'),
}

const BODY = Type.Object(KEY_LIMIT_FIELDS)

/** A request with those fields. */
export type KeyLimitsBody = Static<typeof BODY>

/** The limits that a request sets or, as null, removes. */
export function keyLimitsOf(body: KeyLimitsBody): Partial<KeyLimits> {
  const { requests_per_minute: requests, tokens_per_minute: tokens } = body
  return {
    ...(requests !== undefined && { requestsPerMinute: requests }),
    ...(tokens !== undefined && { tokensPerMinute: tokens }),
    ...(body.concurrent_requests !== undefined && { concurrentJobs: body.concurrent_requests }),
  }
}
