import { randomUUID } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'

import type { Redis } from 'ioredis'

import type { Clock } from '#shared/clock.ts'
import { ENVELOPE_VERSION, type JobEnvelope } from '#shared/contracts/job.ts'
import { type QueueKind, queueName } from '#shared/contracts/queues.ts'
import { CancelledError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'
import type { Logger } from '#shared/logger.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { encryptedStream, type QueueKeys } from '#shared/queue/keys.ts'
import { JobProducer } from '#shared/queue/producer.ts'
import { RedisClock } from '#shared/queue/redis-clock.ts'
import { ReplyInbox } from '#shared/queue/reply-inbox.ts'
import { assignTicket, priorityOf, type Ticket } from '#shared/queue/tickets.ts'

import {
  capacityOf,
  modelDisabled,
  modelUnavailable,
  overloaded,
  projectedWaitMs,
  restarting,
  unavailable,
} from './admission.ts'
import { adopt, keepDurable, makeDurable } from './durable-job.ts'
import type { JobEvent, SubmitRequest, Submitter } from './job-events.ts'
import { JobLedger } from './job-ledger.ts'
import { deadlineExceeded, type JobActions, OwnedJob } from './owned-job.ts'
import { type JobObserver, observeJob } from './run-job.ts'

const RESUBMIT_DELAY_MS = 100
/** An adopted job has been started before. */
const NO_TICKET: Ticket = { generation: '', position: 0 }

interface SubmitterOptions {
  /** For short commands that fail fast. */
  readonly redis: Redis
  /** Blocks on the reply stream; closed with the submitter. */
  readonly reader: Redis
  readonly keys: QueueKeys
  readonly queueDepthMax: number
  readonly clock: Clock
  readonly log: Logger
  /** Encrypts inputs and decrypts replies; without it both stay in clear text. */
  readonly cipher?: ContentCipher | undefined
  /** Record what happens to the jobs, in this order. */
  readonly observers?: readonly JobObserver[]
}

/** The submitter of one API process, with its jobs in flight. */
export interface OpenSubmitter extends Submitter {
  readonly producer: JobProducer
  readonly ledger: JobLedger
  /** Fails every open job with a retryable error; durable jobs are left to other processes. */
  failPending(): void
}

/** Opens the way into the queues: the reply stream is read before the first job goes in. */
export async function openSubmitter(options: SubmitterOptions): Promise<OpenSubmitter> {
  const { redis, reader, keys, log, cipher, observers = [] } = options
  const clock = new RedisClock(options.clock)
  await clock.sync(redis)
  const producer = new JobProducer({ redis, keys, log, cipher })
  const ledger = new JobLedger({ redis, keys, producer, clock, log })
  const inbox = new ReplyInbox({ reader, redis, keys, instanceId: randomUUID(), log, cipher })
  await inbox.start()
  ledger.start()
  const context: Context = { ...options, clock, producer, ledger, inbox, windows: new Map() }
  return {
    producer,
    ledger,
    submit<K extends QueueKind>(request: SubmitRequest<K>) {
      // From this machine's time to that of the queues.
      const deadlineAtMs = clock.now() + request.deadlineAtMs - options.clock.now()
      const events = observeJob(observers, { ...request, deadlineAtMs }, (job) =>
        runJob(context, job),
      )
      return events as AsyncGenerator<JobEvent<K>>
    },
    failPending() {
      for (const job of ledger.jobs) {
        if (job.envelope.isOwnerless !== true) job.buffer.fail(restarting())
      }
    },
    async close() {
      ledger.close()
      await inbox.close()
      await producer.close()
    },
  }
}

interface Context extends SubmitterOptions {
  readonly producer: JobProducer
  readonly ledger: JobLedger
  readonly inbox: ReplyInbox
  /** The state of each queue; bounded by the catalogue. */
  readonly windows: Map<string, AdmissionWindow>
}

async function* runJob(
  context: Context,
  request: SubmitRequest<QueueKind>,
): AsyncGenerator<JobEvent> {
  const { inbox, ledger, producer, clock } = context
  const { signal, durable } = request
  if (signal.aborted) throw new CancelledError()
  if (clock.now() >= request.deadlineAtMs) throw deadlineExceeded()
  const window = windowOf(context, request)
  const earlier = window.entering
  window.entering += 1
  let job: OwnedJob | undefined
  const onAbort = (): void => {
    job?.apply({ type: 'abandon' })
    job?.buffer.fail(new CancelledError())
  }
  try {
    try {
      const isAdopted = durable?.adopted !== undefined
      // A durable job is recorded before it is enqueued, so a predicted ticket saves nothing.
      const guess =
        durable === undefined
          ? window.predictTicket(request.organizationId, limitOf(context, request), clock.now())
          : undefined
      const isAhead = guess !== undefined
      const ask = (others: number): Promise<Ticket> =>
        requestTicket(context, request, { window, others, ownJobs: isAhead ? 1 : 0 })
      const askBehind = async (): Promise<Ticket> => {
        // All in the order of entering, so that no ticket is assigned twice.
        await setImmediate()
        // Later jobs count this one; earlier ones may have been enqueued or refused by now.
        const others = Math.min(earlier, window.entering - 1)
        // In a separate write: in the job's own write it would delay the worker that the job wakes.
        await setImmediate()
        return ask(others)
      }
      const asked = isAdopted
        ? Promise.resolve(NO_TICKET)
        : !isAhead && window.entering === 1
          ? ask(0)
          : askBehind()
      job = ownJob(context, request, guess ?? (await asked))
      // The inbox listens and the watch begins before the job can be fetched.
      const owned = job
      inbox.open(owned.envelope.jobId, (reply) => owned.onReply(reply, clock.monotonic()))
      if (isAdopted) await adopt(context, owned)
      else if (durable !== undefined) await makeDurable(context, owned)
      ledger.add(owned)
      // With a predicted ticket the job is enqueued before the answer of Redis; a refusal removes it.
      await Promise.all([asked, isAdopted ? undefined : enqueueFirst(producer, owned)])
    } finally {
      window.entering -= 1
    }
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    for await (const event of job.buffer.drain()) {
      if (event.type === 'started' && durable?.adopted === undefined) window.noteStart(job.ticket)
      yield event
    }
  } finally {
    signal.removeEventListener('abort', onAbort)
    if (job !== undefined) {
      // Nothing happens to a job that has ended; any other is stopped.
      job.apply({ type: 'abandon' })
      ledger.remove(job.envelope.jobId)
      inbox.shut(job.envelope.jobId)
      inbox.unfollow(job.envelope.replyTo)
    }
  }
}

/**
 * Assigns a ticket in the queue. Throws when it is too full, or too slow for the deadline, or when its
 * model cannot be loaded. A job that went ahead of the question counts among those that may wait, but
 * not among those before it; others are on their way into the queue.
 */
async function requestTicket(
  context: Context,
  request: SubmitRequest<QueueKind>,
  place: { readonly window: AdmissionWindow; readonly others: number; readonly ownJobs: 0 | 1 },
): Promise<Ticket> {
  const { redis, keys, clock, ledger } = context
  const { model, kind, organizationId, deadlineAtMs } = request
  const { window, others, ownJobs } = place
  if (ledger.disabled.has(model.id)) throw modelDisabled(model.id)
  if (ledger.unavailable.has(queueName(kind, model.id))) throw modelUnavailable(model.id)
  const admission = await assignTicket(redis, keys, {
    kind,
    modelId: model.id,
    organizationId,
    depthMax: limitOf(context, request) - others,
    newestStart: window.newestStart,
  }).catch((cause: unknown) => {
    throw unavailable(cause)
  })
  const before = Math.max(admission.depth - ownJobs, 0) + others
  const waitMs = projectedWaitMs(before, capacityOf(ledger.workers, model))
  const nowMs = clock.now()
  if (!admission.isAdmitted || (waitMs !== undefined && nowMs + waitMs > deadlineAtMs)) {
    throw overloaded(model, waitMs)
  }
  window.recordAssigned(organizationId, admission.ticket, admission.depth, nowMs)
  return admission.ticket
}

function limitOf({ queueDepthMax }: Context, { model }: SubmitRequest<QueueKind>): number {
  return model.options.maxQueueDepth ?? queueDepthMax
}

function ownJob(context: Context, request: SubmitRequest<QueueKind>, ticket: Ticket): OwnedJob {
  const { durable } = request
  const envelope = durable?.adopted?.envelope ?? newEnvelope(context, request)
  const priority = priorityOf(ticket, request.priorityClass ?? 'default')
  const place = { ticket, priority, nowMs: context.clock.monotonic() }
  return new OwnedJob(envelope, place, actionsOf(context), durable)
}

function newEnvelope(
  { clock, inbox, keys, cipher }: Context,
  request: SubmitRequest<QueueKind>,
): JobEnvelope {
  const jobId = request.jobId ?? randomId('job_')
  const isDurable = request.durable !== undefined
  const jobStream = keys.jobReplies(jobId)
  const ownStream = cipher === undefined ? jobStream : encryptedStream(jobStream)
  return {
    version: ENVELOPE_VERSION,
    jobId,
    epoch: 1,
    kind: request.kind,
    modelId: request.model.id,
    organizationId: request.organizationId,
    replyTo: isDurable ? ownStream : inbox.replyTo,
    ...(isDurable && { isOwnerless: true }),
    enqueuedAtMs: clock.now(),
    deadlineAtMs: request.deadlineAtMs,
    ...(request.trace !== undefined && { trace: request.trace }),
    input: request.input,
  }
}

async function enqueueFirst(producer: JobProducer, job: OwnedJob): Promise<void> {
  try {
    await producer.enqueue(job.envelope, job.priority)
  } catch (cause) {
    // It may have arrived all the same: the caller's `finally` cancels it.
    throw unavailable(cause)
  }
}

function actionsOf(context: Context): JobActions {
  const { producer, redis, clock, log, observers = [] } = context
  const quietly = (work: Promise<unknown>, operation: string): void => {
    work.catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error)
      log.debug({ operation, reason }, 'left to expire')
    })
  }
  const resubmit = (job: OwnedJob): void => {
    const { epoch } = job.life
    const isDurable = job.envelope.isOwnerless === true
    const kept = isDurable ? keepDurable(redis, job) : Promise.resolve()
    kept
      .then(() => producer.enqueue(job.envelope, 1))
      .catch(() => {
        // Redis is away: the deadline bounds how often this is tried.
        setTimeout(() => {
          const isCurrent = job.life.epoch === epoch && job.life.phase === 'waiting'
          if (isCurrent && clock.now() < job.envelope.deadlineAtMs) resubmit(job)
        }, RESUBMIT_DELAY_MS)
      })
  }
  return {
    // It has waited already, so it goes to the front.
    resubmit(job) {
      log.info(
        { operation: 'job.resubmit', jobId: job.envelope.jobId, epoch: job.life.epoch },
        'job submitted again',
      )
      for (const observer of observers) observer.onResubmit?.(job.envelope)
      resubmit(job)
    },
    cancel: (job, epoch) => quietly(producer.cancel({ ...job.envelope, epoch }), 'job.cancel'),
    deadLetter(job) {
      const { jobId, modelId, organizationId } = job.envelope
      log.error(
        { operation: 'job.deadLetter', jobId, modelId, organizationId },
        'job kills workers',
      )
      quietly(producer.recordDeadJob(job.envelope, 'worker_crashed'), 'job.deadLetter')
    },
  }
}

function windowOf(
  { windows }: Context,
  { kind, model }: SubmitRequest<QueueKind>,
): AdmissionWindow {
  const name = `${kind}.${model.id}`
  let window = windows.get(name)
  if (window === undefined) {
    window = new AdmissionWindow()
    windows.set(name, window)
  }
  return window
}

/** Redis resets the tickets of a queue that is empty and assigned none for longer than this. */
const GUESS_MS_MAX = 900
const ORGANIZATIONS_MAX = 1000

/** The admission window of one queue, as this process sees it. */
export class AdmissionWindow {
  /** Jobs that are admitted but not yet counted in the queue's depth. */
  entering = 0
  #newestStart: Ticket | undefined
  #generation = ''
  #dealtAtMs = Number.NEGATIVE_INFINITY
  #depth = 0
  readonly #lastPositions = new Map<string, number>()

  /** The newest ticket that was seen to start. */
  get newestStart(): Ticket | undefined {
    return this.#newestStart
  }

  /**
   * Predicts the ticket that the queue would assign now; undefined when that is not possible, or
   * when the queue is so full that it must be asked first. Saves one round trip.
   */
  predictTicket(organizationId: string, depthMax: number, nowMs: number): Ticket | undefined {
    const isStale = nowMs - this.#dealtAtMs > GUESS_MS_MAX
    if (isStale || 2 * (this.#depth + this.entering) > depthMax) return undefined
    const current =
      this.#newestStart?.generation === this.#generation ? this.#newestStart.position : 0
    const position = Math.max(current, this.#lastPositions.get(organizationId) ?? 0) + 1
    this.#lastPositions.set(organizationId, position)
    return { generation: this.#generation, position }
  }

  /** Records a ticket that the queue assigned. */
  recordAssigned(
    organizationId: string,
    { generation, position }: Ticket,
    depth: number,
    nowMs: number,
  ): void {
    if (generation !== this.#generation || this.#lastPositions.size >= ORGANIZATIONS_MAX) {
      this.#lastPositions.clear()
    }
    this.#generation = generation
    this.#depth = depth
    this.#dealtAtMs = nowMs
    this.#lastPositions.set(
      organizationId,
      Math.max(position, this.#lastPositions.get(organizationId) ?? 0),
    )
  }

  noteStart(start: Ticket): void {
    const newest = this.#newestStart
    const isOlder = newest?.generation === start.generation && newest.position >= start.position
    if (!isOlder) this.#newestStart = start
  }
}
