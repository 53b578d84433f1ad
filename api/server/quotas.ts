import type { Redis } from 'ioredis'

import { type Amounts, addUsage, dayOf } from '#api/limits/limit-store.ts'
import { rememberQuotas } from '#api/limits/organization-quotas.ts'
import type { QuotaServices } from '#api/limits/quotas.ts'
import { costOf, priceOf } from '#api/usage/usage-meter.ts'
import type { UsageRecord } from '#api/usage/usage-store.ts'
import type { Catalogue } from '#shared/catalogue.ts'
import type { Clock } from '#shared/clock.ts'
import type { Config } from '#shared/config/config.ts'
import type { Database } from '#shared/db/client.ts'
import { findQuotas } from '#shared/db/organizations.ts'
import type { OrganizationTables } from '#shared/db/schema/organizations.ts'
import type { Logger } from '#shared/logger.ts'

interface Needs {
  readonly redis: Redis
  readonly config: Pick<Config, 'infra' | 'limits'>
  readonly clock: Clock
  readonly log: Logger
  readonly database: Database
  readonly organizationTables: OrganizationTables
  readonly usage: Pick<UsageRecord, 'sumSince'>
  readonly catalogue: Catalogue
}

/** Creates the quotas of keys and organizations; the usage record fills their counters. */
export function openQuotas(services: Needs): QuotaServices {
  const { redis, config, clock, log, database, organizationTables, usage, catalogue } = services
  return {
    redis,
    clock,
    prefix: config.infra.redisPrefix,
    limits: config.limits,
    async usedSince(of, sinceMs) {
      const sums = await usage.sumSince(of, sinceMs)
      const used = { requests: 0, tokens: 0, cost: 0 }
      for (const sum of sums) {
        used.requests += sum.requests
        used.tokens += sum.promptTokens + sum.completionTokens
        used.cost += costOf(priceOf(catalogue, sum.modelId), sum) ?? 0
      }
      return used
    },
    organizationQuotas: rememberQuotas({
      find: (id) => findQuotas(database.db, organizationTables, id),
      clock,
      log,
    }),
  }
}

/** Adds work that no limit charged to the quotas of an organization. */
export function countUse(
  { quotas, clock, log }: { readonly quotas: QuotaServices } & Pick<Needs, 'clock' | 'log'>,
  organizationId: string,
  used: Amounts,
): void {
  const subject = { organizationId, credentialId: 'batches', day: dayOf(clock.now()) }
  addUsage(quotas, subject, used).catch((error: unknown) =>
    log.debug({ operation: 'limits.settle', err: error }, 'could not add usage to the quotas'),
  )
}
