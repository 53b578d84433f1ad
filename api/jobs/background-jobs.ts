import type { FastifyRequest } from 'fastify'

import type { BodyRoom } from '#api/http/body-memory.ts'
import { requireUncountedCaller } from '#api/limits/own-limits.ts'
import { storageLimitExceeded } from '#api/stored/stored-bytes-store.ts'
import { checkMetadata } from '#api/v1/metadata-field.ts'
import {
  answerHeadOf,
  type Caller,
  type ContentsReader,
  noSuchModel,
} from '#api/v1/request-context.ts'
import type { Clock } from '#shared/clock.ts'
import { JOB_PRIORITIES, type JobPriority } from '#shared/db/schema/jobs.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { packContent, unpackContent } from '#shared/stored-content.ts'
import { Turns } from '#shared/turns.ts'

import type { EventLog, LogPage } from './event-log.ts'
import { splitEvents } from './event-log.ts'
import { contextOf, hasEnded, resultContextOf } from './job.ts'
import type { JobStore, JobSummary } from './job-store.ts'

/** The deadline of a job whose request sets none. */
const DEADLINE_MS = 86_400_000
const DEADLINE_MS_MAX = 7 * 86_400_000
/** The longest model name, because lists of jobs contain it. */
const MODEL_NAME_MAX = 1000
const POLL_MS = 100
const SLOW_POLL_MS = 1000
/** The poll interval grows to this share of the wait so far. */
const WAITED_PART = 0.1
/**
 * Event streams that query the row of their job at the same time; other requests need connections
 * too.
 */
const LOOKUPS_AT_ONCE = 2

/** The owner of a job. A job without a key and a user belongs to the installation. */
export interface JobOwner extends Pick<Caller, 'limits' | 'isAnonymous'> {
  readonly organizationId: string
  readonly apiKeyId?: string | null
  readonly userId?: string | null
  /** The models that it may use; null means all. */
  readonly modelIds: readonly string[] | null
}

/** A request that becomes a job. */
interface JobOptions {
  readonly id: string
  readonly createdAtMs: number
  /** Whether a process that died may have created the job already; then there is no second one. */
  readonly isRepeatable?: boolean
  readonly body: Buffer
  readonly contentType: string
  /** The path that the body is sent to. */
  readonly endpoint: string
  readonly model: string | undefined
  readonly responseId?: string
  readonly metadata?: Readonly<Record<string, string>> | null
  readonly notBeforeMs?: number
  readonly expiresAtMs?: number
  readonly priority?: JobPriority
}

interface BackgroundServices {
  readonly jobs: JobStore
  readonly events: EventLog
  readonly clock: Clock
  readonly cipher?: ContentCipher | undefined
  /** Unfinished jobs that one organization may have. */
  readonly openJobsMax: number
  /** Bytes that the requests of all unfinished jobs may have together. */
  readonly openJobBytesMax: number
  /** Announces a new job. */
  readonly wake: () => void
}

/**
 * The id and time of a request's new job; the same when another process repeats the request under
 * its Idempotency-Key.
 */
export function jobHead(
  request: Pick<FastifyRequest, 'context'>,
  clock: Pick<Clock, 'now'>,
): Pick<JobOptions, 'id' | 'createdAtMs' | 'isRepeatable'> {
  const { durable } = request.context
  return {
    id: answerHeadOf(request, clock).newId('job_'),
    createdAtMs: durable?.startedAtMs ?? clock.now(),
    isRepeatable: durable !== undefined,
  }
}

/** Changes the priority of a waiting job. Throws `conflict` when the job no longer waits. */
export async function prioritize(
  jobs: JobStore,
  { organizationId, id }: Pick<JobSummary, 'organizationId' | 'id'>,
  priority: JobPriority,
): Promise<JobSummary> {
  const isChanged = await jobs.prioritize(organizationId, id, priority)
  const job = await jobs.find(organizationId, id)
  if (job === undefined) throw failure.notFound(`No such job: ${id.slice(0, 64)}`, { param: 'id' })
  if (isChanged) return job
  throw failure.conflict(`Cannot change the priority of a job with status '${job.state}'.`, {
    shouldRetry: false,
  })
}

/** Creates background jobs and reads their results. */
export class BackgroundJobs {
  readonly #services: BackgroundServices
  readonly #lookups = new Turns(LOOKUPS_AT_ONCE)

  constructor(services: BackgroundServices) {
    this.#services = services
  }

  /** Stores a request as a job. Throws when its organization has too many unfinished jobs. */
  async create(owner: JobOwner, options: JobOptions): Promise<JobSummary> {
    const job = await this.#create(owner, options, { onlyStored: false })
    if (job === undefined) throw new Error('a job was not stored')
    return job
  }

  /** The same; undefined when the organization's policy is to store nothing. */
  createStored(owner: JobOwner, options: JobOptions): Promise<JobSummary | undefined> {
    return this.#create(owner, options, { onlyStored: true })
  }

  async #create(
    owner: JobOwner,
    options: JobOptions,
    { onlyStored }: { readonly onlyStored: boolean },
  ): Promise<JobSummary | undefined> {
    const { jobs, cipher, openJobsMax, openJobBytesMax, wake } = this.#services
    requireUncountedCaller(owner, 'background jobs')
    const { organizationId, apiKeyId, userId, modelIds } = owner
    const { id, createdAtMs, metadata, model, priority = 'default' } = options
    checkMetadata(metadata)
    if (model !== undefined && model.length > MODEL_NAME_MAX) throw noSuchModel(model)
    const earlier = options.isRepeatable === true && (await jobs.find(organizationId, id))
    if (earlier) return earlier
    const notBeforeMs = Math.max(options.notBeforeMs ?? createdAtMs, createdAtMs)
    const expiresAtMs = options.expiresAtMs ?? notBeforeMs + DEADLINE_MS
    checkTimes({ createdAtMs, notBeforeMs, expiresAtMs })
    const job = await jobs.create(
      {
        id,
        organizationId,
        contentType: options.contentType,
        metadata: metadata ?? null,
        apiKeyId: apiKeyId ?? null,
        userId: userId ?? null,
        modelIds: modelIds === null ? null : [...modelIds],
        endpoint: options.endpoint,
        request: await packContent(options.body, cipher, contextOf(id)),
        model: model ?? null,
        responseId: options.responseId ?? null,
        priority: JOB_PRIORITIES.indexOf(priority),
        createdAt: new Date(createdAtMs),
        notBefore: new Date(notBeforeMs),
        expiresAt: new Date(expiresAtMs),
      },
      { openMax: openJobsMax, openBytesMax: openJobBytesMax, onlyStored },
    )
    if (job === 'unstored') return undefined
    if (job === 'no room') throw storageLimitExceeded()
    if (typeof job === 'string') throw tooMuch(job, { openJobsMax, openJobBytesMax })
    if (notBeforeMs === createdAtMs) wake()
    return job
  }

  /** The answer of an ended job; undefined when there is none. */
  async resultOf(
    { organizationId }: ContentsReader,
    { id }: JobSummary,
  ): Promise<Buffer | undefined> {
    const packed = await this.#services.jobs.readResult({ organizationId, id })
    if (packed === undefined) return undefined
    return unpackContent(packed, this.#services.cipher, resultContextOf(id))
  }

  /**
   * The events of a job from a position on, as they occur, in complete texts. Ends with the job or
   * when the signal aborts.
   */
  async *eventsOf({
    reader,
    job,
    from,
    signal,
  }: {
    readonly reader: EventReader
    readonly job: JobSummary
    readonly from: number
    readonly signal: AbortSignal
  }): AsyncGenerator<string> {
    const { events, jobs, clock } = this.#services
    let place = from
    let askedAtMs = Number.NEGATIVE_INFINITY
    let waitsSinceMs = clock.monotonic()
    while (!signal.aborted) {
      const page: LogPage = await events.read(job.id, place)
      if (page.events.length > 0) yield page.events.join('')
      place += page.events.length
      if (page.isEnded) return
      if (page.events.length > 0) {
        waitsSinceMs = clock.monotonic()
        continue
      }
      if (clock.monotonic() - askedAtMs >= SLOW_POLL_MS) {
        askedAtMs = clock.monotonic()
        const now = await this.#lookups.run(() => jobs.find(job.organizationId, job.id))
        if (now === undefined) return
        if (hasEnded(now)) {
          // The log is deleted soon after the end; the row has all events.
          const left = await this.#storedEvents(reader, now, place)
          if (left !== '') yield left
          return
        }
      }
      const waitedMs = clock.monotonic() - waitsSinceMs
      await pause(Math.min(SLOW_POLL_MS, Math.max(POLL_MS, waitedMs * WAITED_PART)), signal)
    }
  }

  /** The events that are stored with an ended job, from a position on. */
  async #storedEvents(reader: EventReader, job: JobSummary, place: number): Promise<string> {
    const room = await reader.reserve()
    const text = (await this.resultOf(reader, job))?.toString('utf8') ?? ''
    const left = splitEvents(text).events.slice(place).join('')
    room?.shrinkTo(left.length)
    return left
  }
}

/** A reader of events, which reserves memory once all of them are read together. */
interface EventReader extends ContentsReader {
  reserve(): Promise<BodyRoom | undefined>
}

/** The refusal of a job that would exceed a limit on its organization's unfinished jobs. */
function tooMuch(
  reason: 'full' | 'too large',
  limits: { readonly openJobsMax: number; readonly openJobBytesMax: number },
): ServiceError {
  const message =
    reason === 'full'
      ? `Your organization has ${limits.openJobsMax} unfinished background jobs, the most that are allowed.`
      : `The requests of your organization's unfinished background jobs may have ${limits.openJobBytesMax} bytes together, as they are stored.`
  return failure.rateLimited(`${message} Wait for one to end, or cancel one.`, {
    code: reason === 'full' ? 'job_limit_exceeded' : 'job_bytes_limit_exceeded',
    retryAfterSeconds: 60,
    shouldRetry: false,
  })
}

/** Waits for the given time or until the signal aborts. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', done, { once: true })
  })
}

function checkTimes(times: {
  readonly createdAtMs: number
  readonly notBeforeMs: number
  readonly expiresAtMs: number
}): void {
  const { createdAtMs, notBeforeMs, expiresAtMs } = times
  if (expiresAtMs > notBeforeMs && notBeforeMs <= createdAtMs + DEADLINE_MS_MAX) {
    if (expiresAtMs <= notBeforeMs + DEADLINE_MS_MAX) return
  }
  throw failure.invalidRequest(
    'The deadline of a job must be after its start, and both at most seven days away.',
    { param: 'x-millrace-deadline', code: 'invalid_value' },
  )
}
