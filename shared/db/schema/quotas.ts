import { doublePrecision } from 'drizzle-orm/pg-core'

import { whole } from './columns.ts'

/** Quotas of an API key or organization per calendar day and month (UTC); null means none. */
export interface Quotas {
  /** Requests that run jobs. */
  readonly requestsPerDay: number | null
  readonly requestsPerMonth: number | null
  readonly tokensPerDay: number | null
  readonly tokensPerMonth: number | null
  /** In the currency of the installation, at the prices of `models.json`. */
  readonly costPerDay: number | null
  readonly costPerMonth: number | null
}

export const NO_QUOTAS: Quotas = {
  requestsPerDay: null,
  requestsPerMonth: null,
  tokensPerDay: null,
  tokensPerMonth: null,
  costPerDay: null,
  costPerMonth: null,
}

/** The columns of the quotas. */
export function quotaColumns() {
  return {
    requestsPerDay: whole('requests_per_day'),
    requestsPerMonth: whole('requests_per_month'),
    tokensPerDay: whole('tokens_per_day'),
    tokensPerMonth: whole('tokens_per_month'),
    costPerDay: doublePrecision('cost_per_day'),
    costPerMonth: doublePrecision('cost_per_month'),
  }
}
