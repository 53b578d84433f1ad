import { randomUUID } from 'node:crypto'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

import { FairSlots } from '#api/v1/fair-slots.ts'
import { PollLoop } from '#api/v1/poll-loop.ts'
import type { StoredRequest } from '#api/v1/request-context.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { packContent, unpackContent } from '#shared/stored-content.ts'

import { type EventLog, splitEvents } from './event-log.ts'
import { contextOf, resultContextOf } from './job.ts'
import type { ClaimedJob, JobEnding, JobStore, JobSummary } from './job-store.ts'
import { LargeBodies } from './large-bodies.ts'

/** An answer of the process to one of its own requests. */
interface OwnAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: Readable
}

/** Sends a stored request through the routes of this process. */
export type SendStored = (
  job: JobSummary,
  body: Buffer,
  run: Pick<StoredRequest, 'signal' | 'leaveSlot'>,
) => Promise<OwnAnswer>

interface RunnerServices {
  readonly jobs: JobStore
  readonly events: EventLog
  readonly send: SendStored
  readonly cipher?: ContentCipher | undefined
  readonly log: Logger
}

/**
 * Jobs that one process runs at a time: one organization can take 48, which leaves slots for
 * others.
 */
const SLOTS = { total: 64, reserved: 16 }
/** The same including jobs that left their slots and only follow a worker. */
const JOBS_AT_ONCE = 1024
/** The jobs of a dead process are adopted after this time. */
const LEASE_SECONDS = 10
const RENEW_INTERVAL_MS = 1000
const SETTLE_INTERVAL_MS = 1000
const RESULT_BYTES_MAX = 64 * 1024 * 1024
/** Smaller decrypted bodies are held without a limit for all together. */
const SMALL_BODY_BYTES_MAX = 1024 * 1024
const LARGE_BODIES_BYTES_MAX = 128 * 1024 * 1024
const RETRY_MS_MIN = 1000
const RETRY_MS_MAX = 60_000
const FINISH_TRIES = 5
const FINISH_PAUSE_MS = 1000
const HEADERS_KEPT = [
  ...['content-type', 'x-queue-time-ms', 'x-inference-time-ms', 'location'],
  'x-millrace-dropped-messages',
]

type Run = Parameters<SendStored>[2]

interface Running {
  readonly abort: AbortController
  readonly end: Promise<void>
}

/**
 * Runs the background jobs of a database together with all other processes. A job is its stored
 * request, which the process sends to itself under the idempotency key of the job. A process that
 * adopts a job from a dead one therefore continues the same runs of the workers and produces the
 * same answer.
 */
export class JobRunner {
  readonly #services: RunnerServices
  readonly #leaseId = randomUUID()
  readonly #running = new Map<string, Running>()
  readonly #slots = new FairSlots(SLOTS)
  readonly #largeBodies = new LargeBodies(LARGE_BODIES_BYTES_MAX)
  readonly #loop: PollLoop
  readonly #renewal: NodeJS.Timeout
  #settledAtMs = Number.NEGATIVE_INFINITY

  constructor(services: RunnerServices) {
    this.#services = services
    this.#loop = new PollLoop(() => this.#look())
    this.#renewal = setInterval(() => void this.#renew(), RENEW_INTERVAL_MS)
    this.#renewal.unref()
  }

  /** Looks for jobs as soon as possible. */
  wake(): void {
    this.#loop.wake()
  }

  /** Claims no more jobs, and releases the running ones to other processes after a grace period. */
  async stop(graceMs: number): Promise<void> {
    await this.#loop.stop()
    const ends = Promise.all([...this.#running.values()].map(({ end }) => end))
    const grace = new AbortController()
    await Promise.race([
      ends,
      sleep(graceMs, undefined, { signal: grace.signal }).catch(() => {
        // All jobs have ended.
      }),
    ])
    grace.abort()
    clearInterval(this.#renewal)
    if (this.#running.size > 0) await this.#services.jobs.releaseAll(this.#leaseId)
  }

  async #look(): Promise<boolean> {
    const { jobs, log } = this.#services
    try {
      await this.#settle()
      const { room } = this.#slots
      if (room.limit === 0) return false
      const claimed = await jobs.claim(this.#leaseId, LEASE_SECONDS, room)
      for (const job of claimed) this.#start(job)
      return claimed.length > 0
    } catch (error) {
      log.warn({ operation: 'job.look', err: error }, 'background jobs wait')
      return false
    }
  }

  /** Checks deadlines every second. */
  async #settle(): Promise<void> {
    const nowMs = performance.now()
    if (nowMs - this.#settledAtMs < SETTLE_INTERVAL_MS) return
    this.#settledAtMs = nowMs
    await this.#services.jobs.settle()
  }

  /**
   * Stops cancelled jobs. A job whose lease was lost continues: the process that adopted it waits
   * for this answer under the idempotency key.
   */
  async #renew(): Promise<void> {
    if (this.#running.size === 0) return
    try {
      const cancelled = await this.#services.jobs.renew(this.#leaseId, LEASE_SECONDS)
      for (const id of cancelled) this.#running.get(id)?.abort.abort()
    } catch (error) {
      this.#services.log.warn({ operation: 'job.renew', err: error }, 'leases were not renewed')
    }
  }

  #start(job: ClaimedJob): void {
    if (this.#running.has(job.id)) return
    const abort = new AbortController()
    const freeSlot = this.#slots.take(job.organizationId)
    const leaveSlot = (): void => {
      if (this.#running.size > JOBS_AT_ONCE) throw tooManyWait()
      freeSlot()
      this.#loop.wake()
    }
    const end = this.#run(job, { signal: abort.signal, leaveSlot })
      .catch((error: unknown) => {
        // The lease expires, and the job runs again.
        const fields = { operation: 'job.run', jobId: job.id, err: error }
        this.#services.log.warn(fields, 'background job left to its lease')
      })
      .finally(() => {
        this.#running.delete(job.id)
        freeSlot()
        this.#loop.wake()
      })
    this.#running.set(job.id, { abort, end })
  }

  async #run(job: ClaimedJob, run: Run): Promise<void> {
    let ending: JobEnding | undefined
    try {
      ending = await this.#send(job, run)
    } catch (error) {
      if (!run.signal.aborted) throw error
    }
    if (run.signal.aborted) ending = { state: 'cancelled' }
    if (ending === undefined) {
      const delayMs = Math.min(RETRY_MS_MAX, RETRY_MS_MIN * 2 ** Math.min(job.attempts - 1, 10))
      await this.#services.jobs.release(job.id, this.#leaseId, delayMs)
    } else {
      await this.#finish(job, ending)
    }
  }

  /** Sends the request of a job once this process may hold its body; returns how the job ended. */
  async #send(job: ClaimedJob, run: Run): Promise<JobEnding | undefined> {
    const { cipher, jobs, send } = this.#services
    const context = contextOf(job.id)
    const use = async (body: Buffer): Promise<JobEnding | undefined> => {
      const answer = await send(job, body, run)
      return isEventStream(answer) ? this.#record(job, answer) : this.#collect(job, answer)
    }
    const small =
      job.request === null
        ? undefined
        : await unpackContent(job.request, cipher, context, SMALL_BODY_BYTES_MAX)
    if (small !== undefined) return use(small)
    const read = async () => unpackContent(await jobs.readRequest(job), cipher, context)
    return this.#largeBodies.with(read, use, run.signal)
  }

  /** Appends the events of a streamed answer to the log as they arrive. */
  async #record(job: JobSummary, { status, headers, body }: OwnAnswer): Promise<JobEnding> {
    const { events: log } = this.#services
    // A process that died has logged the first events; a second run of the same request sends the
    // same ones.
    const logged = await log.size(job.id)
    const all: string[] = []
    let next = logged
    let rest = ''
    body.setEncoding('utf8')
    let length = 0
    for await (const chunk of body) {
      length += String(chunk).length
      if (length > RESULT_BYTES_MAX) return TOO_LARGE
      const { events, rest: open } = splitEvents(rest + String(chunk))
      rest = open
      all.push(...events)
      if (next >= all.length) continue
      await log.append(job.id, next, all)
      next = all.length
    }
    const text = all.join('')
    const error = failureOf(all)
    const state =
      error !== undefined ? 'failed' : INCOMPLETE.test(text) ? 'incomplete' : 'completed'
    const result = await packContent(text, this.#services.cipher, resultContextOf(job.id))
    return { state, status, headers: kept(headers), result, ...(error !== undefined && { error }) }
  }

  /** Undefined when the failure is temporary. */
  async #collect(
    job: JobSummary,
    { status, headers, body }: OwnAnswer,
  ): Promise<JobEnding | undefined> {
    const chunks: Buffer[] = []
    let bytes = 0
    for await (const chunk of body) {
      bytes += (chunk as Buffer).length
      if (bytes <= RESULT_BYTES_MAX) chunks.push(chunk as Buffer)
    }
    if (bytes > RESULT_BYTES_MAX) return TOO_LARGE
    const plain = Buffer.concat(chunks)
    const error = status < 400 ? undefined : errorOf(plain)
    if (error !== undefined && mayPass(status, headers)) return undefined
    const result = await packContent(plain, this.#services.cipher, resultContextOf(job.id))
    const ending = { status, headers: kept(headers), result }
    return error === undefined
      ? { state: 'completed', ...ending }
      : { state: 'failed', error, ...ending }
  }

  /** Storing a result is retried a few times, because the work behind it is done. */
  async #finish(job: JobSummary, ending: JobEnding): Promise<void> {
    const { jobs, events } = this.#services
    for (let tries = 1; ; tries += 1) {
      try {
        await jobs.finish(job.id, this.#leaseId, ending)
        await events.end(job.id)
        return
      } catch (error) {
        if (tries === FINISH_TRIES || this.#loop.isStopping) throw error
        await sleep(FINISH_PAUSE_MS)
      }
    }
  }
}

const TOO_LARGE: JobEnding = {
  state: 'failed',
  error: {
    code: 'result_too_large',
    message: `The result has more than ${RESULT_BYTES_MAX} bytes.`,
  },
}
/** The refusal of a run that would only wait for a worker; the job is retried later. */
function tooManyWait(): ServiceError {
  return failure.overloaded('Too many jobs of this process wait for workers.', {
    code: 'server_is_overloaded',
    retryAfterSeconds: 60,
    shouldRetry: true,
  })
}

const INCOMPLETE = /^event: response\.incomplete\r?$/m

function isEventStream({ status, headers }: OwnAnswer): boolean {
  return status === 200 && headers['content-type']?.startsWith('text/event-stream') === true
}

function kept(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(
    HEADERS_KEPT.flatMap((name) => (headers[name] === undefined ? [] : [[name, headers[name]]])),
  )
}

/** Whether the request may succeed later, after a limit or a temporary failure of the service. */
function mayPass(status: number, headers: Readonly<Record<string, string>>): boolean {
  if (headers['x-should-retry'] === 'false') return false
  return status === 429 || status === 408 || status >= 500
}

function errorOf(body: Buffer): { code: string; message: string } {
  try {
    const { error } = JSON.parse(body.toString('utf8'))
    const code = error.code ?? error.type ?? 'server_error'
    return { code: String(code), message: String(error.message) }
  } catch {
    return { code: 'server_error', message: 'The request could not be completed.' }
  }
}

/** The failure that ended a stream early. */
function failureOf(events: readonly string[]): { code: string; message: string } | undefined {
  const last = events.findLast((event) => /^(data: \{"error":|event: error$)/m.test(event))
  if (last === undefined) return undefined
  const data = last.slice(last.indexOf('data: ') + 'data: '.length)
  const parsed = JSON.parse(data)
  return errorOf(Buffer.from(JSON.stringify({ error: parsed.error ?? parsed })))
}
