import type { FastifyReply, FastifyRequest } from 'fastify'

import { networkOf } from '#api/http/request.ts'
import { type Caller, callerOf } from '#api/v1/request-context.ts'
import { JOB_SCOPES, type RequiredScope } from '#api/v1/scopes.ts'
import type { Clock } from '#shared/clock.ts'
import type { LimitsConfig } from '#shared/config/limits.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'

import {
  type Charge,
  charge,
  fillMonth,
  Leases,
  LIVE_LEASE_MS_MIN,
  type LimitStore,
  type LimitSubject,
  leasesKeys,
  limitHeaders,
  monthOf,
  type RequestLimits,
  settle,
  tightestOf,
  tokensOfMonth,
  usedOf,
  WINDOW_MS,
  type Window,
  waitMs,
} from './limit-store.ts'

export interface LimiterServices extends LimitStore {
  readonly clock: Clock
  readonly log: Logger
  /** Tokens of an organization since a point in time, from the usage table. */
  tokensSince(organizationId: string, sinceMs: number): Promise<number>
}

/** Charges a request to its key and organization. Throws `rateLimited` when it is over a limit. */
export type Limiter = (request: FastifyRequest, reply: FastifyReply) => Promise<void>

/** Creates the limiter. While Redis is unreachable every request passes. */
export function createLimiter(services: LimiterServices): Limiter {
  const { log, clock } = services
  const leases = new Leases(services.redis, log)
  let isAway = false
  return async (request, reply) => {
    // The process that died charged the job when it first arrived.
    if (request.context.durable?.isAdopted === true) return
    // The request of a background job was charged when the job was made.
    if (request.context.stored !== undefined) return
    const caller = callerOf(request)
    const limits = limitsOf(services.limits, caller)
    if (!isLimited(limits)) return
    const subject: LimitSubject = {
      organizationId: caller.organizationId,
      credentialId: credentialOf(caller, request),
      month: monthOf(clock.now()),
    }
    const isJob = runsJob(request)
    const wanted = {
      tokens: isJob ? estimateTokens(request) : 0,
      lease: isJob ? `${request.id}:${clock.monotonic()}` : '',
    }
    let charged: Charge
    try {
      charged = await charge({ ...services, limits }, subject, wanted)
      isAway = false
    } catch (error) {
      // While Redis is unavailable, limits are not enforced, so that requests still work.
      if (!isAway) log.warn({ operation: 'limits.charge', err: error }, 'limits are not enforced')
      isAway = true
      return
    }
    reply.headers({
      ...limitHeaders('requests', charged.requests, charged.elapsedMs),
      ...limitHeaders('tokens', charged.tokens, charged.elapsedMs),
    })
    if (charged.verdict !== 'admitted') throw refusal(charged, subject, wanted.tokens)
    if (!isJob) return
    settleAtTheEnd(services, leases, { request, reply, subject, charged, limits, ...wanted })
    await checkMonth(services, subject, charged)
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
function limitsOf(limits: LimitsConfig, { isAnonymous, limits: own }: Caller): RequestLimits {
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
  }
}

/** The lower of two limits; 0 and null mean no limit. */
function lower(limit: number, own: number | null | undefined): number {
  if (own === null || own === undefined) return limit
  return limit === 0 ? own : Math.min(limit, own)
}

function isLimited(limits: RequestLimits): boolean {
  const { requestsPerMinute, tokensPerMinute, monthlyTokens, concurrentJobsOfKey } = limits
  return [requestsPerMinute, tokensPerMinute]
    .flatMap(({ key, organization }) => [key, organization])
    .concat(limits.concurrentJobs, concurrentJobsOfKey, monthlyTokens)
    .some((limit) => limit > 0)
}

/**
 * Throws `rateLimited` when an organization has used up its monthly tokens; for work without a
 * request.
 */
export async function checkQuota(services: LimiterServices, organizationId: string): Promise<void> {
  const { limits, clock, log } = services
  if (limits.monthlyTokens === 0) return
  const subject = { organizationId, credentialId: 'batches', month: monthOf(clock.now()) }
  let monthlyTokens: number | undefined
  try {
    monthlyTokens = await tokensOfMonth(services, subject)
  } catch (error) {
    log.debug({ operation: 'limits.quota', err: error }, 'the quota is not enforced')
    return
  }
  if (monthlyTokens === undefined) await checkMonth(services, subject, { monthlyTokens })
  else if (monthlyTokens >= limits.monthlyTokens) throw quotaExceeded()
}

/** Settles the charge when the answer has ended; jobs that end later are added one by one. */
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
    ...(limits.concurrentJobs > 0 ? [ofOrganization] : []),
    ...(limits.concurrentJobsOfKey > 0 ? [ofKey] : []),
  ]
  for (const key of held) leases.add(key, lease)
  let used = 0
  let hasEnded = false
  const send = (bill: { tokensToAdd: number; lease: string; tokensOfMonth: number }): void => {
    settle(services, subject, { minute: charged.minute, ...bill }).catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error)
      services.log.debug({ operation: 'limits.settle', reason }, 'left to expire')
    })
  }
  request.context.onTokens = (more) => {
    used += more
    if (hasEnded) send({ tokensToAdd: more, lease: '', tokensOfMonth: more })
  }
  const end = (): void => {
    hasEnded = true
    for (const key of held) leases.delete(key, lease)
    send({ tokensToAdd: used - tokens, lease, tokensOfMonth: used })
  }
  // Under an Idempotency-Key the job continues without its client.
  const durable = request.context.durable
  if (durable !== undefined) durable.onOver(end)
  // The client may have disconnected during the Redis call.
  else if (reply.raw.destroyed) end()
  else reply.raw.once('close', end)
}

/**
 * Initializes the monthly counter when it is missing, and applies the quota to this request too.
 */
async function checkMonth(
  services: LimiterServices,
  subject: LimitSubject,
  { monthlyTokens }: Pick<Charge, 'monthlyTokens'>,
): Promise<void> {
  const quota = services.limits.monthlyTokens
  if (quota === 0 || monthlyTokens !== undefined) return
  const tokens = await services.tokensSince(
    subject.organizationId,
    Date.parse(`${subject.month}-01T00:00:00Z`),
  )
  await fillMonth(services, subject, tokens).catch(() => {
    // The next request fills the counter.
  })
  if (tokens >= quota) throw quotaExceeded()
}

function refusal(charged: Charge, subject: LimitSubject, tokens: number): ServiceError {
  switch (charged.verdict) {
    case 'month':
      return quotaExceeded()
    case 'jobs':
      return tooManyJobs(charged, subject)
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
function tooManyJobs({ leaseLeftMs }: Charge, { organizationId }: LimitSubject): ServiceError {
  const seconds = leaseLeftMs < LIVE_LEASE_MS_MIN ? Math.max(1, Math.ceil(leaseLeftMs / 1000)) : 1
  return failure.rateLimited(
    `Rate limit reached for organization ${organizationId} on requests at the same time. Please try again in ${seconds}s.`,
    { openaiType: 'requests', code: 'rate_limit_exceeded', retryAfterSeconds: seconds },
  )
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

function quotaExceeded(): ServiceError {
  return failure.rateLimited(
    'You exceeded your current quota, please check your plan and billing details.',
    { openaiType: 'insufficient_quota', code: 'insufficient_quota', shouldRetry: false },
  )
}

const MAKES_WORKERS_RUN: ReadonlySet<RequiredScope> = new Set(JOB_SCOPES)

// A token of English text is about four characters.
const BYTES_PER_TOKEN = 4
const TOKENS_MAX = 10_000_000
const COPIES_MAX = 128
// The default of `max_tokens` for a completion; that of a chat depends on the model.
const COMPLETION_TOKENS_DEFAULT = 16

/** Whether a request makes the workers run. */
export function runsJob({ method, routeOptions }: FastifyRequest): boolean {
  if (method !== 'POST') return false
  // Batches are charged per line; without a remaining monthly quota no new batch is accepted.
  if (routeOptions.config.scope === 'batches')
    return routeOptions.url?.endsWith('/batches') === true
  return MAKES_WORKERS_RUN.has(routeOptions.config.scope as RequiredScope)
}

/**
 * The estimated charge of a request until its usage is known: its length plus its largest output.
 */
function estimateTokens(request: FastifyRequest): number {
  const { body, headers, routeOptions } = request
  // The bytes of a form are an image or a recording.
  if (typeof body !== 'object' || body === null) return 0
  const fields = body as Readonly<Record<string, unknown>>
  const asked = [fields.max_completion_tokens, fields.max_output_tokens, fields.max_tokens].find(
    (value) => typeof value === 'number' && value >= 0,
  )
  const isCompletion = routeOptions.config.scope === 'completions'
  const perCopy = typeof asked === 'number' ? asked : isCompletion ? COMPLETION_TOKENS_DEFAULT : 0
  const copies = Math.max(1, count(fields.n), count(fields.best_of))
  // A chunked body has no Content-Length.
  const bytes = headers['content-length'] ?? Buffer.byteLength(JSON.stringify(body))
  const prompt = Math.ceil(Number(bytes) / BYTES_PER_TOKEN)
  return Math.min(TOKENS_MAX, Math.ceil(prompt + perCopy * Math.min(COPIES_MAX, copies)))
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 ? value : 0
}
