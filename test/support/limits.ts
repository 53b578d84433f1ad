import type { QuotaServices } from '#api/limits/quotas.ts'
import type { LimitsConfig } from '#shared/config/limits.ts'
import { NO_QUOTAS } from '#shared/db/schema/quotas.ts'

/** A server without limits. */
export const NO_LIMITS: LimitsConfig = {
  requestsPerMinute: { key: 0, organization: 0 },
  tokensPerMinute: { key: 0, organization: 0 },
  anonymous: { requestsPerMinute: 0, tokensPerMinute: 0, mayCreateKeys: false },
  concurrentJobs: 0,
  monthlyTokens: 0,
  organizationsPerUser: 0,
}

/** Nothing is used, and no organization has quotas. */
export const NOTHING_USED: Pick<QuotaServices, 'usedSince' | 'organizationQuotas'> = {
  usedSince: async () => ({ requests: 0, tokens: 0, cost: 0 }),
  organizationQuotas: async () => NO_QUOTAS,
}
