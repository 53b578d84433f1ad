import type { Clock } from '#shared/clock.ts'
import type { LimitsConfig } from '#shared/config/limits.ts'
import type { Quotas } from '#shared/db/schema/quotas.ts'
import { failure, type ServiceError } from '#shared/errors.ts'

import {
  AMOUNTS,
  type Amount,
  type Amounts,
  COUNTERS,
  type Counter,
  dayOf,
  fillCounter,
  type LimitStore,
  type LimitSubject,
  readCounter,
} from './limit-store.ts'

export interface QuotaServices extends LimitStore {
  readonly clock: Clock
  /** The recorded usage of an organization, or of one of its keys, since a point in time. */
  usedSince(
    of: { readonly organizationId: string; readonly apiKeyId?: string },
    sinceMs: number,
  ): Promise<Amounts>
  organizationQuotas(organizationId: string): Promise<Quotas>
}

/** A quota that is set. */
interface Quota extends Counter {
  readonly amount: Amount
  readonly limit: number
}

/** A quota and its current usage. */
export interface QuotaState extends Quota {
  readonly used: number
  readonly resetsAtMs: number
}

const NAMES = {
  day: { requests: 'requestsPerDay', tokens: 'tokensPerDay', cost: 'costPerDay' },
  month: { requests: 'requestsPerMonth', tokens: 'tokensPerMonth', cost: 'costPerMonth' },
} as const satisfies Record<Counter['period'], Record<Amount, keyof Quotas>>

/**
 * Returns the quotas of each counter; 0 means none. A monthly token quota of an organization
 * replaces the one of the installation.
 */
export function quotasOf(
  { monthlyTokens }: Pick<LimitsConfig, 'monthlyTokens'>,
  key: Quotas | undefined,
  organization: Quotas,
): readonly Amounts[] {
  const ofOrganization = {
    ...organization,
    tokensPerMonth: organization.tokensPerMonth ?? monthlyTokens,
  }
  return COUNTERS.map(({ of, period }) => {
    const quotas = of === 'api_key' ? key : ofOrganization
    const limit = (amount: Amount): number => quotas?.[NAMES[period][amount]] ?? 0
    return { requests: limit('requests'), tokens: limit('tokens'), cost: limit('cost') }
  })
}

/** Returns the set quotas with their usage, and fills missing counters. */
export async function quotaStates(
  services: QuotaServices,
  subject: LimitSubject,
  quotas: readonly Amounts[],
): Promise<QuotaState[]> {
  const states = COUNTERS.map(async (counter, index): Promise<QuotaState[]> => {
    const limits = quotas[index]
    const limited = AMOUNTS.filter((amount) => (limits?.[amount] ?? 0) > 0)
    if (limits === undefined || limited.length === 0) return []
    const used = await readUsage(services, subject, counter)
    return limited.map((amount) => ({
      ...counter,
      amount,
      limit: limits[amount],
      used: used[amount],
      resetsAtMs: resetOf(counter, subject),
    }))
  })
  return (await Promise.all(states)).flat()
}

/** Reads the usage record if the counter is missing or Redis is unavailable. */
async function readUsage(
  services: QuotaServices,
  subject: LimitSubject,
  counter: Counter,
): Promise<Amounts> {
  const known = await readCounter(services, subject, counter).catch(() => undefined)
  if (known !== undefined) return known
  const { organizationId, credentialId } = subject
  const since = counter.period === 'day' ? subject.day : `${subject.day.slice(0, 7)}-01`
  const used = await services.usedSince(
    { organizationId, ...(counter.of === 'api_key' && { apiKeyId: credentialId }) },
    Date.parse(since),
  )
  await fillCounter(services, subject, { counter, used }).catch(() => {
    // The next request tries again.
  })
  return used
}

/** Throws `rateLimited` if the organization used up a quota; for work outside of requests. */
export async function checkQuota(services: QuotaServices, organizationId: string): Promise<void> {
  const quotas = quotasOf(
    services.limits,
    undefined,
    await services.organizationQuotas(organizationId),
  )
  const nowMs = services.clock.now()
  const subject = { organizationId, credentialId: 'batches', day: dayOf(nowMs) }
  const states = await quotaStates(services, subject, quotas)
  const usedUp = states.find(({ used, limit }) => used >= limit)
  if (usedUp !== undefined) throw quotaExceeded(usedUp, subject, nowMs)
}

/** Returns the quota at an index, in the order of the counters and their amounts. */
export function quotaAt(quotas: readonly Amounts[], index: number): Quota {
  const counter = COUNTERS[Math.floor(index / AMOUNTS.length)] as Counter
  const amount = AMOUNTS[index % AMOUNTS.length] as Amount
  const limit = quotas[Math.floor(index / AMOUNTS.length)]?.[amount] ?? 0
  return { ...counter, amount, limit }
}

/** The error for requests above a quota. */
export function quotaExceeded(quota: Quota, subject: LimitSubject, nowMs: number): ServiceError {
  const { of, period, amount, limit } = quota
  const whose = of === 'api_key' ? 'this API key' : `organization ${subject.organizationId}`
  const resetsAtMs = resetOf(quota, subject)
  return failure.rateLimited(
    `You exceeded your current quota of ${whose} on ${amount} per ${period}: Limit ${limit}. It resets at ${new Date(resetsAtMs).toISOString()}.`,
    {
      openaiType: 'insufficient_quota',
      code: 'insufficient_quota',
      shouldRetry: false,
      retryAfterSeconds: (resetsAtMs - nowMs) / 1000,
    },
  )
}

/** The end of the day or month, in milliseconds since the epoch. */
function resetOf({ period }: Counter, { day }: LimitSubject): number {
  const [year = 0, month = 0, date = 0] = day.split('-').map(Number)
  return period === 'day' ? Date.UTC(year, month - 1, date + 1) : Date.UTC(year, month, 1)
}
