import type { Static } from 'typebox'

import type { KeyLimits } from '#shared/db/api-keys.ts'
import type { Quotas } from '#shared/db/schema/quotas.ts'
import { Type } from '#shared/schema-types.ts'
import { ofType } from '#shared/schemas.ts'

const LIMIT_MAX = 1e12
const COST_MIN = 1e-6
// Costs are counted in billionths, and a larger sum would not be exact.
const COST_MAX = 1e6

const countField = (description: string) =>
  Type.Optional(ofType(['integer', 'null'], { minimum: 1, maximum: LIMIT_MAX, description }))
const costField = (description: string) =>
  Type.Optional(ofType(['number', 'null'], { minimum: COST_MIN, maximum: COST_MAX, description }))
const limitField = (description: string) =>
  countField(`${description}; the limits of the server and the organization apply as well.`)

/** The request fields of quotas; null removes a quota. */
export const QUOTA_FIELDS = {
  requests_per_day: countField('The maximum of requests that run jobs in a day (UTC).'),
  requests_per_month: countField(
    'The maximum of requests that run jobs in a calendar month (UTC).',
  ),
  tokens_per_day: countField('The maximum of tokens in a day (UTC).'),
  tokens_per_month: countField('The maximum of tokens in a calendar month (UTC).'),
  cost_per_day: costField('The maximum cost in a day (UTC), at the prices of the models.'),
  cost_per_month: costField(
    'The maximum cost in a calendar month (UTC), at the prices of the models.',
  ),
}

/** The request fields of the limits of an API key; null removes a limit. */
export const KEY_LIMIT_FIELDS = {
  requests_per_minute: limitField('Requests of this key in a minute at most'),
  tokens_per_minute: limitField('Tokens of this key in a minute at most'),
  concurrent_requests: limitField('Requests of this key that run jobs at the same time at most'),
  ...QUOTA_FIELDS,
}

const QUOTAS_BODY = Type.Object(QUOTA_FIELDS)
const BODY = Type.Object(KEY_LIMIT_FIELDS)

/** A request body with quotas. */
export type QuotasBody = Static<typeof QUOTAS_BODY>
/** A request body with the limits of a key. */
export type KeyLimitsBody = Static<typeof BODY>

/** The field of each quota. */
export const QUOTA_NAMES = {
  requestsPerDay: 'requests_per_day',
  requestsPerMonth: 'requests_per_month',
  tokensPerDay: 'tokens_per_day',
  tokensPerMonth: 'tokens_per_month',
  costPerDay: 'cost_per_day',
  costPerMonth: 'cost_per_month',
} as const satisfies Record<keyof Quotas, keyof QuotasBody>

/** The field of each limit of a key. */
const LIMIT_NAMES = {
  requestsPerMinute: 'requests_per_minute',
  tokensPerMinute: 'tokens_per_minute',
  concurrentJobs: 'concurrent_requests',
  ...QUOTA_NAMES,
} as const satisfies Record<keyof KeyLimits, keyof KeyLimitsBody>

/** The quotas that a request sets or, as null, removes. */
export function quotasIn(body: QuotasBody): Partial<Quotas> {
  return named(QUOTA_NAMES, body)
}

/** The limits that a request sets or, as null, removes. */
export function keyLimitsOf(body: KeyLimitsBody): Partial<KeyLimits> {
  return named(LIMIT_NAMES, body)
}

const LIMITS = Object.keys(LIMIT_NAMES) as (keyof KeyLimits)[]

/** Whether a key has a limit or quota of its own. */
export function hasLimits(limits: KeyLimits): boolean {
  return LIMITS.some((name) => limits[name] !== null)
}

/** The limits of a key by the names of their fields. */
export function presentKeyLimits(limits: KeyLimits): Required<KeyLimitsBody> {
  const fields = Object.entries(LIMIT_NAMES).map(([name, field]) => [
    field,
    limits[name as keyof KeyLimits],
  ])
  return Object.fromEntries(fields) as Required<KeyLimitsBody>
}

function named<Name extends string>(
  names: Readonly<Record<Name, string>>,
  body: Readonly<Record<string, number | null | undefined>>,
): Partial<Record<Name, number | null>> {
  const given = (Object.entries(names) as [Name, string][])
    .map(([name, field]) => [name, body[field]] as const)
    .filter(([, value]) => value !== undefined)
  return Object.fromEntries(given) as Partial<Record<Name, number | null>>
}
