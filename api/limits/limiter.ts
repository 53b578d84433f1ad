import type { FastifyReply, FastifyRequest } from 'fastify'

import { networkOf } from '#api/http/request.ts'
import { type Caller, callerOf, type JobUse } from '#api/v1/request-context.ts'
import { JOB_SCOPES, type RequiredScope } from '#api/v1/scopes.ts'
import type { LimitsConfig } from '#shared/config/limits.ts'
import type { Quotas } from '#shared/db/schema/quotas.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import { estimateTokens, type ModelBounds, reservationOf, sizesOf } from './estimate.ts'
import { Leases, LIVE_LEASE_MS_MIN, leaseOf } from './leases.ts'
import {
  type Amounts,
  type Charge,
  COUNTERS,
  type Counter,
  charge,
  dayOf,
  type LimitSubject,
  leasesKeys,
  type RequestLimits,
  settle,
} from './limit-store.ts'
import {
  checkQuota,
  type QuotaServices,
  quotaAt,
  quotaExceeded,
  quotaStates,
  quotasOf,
} from './quotas.ts'
import {
  limitHeaders,
  limitState,
  type PresentLimit,
  tightestOf,
  usedOf,
  WINDOW_MS,
  type Window,
  waitMs,
} from './windows.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Writes the limits of a route in its dialect, beside the headers of OpenAI. */
    presentLimit?: PresentLimit
  }
}

interface LimiterServices extends QuotaServices {
  readonly log: Logger
  /** The bounds of the model that a request names by id or alias. */
  readonly boundsOf?: (modelName: string) => ModelBounds | undefined
}

/** Charges a request to its key and organization. Throws `rateLimited` when it is over a limit. */
type Limiter = (request: FastifyRequest, reply: FastifyReply) => Promise<void>

/** Creates the limiter. While Redis is unreachable every request passes. */
export function createLimiter(services: LimiterServices): Limiter {
  const { log, clock } = services
  const leases = new Leases(services.redis, log)
  let isAway = false
  return async (request, reply) => {
    // The process that died charged the job when it first arrived.
    if (request.context.durable?.isAdopted === true) return
    const caller = callerOf(request)
    // The request of a background job was charged when the job was made, but others may have used
    // up the quota since.
    if (request.context.stored !== undefined) return checkQuota(services, caller.organizationId)
    const limits = limitsOf(
      services.limits,
      caller,
      await services.organizationQuotas(caller.organizationId),
    )
    if (!isLimited(limits)) return
    const subject = subjectOf(caller, request, clock.now())
    const isJob = runsJob(request)
    const wanted = isJob ? jobCharge(services, request, limits) : { tokens: 0, lease: '' }
    let charged: Charge
    try {
      charged = await chargeKnown({ ...services, limits }, subject, wanted)
      isAway = false
    } catch (error) {
      // While Redis is unavailable, limits are not enforced, so that requests still work.
      if (!isAway) log.warn({ operation: 'limits.charge', err: error }, 'limits are not enforced')
      isAway = true
      return
    }
    stateLimits(request, reply, { charged, nowMs: clock.now() })
    if (charged.verdict === 'quota') {
      throw quotaExceeded(quotaAt(limits.quotas, charged.usedUp), subject, clock.now())
    }
    if (charged.verdict !== 'admitted') throw refusal(charged, subject, wanted.tokens)
    if (!isJob) return
    settleAtTheEnd(services, leases, { request, reply, subject, charged, limits, ...wanted })
  }
}

/** Sets the headers about the limits that exist. */
function stateLimits(
  { routeOptions }: FastifyRequest,
  reply: FastifyReply,
  { charged, nowMs }: { readonly charged: Charge; readonly nowMs: number },
): void {
  const { presentLimit } = routeOptions.config
  for (const dimension of ['requests', 'tokens'] as const) {
    const state = limitState(dimension, charged[dimension], charged.elapsedMs)
    if (state === undefined) continue
    reply.headers({ ...limitHeaders(state, nowMs), ...presentLimit?.(state, nowMs) })
  }
}

/** The estimated tokens of a job, and its lease, which reserves them if there are quotas. */
function jobCharge(
  { clock, boundsOf }: LimiterServices,
  request: FastifyRequest,
  limits: RequestLimits,
): { readonly tokens: number; readonly lease: string } {
  const sizes = sizesOf(request)
  const hasQuotas = reserves(limits, 'organization') || reserves(limits, 'api_key')
  const reservation = hasQuotas ? reservationOf(sizes, boundsOf) : { tokens: 0, costParts: 0 }
  const lease = leaseOf(`${request.id}:${clock.monotonic()}`, reservation)
  return { tokens: estimateTokens(sizes), lease }
}

/** Charges a request, filling missing counters first. If that fails, quotas are not enforced. */
async function chargeKnown(
  services: LimiterServices & { readonly limits: RequestLimits },
  subject: LimitSubject,
  wanted: { readonly tokens: number; readonly lease: string },
): Promise<Charge> {
  const charged = await charge(services, subject, wanted)
  if (charged.verdict !== 'unknown') return charged
  try {
    await quotaStates(services, subject, services.limits.quotas)
    const again = await charge(services, subject, wanted)
    if (again.verdict !== 'unknown') return again
  } catch (error) {
    services.log.warn({ operation: 'limits.quotas', err: error }, 'quotas are not enforced')
  }
  const quotas: readonly Amounts[] = []
  return charge({ ...services, limits: { ...services.limits, quotas } }, subject, wanted)
}

/** Returns the key and organization whose limits apply to a request. */
export function subjectOf(caller: Caller, request: FastifyRequest, nowMs: number): LimitSubject {
  return {
    organizationId: caller.organizationId,
    credentialId: credentialOf(caller, request),
    day: dayOf(nowMs),
  }
}

// Anonymous users can be created without limit, so those of one network share a limit.
function credentialOf({ apiKeyId, userId = '', isAnonymous }: Caller, request: FastifyRequest) {
  if (isAnonymous === true) return `anonymous:${networkOf(request)}`
  return apiKeyId ?? `user:${userId}`
}

/**
 * The limits of a caller. Anonymous users have their own limits instead of those of a key, and a
 * key may have lower ones.
 */
function limitsOf(
  limits: LimitsConfig,
  { isAnonymous, limits: own }: Caller,
  organization: Quotas,
): RequestLimits {
  const { requestsPerMinute, tokensPerMinute, anonymous } = limits
  const { requestsPerMinute: requests, tokensPerMinute: tokens } = isAnonymous
    ? anonymous
    : {
        requestsPerMinute: lower(requestsPerMinute.key, own?.requestsPerMinute),
        tokensPerMinute: lower(tokensPerMinute.key, own?.tokensPerMinute),
      }
  return {
    ...limits,
    requestsPerMinute: { ...requestsPerMinute, key: requests },
    tokensPerMinute: { ...tokensPerMinute, key: tokens },
    concurrentJobsOfKey: own?.concurrentJobs ?? 0,
    quotas: quotasOf(limits, own, organization),
  }
}

/** The lower of two limits; 0 and null mean no limit. */
function lower(limit: number, own: number | null | undefined): number {
  if (own === null || own === undefined) return limit
  return limit === 0 ? own : Math.min(limit, own)
}

function isLimited(limits: RequestLimits): boolean {
  const { requestsPerMinute, tokensPerMinute, concurrentJobsOfKey, quotas } = limits
  return [requestsPerMinute, tokensPerMinute]
    .flatMap(({ key, organization }) => [key, organization])
    .concat(limits.concurrentJobs, concurrentJobsOfKey)
    .concat(quotas.flatMap(({ requests, tokens, cost }) => [requests, tokens, cost]))
    .some((limit) => limit > 0)
}

/** Whether jobs reserve a part of the quotas of a key or an organization. */
function reserves({ quotas }: RequestLimits, of: Counter['of']): boolean {
  return COUNTERS.some((counter, index) => {
    const { tokens = 0, cost = 0 } = quotas[index] ?? {}
    return counter.of === of && tokens + cost > 0
  })
}

/** Settles the charge when the answer ends; jobs that end later are added one by one. */
function settleAtTheEnd(
  services: LimiterServices,
  leases: Leases,
  open: {
    readonly request: FastifyRequest
    readonly reply: FastifyReply
    readonly subject: LimitSubject
    readonly charged: Charge
    readonly limits: RequestLimits
    readonly tokens: number
    readonly lease: string
  },
): void {
  const { request, reply, subject, charged, limits, tokens, lease } = open
  const [ofOrganization, ofKey] = leasesKeys(services.prefix, subject)
  const held = [
    ...(limits.concurrentJobs > 0 || reserves(limits, 'organization') ? [ofOrganization] : []),
    ...(limits.concurrentJobsOfKey > 0 || reserves(limits, 'api_key') ? [ofKey] : []),
  ]
  for (const key of held) leases.add(key, lease)
  let used: JobUse = { tokens: 0, cost: 0 }
  let hasEnded = false
  const send = (bill: { tokensToAdd: number; lease: string; used: Amounts }): void => {
    settle(services, subject, { minute: charged.minute, ...bill }).catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error)
      services.log.debug({ operation: 'limits.settle', reason }, 'left to expire')
    })
  }
  request.context.onUse = (more) => {
    used = { tokens: used.tokens + more.tokens, cost: used.cost + more.cost }
    if (hasEnded) send({ tokensToAdd: more.tokens, lease: '', used: { requests: 0, ...more } })
  }
  const end = (): void => {
    hasEnded = true
    for (const key of held) leases.delete(key, lease)
    // Admission already counted the request.
    send({ tokensToAdd: used.tokens - tokens, lease, used: { requests: 0, ...used } })
  }
  // Under an Idempotency-Key the job continues without its client.
  const durable = request.context.durable
  if (durable !== undefined) durable.onOver(end)
  // The client may have disconnected during the Redis call.
  else if (reply.raw.destroyed) end()
  else reply.raw.once('close', end)
}

function refusal(charged: Charge, subject: LimitSubject, tokens: number): ServiceError {
  switch (charged.verdict) {
    case 'jobs':
      return tooManyJobs(
        charged,
        `organization ${subject.organizationId} on requests at the same time`,
      )
    case 'reserved':
      return tooManyJobs(
        charged,
        `organization ${subject.organizationId}: its running requests may use up the rest of a quota. A smaller max_tokens reserves less`,
      )
    case 'tokens':
      return overLimit(charged, subject, { dimension: 'tokens', short: 'TPM', wanted: tokens })
    default:
      return overLimit(charged, subject, { dimension: 'requests', short: 'RPM', wanted: 1 })
  }
}

/**
 * A live job may end at any moment; the lease of a process that ended frees its place when it
 * expires.
 */
function tooManyJobs({ leaseLeftMs }: Charge, reason: string): ServiceError {
  const seconds = leaseLeftMs < LIVE_LEASE_MS_MIN ? Math.max(1, Math.ceil(leaseLeftMs / 1000)) : 1
  return failure.rateLimited(`Rate limit reached for ${reason}. Please try again in ${seconds}s.`, {
    openaiType: 'requests',
    code: 'rate_limit_exceeded',
    retryAfterSeconds: seconds,
  })
}

function overLimit(
  charged: Charge,
  { organizationId }: LimitSubject,
  over: { readonly dimension: 'requests' | 'tokens'; short: string; readonly wanted: number },
): ServiceError {
  const { elapsedMs } = charged
  const { dimension, short, wanted } = over
  const details = { openaiType: dimension, code: 'rate_limit_exceeded' }
  const windows = charged[dimension]
  const { limit, ...uses } = tightestOf(windows, elapsedMs) as Window
  const used = usedOf({ limit, ...uses }, elapsedMs)
  const waits = windows
    .filter((window) => window.limit > 0)
    .map((window) => waitMs(window, wanted, elapsedMs))
  if (waits.includes(undefined)) {
    return failure.rateLimited(
      `Request too large for organization ${organizationId} on ${dimension} per min (${short}): Limit ${limit}, Requested ${wanted}.`,
      { ...details, shouldRetry: false },
    )
  }
  const seconds = Math.ceil(Math.min(WINDOW_MS, Math.max(...(waits as number[]))) / 1000)
  return failure.rateLimited(
    `Rate limit reached for organization ${organizationId} on ${dimension} per min (${short}): Limit ${limit}, Used ${used}, Requested ${wanted}. Please try again in ${seconds}s.`,
    { ...details, retryAfterSeconds: seconds },
  )
}

const MAKES_WORKERS_RUN: ReadonlySet<RequiredScope> = new Set(JOB_SCOPES)

/** Whether a request makes the workers run. */
export function runsJob({ method, routeOptions }: FastifyRequest): boolean {
  if (method !== 'POST') return false
  // Batches are charged per line; without a remaining monthly quota no new batch is accepted.
  if (routeOptions.config.scope === 'batches')
    return routeOptions.url?.endsWith('/batches') === true
  return MAKES_WORKERS_RUN.has(routeOptions.config.scope as RequiredScope)
}
