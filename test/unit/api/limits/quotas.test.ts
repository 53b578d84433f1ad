import { expect, it } from 'vitest'

import { quotaAt, quotaExceeded, quotasOf } from '#api/limits/quotas.ts'
import { presentError } from '#api/v1/error-dialect.ts'
import { NO_QUOTAS, type Quotas } from '#shared/db/schema/quotas.ts'

const LIMITS = { monthlyTokens: 0 }
const ALL: Quotas = {
  requestsPerDay: 1,
  requestsPerMonth: 2,
  tokensPerDay: 3,
  tokensPerMonth: 4,
  costPerDay: 5,
  costPerMonth: 6,
}

it('names each quota by its place', () => {
  const quotas = quotasOf(LIMITS, ALL, NO_QUOTAS)
  const names = Array.from({ length: 6 }, (_, place) => {
    const { of, amount, period, limit } = quotaAt(quotas, place)
    return `${of} ${amount} ${period} ${limit}`
  })
  expect(names).toEqual([
    'api_key requests day 1',
    'api_key tokens day 3',
    'api_key cost day 5',
    'api_key requests month 2',
    'api_key tokens month 4',
    'api_key cost month 6',
  ])
  expect(quotaAt(quotasOf(LIMITS, undefined, ALL), 11)).toMatchObject({
    of: 'organization',
    amount: 'cost',
    period: 'month',
    limit: 6,
  })
})

it.each([
  [null, 100],
  [4, 4],
])('prefers the quota %s of an organization to that of the installation', (own, limit) => {
  const quotas = quotasOf({ monthlyTokens: 100 }, undefined, { ...NO_QUOTAS, tokensPerMonth: own })
  expect(quotas.map(({ tokens }) => tokens)).toEqual([0, 0, 0, limit])
})

it.each([
  ['day', '2026-12-31', '2027-01-01T00:00:00.000Z'],
  ['month', '2026-12-03', '2027-01-01T00:00:00.000Z'],
  ['day', '2028-02-28', '2028-02-29T00:00:00.000Z'],
] as const)('says when the quota of a %s of %s resets', (period, day, reset) => {
  const subject = { organizationId: 'org-a', credentialId: 'key_1', day }
  const quota = { of: 'organization', period, amount: 'tokens', limit: 7 } as const
  const nowMs = Date.parse(`${day}T18:00:00Z`)
  const { status, headers, body } = presentError(quotaExceeded(quota, subject, nowMs))
  expect([status, headers]).toEqual([
    429,
    {
      'retry-after': String((Date.parse(reset) - nowMs) / 1000),
      'x-should-retry': 'false',
    },
  ])
  expect(JSON.stringify(body)).toContain(
    `organization org-a on tokens per ${period}: Limit 7. It resets at ${reset}.`,
  )
})
