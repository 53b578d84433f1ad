import { randomUUID } from 'node:crypto'

import type { Redis } from 'ioredis'

import type { Clock } from '#shared/clock.ts'
import { type JobEnvelope, queuedJobId } from '#shared/contracts/job.ts'
import type { ReplyBody } from '#shared/contracts/reply.ts'
import { CancelledError, failure, ServiceError, toWireError } from '#shared/errors.ts'
import type { Logger } from '#shared/logger.ts'
import { judgeFetched } from '#shared/queue/job-life.ts'
import type { QueueKeys } from '#shared/queue/keys.ts'
import type { ReplySource, ReplyWriter } from '#shared/queue/reply-writer.ts'
import type { JobReplies } from '#workers/processors/processor-row.ts'
import type { ObservedRun, RunObserver } from '#workers/telemetry/run-observer.ts'

import { IsolationGate, JobClaims, type Passage } from './job-claims.ts'

/** An owner sends a heartbeat every 300 ms; after a flush of Redis its key is back by then. */
const OWNER_LOOKS = 4
const OWNER_LOOK_INTERVAL_MS = 250
const CHECK_DELAY_MS = 3

/** Runs the domain call of one job. */
export type Execute = (
  envelope: JobEnvelope,
  tools: { readonly reply: JobReplies; readonly signal: AbortSignal },
) => Promise<void>

interface Run {
  readonly envelope: JobEnvelope
  readonly queuedId: string
  readonly replySource: ReplySource
  readonly abort: AbortController
  /** Consecutive checks in which the owner was missing. */
  ownerMisses: number
  hasEnded: boolean
  isProven: boolean
  isOrphaned: boolean
  passage: Passage | undefined
  readonly observed: ObservedRun | undefined
}

/** The reason of an abort that hands the job back instead of ending it. */
const YIELD = new CancelledError('the worker drains')
/**
 * The abort reason for a missing owner, which receives it if it was only disconnected for a while.
 */
const ORPHAN = new CancelledError('the owner is missing')

/** The dependencies of job runs. */
interface JobRunnerOptions {
  readonly redis: Redis
  readonly keys: QueueKeys
  readonly writer: ReplyWriter
  readonly workerId: string
  readonly clock: Clock
  readonly log: Logger
  /** Measures and traces every run. */
  readonly observer?: RunObserver | undefined
}

/** Runs fetched jobs: checks, isolation, replies, cancellation, hand-over. */
export class JobRunner {
  readonly #options: JobRunnerOptions
  readonly #runs = new Map<string, Run>()
  readonly #gate = new IsolationGate()
  readonly #claims: JobClaims
  #isDraining = false

  constructor(options: JobRunnerOptions) {
    this.#options = options
    this.#claims = new JobClaims(options)
  }

  get numRunning(): number {
    return this.#runs.size
  }

  /** Runs one job to its end; never throws. The last reply is in the stream when it resolves. */
  async run(envelope: JobEnvelope, execute: Execute): Promise<void> {
    const queuedId = queuedJobId(envelope.jobId, envelope.epoch)
    // The job was delivered a second time while the first delivery still runs here.
    if (this.#runs.has(queuedId)) return
    const { jobId, epoch } = envelope
    const run: Run = {
      envelope,
      queuedId,
      replySource: { jobId, epoch, runId: randomUUID(), seq: 0 },
      abort: new AbortController(),
      ownerMisses: 0,
      hasEnded: false,
      isProven: false,
      isOrphaned: false,
      passage: undefined,
      observed: this.#options.observer?.begin(envelope),
    }
    // Registered before the checks, so that a cancellation from here on is not missed.
    this.#runs.set(queuedId, run)
    try {
      const work = () => this.#runChecked(run, execute)
      await (run.observed?.within(work) ?? work())
    } catch (error) {
      this.#conclude(run, error)
    } finally {
      // A run that ended without a reply was stopped.
      run.observed?.end(run.isOrphaned ? 'orphaned' : run.hasEnded ? 'finished' : 'cancelled')
      run.hasEnded = true
      await this.#options.writer.flushed(envelope.replyTo)
      run.passage?.leave()
      this.#runs.delete(queuedId)
    }
  }

  cancel(queuedId: string): void {
    this.#runs.get(queuedId)?.abort.abort(new CancelledError())
  }

  /** Stops all runs of an owner whose replies cannot be delivered. */
  cancelOwner(replyTo: string): void {
    for (const { envelope, abort } of this.#runs.values()) {
      if (envelope.replyTo === replyTo) abort.abort(new CancelledError())
    }
  }

  /** Hands every job back, now and in the future. */
  yieldAll(): void {
    this.#isDraining = true
    for (const { abort } of this.#runs.values()) abort.abort(YIELD)
  }

  /** Stops runs whose result is not needed: cancelled, past their deadline, or without an owner. */
  async sweep(): Promise<void> {
    const { redis, keys, clock, writer } = this.#options
    const runs = [...this.#runs.values()]
    if (runs.length === 0) return
    const found = await redis.mget(
      runs.flatMap(({ queuedId, envelope }) => [
        keys.cancelled(queuedId),
        keys.owner(envelope.replyTo),
      ]),
    )
    for (const [index, run] of runs.entries()) {
      const { envelope, abort } = run
      const isOwnerAlive = found[2 * index + 1] !== null || envelope.isOwnerless === true
      run.ownerMisses = isOwnerAlive ? 0 : run.ownerMisses + 1
      const isOrphaned = run.ownerMisses > 1
      if (isOrphaned && !run.isOrphaned) {
        run.isOrphaned = true
        writer.discard(envelope.replyTo)
        abort.abort(ORPHAN)
      }
      const isCancelled = found[2 * index] !== null
      const isExpired = clock.now() >= envelope.deadlineAtMs
      if (isCancelled || isExpired) abort.abort(new CancelledError())
    }
  }

  async #runChecked(run: Run, execute: Execute): Promise<void> {
    const { envelope, abort } = run
    if (this.#isDraining) throw YIELD
    if (this.#options.clock.now() >= envelope.deadlineAtMs) return
    const checking = envelope.isSuspect === true ? this.#check(run) : this.#checkSoon(run)
    // The run starts before the check ends: replies of a cancelled job, a second delivery or a job
    // without an owner are ignored, and the run is stopped. A suspected job waits for the check.
    if (envelope.isSuspect === true) await checking
    else void checking
    run.passage = await this.#gate.enter(envelope.isSuspect === true, abort.signal)
    abort.signal.throwIfAborted()
    if (envelope.isSuspect === true) {
      const { writer, workerId } = this.#options
      this.#say(run, { type: 'entered', workerId })
      await writer.flushed(envelope.replyTo)
    }
    await execute(envelope, { reply: this.#repliesOf(run), signal: abort.signal })
  }

  /** Delayed, because most short jobs have ended by then. */
  async #checkSoon(run: Run): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, CHECK_DELAY_MS))
    if (!run.hasEnded) await this.#check(run)
  }

  async #check(run: Run): Promise<void> {
    try {
      if (!(await this.#mayRun(run))) run.abort.abort(new CancelledError())
    } catch (error) {
      // Without an answer the sweep decides; the claim only saves the work of a second delivery.
      const reason = error instanceof Error ? error.message : String(error)
      this.#options.log.debug({ operation: 'job.check', reason }, 'job could not be checked')
    }
  }

  async #mayRun({ envelope, queuedId, replySource: { runId } }: Run): Promise<boolean> {
    const { clock, log } = this.#options
    const { replyTo } = envelope
    const isOwnerless = envelope.isOwnerless === true
    const claim = await this.#claims.claim({ queuedId, runId, replyTo })
    let { isCancelled, isOwnerAlive } = claim
    for (let look = 1; !isOwnerAlive && !isOwnerless && look < OWNER_LOOKS; look += 1) {
      await new Promise((resolve) => setTimeout(resolve, OWNER_LOOK_INTERVAL_MS))
      ;({ isCancelled, isOwnerAlive } = await this.#claims.look({ queuedId, replyTo }))
    }
    const verdict = judgeFetched({
      nowMs: clock.now(),
      deadlineAtMs: envelope.deadlineAtMs,
      isCancelled,
      isClaimed: claim.isClaimed,
      isOwnerAlive,
      isOwnerless,
    })
    if (verdict === 'run') return true
    log.info({ operation: 'job.drop', jobId: envelope.jobId, verdict }, 'job dropped unrun')
    return false
  }

  #repliesOf(run: Run): JobReplies {
    const { workerId } = this.#options
    return {
      started: (promptTokens, report = {}) => {
        run.observed?.started(promptTokens)
        this.#say(run, { type: 'started', workerId, promptTokens, ...report })
      },
      noteTokens: (candidate, count) => run.observed?.tokens(candidate, count),
      delta: (deltas) => {
        this.#say(run, { type: 'delta', deltas })
        this.#prove(run)
      },
      progress: (step, steps, report = {}) => {
        this.#say(run, { type: 'progress', step, steps, ...report })
        this.#prove(run)
      },
      result: (result, usage, timings) => {
        if (!this.#say(run, { type: 'result', result, usage, timings })) throw answerTooLarge()
        run.observed?.result(usage)
        run.hasEnded = true
      },
    }
  }

  /** Waits until the reply is written: a suspected job that starts next may kill the process. */
  #prove(run: Run): void {
    if (run.isProven) return
    run.isProven = true
    void this.#options.writer.flushed(run.envelope.replyTo).then(() => run.passage?.prove())
  }

  /**
   * Replies after the end or after an abort are dropped. False for a reply that is too large to be
   * sent.
   */
  #say(run: Run, body: ReplyBody): boolean {
    const { aborted, reason } = run.abort.signal
    const mayStillSay = reason === YIELD || (reason === ORPHAN && body.type === 'yielded')
    if (run.hasEnded || (aborted && !mayStillSay)) return true
    return this.#options.writer.push(run.envelope.replyTo, run.replySource, body)
  }

  #conclude(run: Run, error: unknown): void {
    const { signal } = run.abort
    if (run.hasEnded) return
    const isYielded = error === YIELD || signal.reason === YIELD
    if (isYielded) run.observed?.end('yielded')
    if (isYielded || signal.reason === ORPHAN) this.#say(run, { type: 'yielded' })
    if (isYielded || signal.aborted) return
    const { jobId, modelId } = run.envelope
    if (!(error instanceof ServiceError)) {
      this.#options.log.error({ operation: 'job.fail', jobId, modelId, err: error }, 'job failed')
    }
    const shown = error instanceof ServiceError ? error : failure.internal('', { cause: error })
    const wire = shown === error ? toWireError(error) : toWireError(undefined)
    run.observed?.end('failed', shown)
    this.#say(run, { type: 'failed', error: wire })
  }
}

/** Another run would end the same way, so the request is refused. */
function answerTooLarge(): ServiceError {
  return failure.invalidRequest(
    'The answer to this request is too large to be sent: please ask for less at a time.',
    { code: 'answer_too_large' },
  )
}
