import { randomUUID } from 'node:crypto'

import type { Redis } from 'ioredis'

import type { Clock } from '#shared/clock.ts'
import type { QueueKind } from '#shared/contracts/job.ts'
import { ENVELOPE_VERSION, type JobEnvelope } from '#shared/contracts/job.ts'
import { CancelledError } from '#shared/errors.ts'
import { randomId } from '#shared/ids.ts'
import type { Logger } from '#shared/logger.ts'
import type { ContentCipher } from '#shared/queue/content-cipher.ts'
import { DeadLetters } from '#shared/queue/dead-letters.ts'
import { encryptedStream, type QueueKeys } from '#shared/queue/keys.ts'
import { JobProducer, priorityOf, type Ticket } from '#shared/queue/producer.ts'
import { RedisClock } from '#shared/queue/redis-clock.ts'
import { ReplyInbox } from '#shared/queue/reply-inbox.ts'

import { Admission, type Entry, restarting, unavailable } from './admission.ts'
import { adopt, keepDurable, makeDurable } from './durable-job.ts'
import { HeldBytes } from './held-bytes.ts'
import { deadlineExceeded, type JobActions, OwnedJob } from './inference-job.ts'
import { JobLedger } from './job-ledger.ts'
import {
  type JobEvent,
  type JobObserver,
  observeJob,
  type SubmitRequest,
  type Submitter,
} from './observers.ts'

const RESUBMIT_DELAY_MS = 100
/** An adopted job was admitted before, so it needs no ticket. */
const NO_TICKET: Ticket = { generation: '', position: 0 }

/** The connections and limits of a submitter. */
export interface SubmitterOptions {
  /** For short commands that fail fast. */
  readonly redis: Redis
  /** Blocks on the reply stream; closed with the submitter. */
  readonly reader: Redis
  readonly keys: QueueKeys
  /**
   * The server with the records of the whole installation, if it is not the one of these queues.
   * Then the submitter also opens while the server of its queues is away.
   */
  readonly main?: { readonly redis: Redis; readonly keys: QueueKeys } | undefined
  readonly queueDepthMax: number
  /** Limits the bytes in Redis of the inputs of this process's unfinished jobs. */
  readonly queuedBytesMax: number
  readonly clock: Clock
  readonly log: Logger
  /** Encrypts inputs and decrypts replies; without it both stay in clear text. */
  readonly cipher?: ContentCipher | undefined
  /**
   * Whether the input of an organization's dead letter may be kept; no inputs are kept if absent.
   */
  readonly mayKeepInput?: (organizationId: string) => Promise<boolean>
  /** Observers of the jobs, in this order. */
  readonly observers?: readonly JobObserver[]
}

/** The submitter of one API process, with its jobs in flight. */
export interface OpenSubmitter extends Submitter {
  readonly producer: JobProducer
  readonly ledger: JobLedger
  readonly deadLetters: DeadLetters
  /** Fails every open job with a retryable error; durable jobs are left to other processes. */
  failPending(): void
}

/** Opens a submitter; the reply stream is read before the first job is enqueued. */
export async function openSubmitter(options: SubmitterOptions): Promise<OpenSubmitter> {
  const { redis, reader, keys, log, cipher, observers = [], main = { redis, keys } } = options
  const clock = new RedisClock(options.clock)
  const producer = new JobProducer({ redis, keys, log, cipher })
  const deadLetters = new DeadLetters({ ...main, cipher })
  const ledger = new JobLedger({ redis, keys, main, producer, clock, log })
  const inbox = new ReplyInbox({ reader, redis, keys, instanceId: randomUUID(), log, cipher })
  await Promise.all([clock.sync(redis), inbox.start()]).catch(async (error: unknown) => {
    if (options.main !== undefined) return
    await inbox.close()
    throw error
  })
  ledger.start()
  const { queueDepthMax } = options
  const admission = new Admission({ redis, keys, clock, ledger, queueDepthMax })
  const queuedBytes = new HeldBytes(options.queuedBytesMax)
  const parts = { clock, producer, ledger, inbox, admission, queuedBytes, deadLetters }
  const context: Context = { ...options, ...parts }
  return {
    producer,
    ledger,
    deadLetters,
    submit<K extends QueueKind>(request: SubmitRequest<K>) {
      // Converts from this machine's clock to that of the queues.
      const deadlineAtMs = clock.now() + request.deadlineAtMs - options.clock.now()
      const events = observeJob(observers, { ...request, deadlineAtMs }, (job) =>
        runJob(context, onBase(job)),
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

/** Turns the job of a model with an adapter into one of its base model, which loads the adapter. */
function onBase(request: SubmitRequest<QueueKind>): SubmitRequest<QueueKind> {
  const { model, input } = request
  if (model.adapter === undefined) return request
  const { baseId: id, source } = model.adapter
  const reads = input.task === 'generate' || input.task === 'score'
  const adapter = { id: model.id, source }
  return {
    ...request,
    model: { ...model, id },
    input: reads ? ({ ...input, adapter } as typeof input) : input,
  }
}

interface Context extends SubmitterOptions {
  readonly producer: JobProducer
  readonly deadLetters: DeadLetters
  readonly ledger: JobLedger
  readonly inbox: ReplyInbox
  readonly admission: Admission
  readonly queuedBytes: HeldBytes
}

/**
 * Admits and enqueues a job, yields the replies of its worker, and stops it when its consumer
 * stops.
 */
async function* runJob(
  context: Context,
  request: SubmitRequest<QueueKind>,
): AsyncGenerator<JobEvent> {
  const { signal } = request
  if (signal.aborted) throw new CancelledError()
  if (context.clock.now() >= request.deadlineAtMs) throw deadlineExceeded()
  const { job, entry, stop } = await startJob(context, request)
  const onAbort = (): void => {
    job.apply({ type: 'abandon' })
    job.buffer.fail(new CancelledError())
  }
  try {
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    for await (const event of job.buffer.drain()) {
      if (event.type === 'started') entry?.noteStart(job.ticket)
      yield event
    }
  } finally {
    signal.removeEventListener('abort', onAbort)
    stop()
  }
}

/** A job in its queue. */
interface StartedJob {
  readonly job: OwnedJob
  /** Undefined for the job that another process left, which was admitted before. */
  readonly entry: Entry | undefined
  /** Stops the job unless it has ended, and drops its state. */
  stop(): void
}

/** Admits and enqueues a job. Its serialized input is not kept while it runs. */
async function startJob(context: Context, request: SubmitRequest<QueueKind>): Promise<StartedJob> {
  const { admission, inbox, ledger } = context
  const input = JSON.stringify(request.input)
  const releaseBytes = holdBytes(context, request, input)
  const entry = request.durable?.adopted === undefined ? admission.enter(request) : undefined
  let job: OwnedJob | undefined
  const stop = (): void => {
    releaseBytes()
    if (job === undefined) return
    job.apply({ type: 'abandon' })
    ledger.remove(job.envelope.jobId)
    inbox.shut(job.envelope.jobId)
    inbox.unfollow(job.envelope.replyTo)
  }
  try {
    job = ownJob(context, request, (await entry?.admitted) ?? NO_TICKET)
    await launch(context, request, { job, entry, input })
    return { job, entry, stop }
  } catch (error) {
    stop()
    throw error
  } finally {
    entry?.leave()
  }
}

/** Reserves bytes for a job's input; call the result to release them. Throws above the limit. */
function holdBytes(
  { queuedBytes }: Context,
  { organizationId, durable }: SubmitRequest<QueueKind>,
  input: string,
): () => void {
  // Redis has a second copy of a durable job, from which other processes can adopt it.
  const bytes = Buffer.byteLength(input) * (durable === undefined ? 1 : 2)
  const holding = queuedBytes.open(organizationId)
  if (durable?.adopted === undefined) holding.add(bytes)
  else holding.addStored(bytes)
  return holding.end
}

/**
 * Puts a job into its queue. The inbox and the ledger know the job before a worker can fetch it.
 */
async function launch(
  context: Context,
  { durable }: SubmitRequest<QueueKind>,
  {
    job,
    entry,
    input,
  }: { readonly job: OwnedJob; readonly entry: Entry | undefined; readonly input: string },
): Promise<void> {
  const { clock, inbox, ledger, producer } = context
  inbox.open(job.envelope.jobId, (reply) => job.onReply(reply, clock.monotonic()))
  if (entry === undefined) await adopt(context, job)
  else if (durable !== undefined) await makeDurable(context, job)
  ledger.add(job)
  if (entry !== undefined) await enqueueFirst(producer, job, input)
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

async function enqueueFirst(producer: JobProducer, job: OwnedJob, input: string): Promise<void> {
  try {
    await producer.enqueue(job.envelope, job.priority, input)
  } catch (cause) {
    // The job may still have been enqueued: the caller stops it.
    throw unavailable(cause)
  }
}

function actionsOf(context: Context): JobActions {
  const { producer, redis, clock, log, observers = [] } = context
  const { deadLetters, mayKeepInput = async () => false } = context
  const quietly = (work: Promise<unknown>, operation: string): void => {
    work.catch((error: unknown) => {
      const reason = error instanceof Error ? error.message : String(error)
      log.debug({ operation, reason }, 'left to expire')
    })
  }
  const resubmit = (job: OwnedJob): void => {
    const { epoch } = job.life
    const isDurable = job.envelope.isOwnerless === true
    const kept: Promise<unknown> = isDurable ? keepDurable(redis, job) : Promise.resolve()
    kept
      .then(() => producer.enqueue(job.envelope, 1))
      .catch(() => {
        // Redis is unreachable: the deadline bounds the retries.
        setTimeout(() => {
          const isCurrent = job.life.epoch === epoch && job.life.phase === 'waiting'
          if (isCurrent && clock.now() < job.envelope.deadlineAtMs) resubmit(job)
        }, RESUBMIT_DELAY_MS)
      })
  }
  return {
    // The job has already waited in the queue once, so it goes to the front.
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
      // If the database does not answer, only the record is kept.
      const recorded = mayKeepInput(organizationId)
        .catch(() => false)
        .then((isKept) => deadLetters.record(job.envelope, 'worker_crashed', isKept))
      quietly(recorded, 'job.deadLetter')
    },
  }
}
