import { bigint, doublePrecision } from 'drizzle-orm/pg-core'

/** The quotas of an API key or an organization by the days and months of UTC; null sets none. */
export interface Quotas {
  /** Requests that run jobs. */
  readonly requestsPerDay: number | null
  readonly requestsPerMonth: number | null
  readonly tokensPerDay: number | null
  readonly tokensPerMonth: number | null
  /** In the currency of the installation, by the prices of `models.json`. */
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

const count = (name: string) => bigint(name, { mode: 'number' })

/** The columns of the quotas. */
export function quotaColumns() {
  return {
    requestsPerDay: count('requests_per_day'),
    requestsPerMonth: count('requests_per_month'),
    tokensPerDay: count('tokens_per_day'),
    tokensPerMonth: count('tokens_per_month'),
    costPerDay: doublePrecision('cost_per_day'),
    costPerMonth: doublePrecision('cost_per_month'),
  }
}
