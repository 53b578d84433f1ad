import type { FastifyReply, FastifyRequest } from 'fastify'

import { PassThroughBytes, passThrough } from '#api/http/pass-through.ts'
import { pathOf } from '#api/http/request.ts'
import { callerOf } from '#api/v1/request-context.ts'
import { JOB_SCOPES, type RequiredScope } from '#api/v1/scopes.ts'
import type { Clock } from '#shared/clock.ts'
import { JOB_PRIORITIES } from '#shared/db/schema/jobs.ts'
import { CancelledError, failure, type ServiceError } from '#shared/errors.ts'
import { readObject } from '#shared/storage/object-store.ts'

import { type BackgroundJobs, jobHead } from './background-jobs.ts'
import { presentJob } from './job.ts'
import type { JobStore } from './job-store.ts'
import { LargeBodies } from './large-bodies.ts'
import { clientSignal, type Http } from './run-inference.ts'
import { TemporaryObjects, type TemporaryServices } from './temporary-objects.ts'

const FORM_BYTES_MAX = 64 * 1024 * 1024
/** The most bytes of forms that are packed at a time, because each is in memory several times. */
const PACKED_BYTES_MAX = 32 * 1024 * 1024
const RESPOND_ASYNC = /(^|,)\s*respond-async\s*(;|,|$)/i
const PRIORITY_HEADER = 'x-millrace-priority'
const START_HEADER = 'x-millrace-not-before'
const DEADLINE_HEADER = 'x-millrace-deadline'
const METADATA_HEADER = 'x-millrace-metadata'

/**
 * `Prefer: respond-async` (RFC 7240) on every route that runs a job: answers 202 with the URL of a
 * background job instead of running the request now.
 */
export function respondAsync(
  services: {
    readonly background: BackgroundJobs
    readonly jobs: Pick<JobStore, 'storesNothing'>
    readonly clock: Clock
  } & TemporaryServices,
): (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply | undefined> {
  const forms = new LargeBodies(PACKED_BYTES_MAX)
  return async (request, reply) => {
    if (!wantsJob(request)) return undefined
    const { background, jobs, clock } = services
    const isForm = request.body === undefined
    // The organization stores nothing, so the request runs now, as if it had no preference. The
    // body of a form can be read only once.
    if (isForm && (await jobs.storesNothing(callerOf(request).organizationId))) return undefined
    const options = optionsOf(request)
    const create = (body: Buffer) =>
      background.createStored(callerOf(request), {
        ...jobHead(request, clock),
        body,
        endpoint: pathOf(request.url),
        model: modelOf(request),
        contentType: isForm ? (request.headers['content-type'] ?? '') : 'application/json',
        ...options,
      })
    const job = isForm
      ? await withForm({ request, reply }, { ...services, forms }, create)
      : await create(Buffer.from(JSON.stringify(request.body)))
    if (job === undefined) return undefined
    return reply
      .code(202)
      .headers({ location: `/v1/jobs/${job.id}`, 'preference-applied': 'respond-async' })
      .send(presentJob(job))
  }
}

function wantsJob({ headers, context, method, routeOptions }: FastifyRequest): boolean {
  if (method !== 'POST' || context.stored !== undefined) return false
  const { prefer } = headers
  const scope: RequiredScope | undefined = routeOptions.config.scope
  const isJobRoute = JOB_SCOPES.some((one) => one === scope)
  return isJobRoute && typeof prefer === 'string' && RESPOND_ASYNC.test(prefer)
}

function modelOf({ body, params }: FastifyRequest): string | undefined {
  const named = (body as { readonly model?: unknown } | undefined)?.model
  const inPath = (params as { readonly engine_id?: string }).engine_id
  return typeof named === 'string' ? named : inPath
}

/**
 * Reads a form into memory when there is room. Until then it is in storage, because clients send
 * forms slowly and many at a time.
 */
async function withForm<Result>(
  http: Http,
  services: TemporaryServices & { readonly forms: LargeBodies },
  use: (body: Buffer) => Promise<Result>,
): Promise<Result> {
  const signal = clientSignal(http)
  const { organizationId } = callerOf(http.request)
  const temporary = new TemporaryObjects(services, organizationId)
  let bytes = 0
  const metered = new PassThroughBytes((chunk) => {
    bytes += chunk.length
    if (bytes <= FORM_BYTES_MAX) return
    throw failure.tooLarge(`A form in the background has at most ${FORM_BYTES_MAX} bytes.`)
  })
  try {
    const { key } = await temporary.put(passThrough(http.request.raw, metered), signal)
    await http.request.context.confirmCaller?.()
    return await services.forms.with(
      () => readObject(services.store, key, FORM_BYTES_MAX),
      use,
      signal,
    )
  } catch (error) {
    throw signal.aborted ? new CancelledError() : error
  } finally {
    await temporary.discard()
  }
}

/** The options of a job in the headers: its start, deadline, priority and metadata. */
function optionsOf({ headers }: FastifyRequest) {
  const named = headers[PRIORITY_HEADER]
  const priority = JOB_PRIORITIES.find((name) => name === named)
  if (named !== undefined && priority === undefined) {
    throw invalid(PRIORITY_HEADER, 'expected flex, default or priority.')
  }
  const notBeforeMs = timeOf(headers, START_HEADER)
  const expiresAtMs = timeOf(headers, DEADLINE_HEADER)
  const metadata = metadataOf(headers[METADATA_HEADER])
  return {
    ...(priority !== undefined && { priority }),
    ...(notBeforeMs !== undefined && { notBeforeMs }),
    ...(expiresAtMs !== undefined && { expiresAtMs }),
    ...(metadata !== undefined && { metadata }),
  }
}

/** A time in Unix seconds or RFC 3339. */
function timeOf(headers: FastifyRequest['headers'], name: string): number | undefined {
  const value = headers[name]
  if (value === undefined) return undefined
  const text = String(value)
  const ms = /^\d{1,12}$/.test(text) ? Number(text) * 1000 : Date.parse(text)
  if (Number.isNaN(ms)) throw invalid(name, 'expected Unix seconds or an RFC 3339 time.')
  return ms
}

const PAIRS_MAX = 16

function metadataOf(
  value: string | readonly string[] | undefined,
): Readonly<Record<string, string>> | undefined {
  if (value === undefined) return undefined
  const fault = invalid(METADATA_HEADER, 'expected a JSON object of at most 16 short strings.')
  let parsed: unknown
  try {
    parsed = JSON.parse(String(value))
  } catch {
    throw fault
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) throw fault
  const pairs = Object.entries(parsed)
  const isShort = pairs.every(
    ([name, text]) => name.length <= 64 && typeof text === 'string' && text.length <= 512,
  )
  if (pairs.length > PAIRS_MAX || !isShort) throw fault
  return Object.fromEntries(pairs)
}

function invalid(param: string, reason: string): ServiceError {
  return failure.invalidRequest(`Invalid '${param}': ${reason}`, { param, code: 'invalid_value' })
}
