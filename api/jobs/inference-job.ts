import type { DurableJob, StoredJob } from '#api/v1/request-context.ts'
import type { CandidateDelta, FinishReason, ResumePoint } from '#shared/contracts/completion.ts'
import type { JobEnvelope } from '#shared/contracts/job.ts'
import type { Reply } from '#shared/contracts/reply.ts'
import { ERROR_KINDS, failure, fromWireError } from '#shared/errors.ts'
import {
  advance,
  beginLife,
  isSuspect,
  type JobLife,
  type LifeEvent,
  skipEpoch,
} from '#shared/queue/job-life.ts'
import type { Ticket } from '#shared/queue/producer.ts'

import type { JobEvent } from './observers.ts'

/** When a slow client has this many unread characters, its run is paused. */
const UNREAD_CHARS_MAX = 64 * 1024
/** A durable run is not paused, because a later process could not replay the pause: it ends. */
const UNREAD_CHARS_MAX_DURABLE = 64 * 1024 * 1024

/** The operations of a job on its queue. */
export interface JobActions {
  /** Puts the next epoch into its queue. */
  resubmit(job: OwnedJob): void
  /** Stops an epoch, whether it is queued or runs. */
  cancel(job: OwnedJob, epoch: number): void
  /** Keeps the record of a job that kills workers. */
  deadLetter(job: OwnedJob): void
}

/** One job on the side of the process that holds its client. */
export class OwnedJob {
  readonly buffer: EventBuffer<JobEvent>
  readonly ticket: Ticket
  readonly priority: number
  /** The worker that runs the current epoch, once it has replied. */
  workerId: string | undefined
  /** The time of the last reply, on the monotonic clock. */
  lastReplyAtMs: number
  /** The last check did not find it in its queue. */
  isSuspectedLost = false
  #envelope: JobEnvelope
  #life: JobLife = beginLife()
  #hasStarted = false
  readonly #points = new ResumePoints()
  readonly #cuts: StoredJob['cuts'][number][]
  readonly #durable: DurableJob | undefined
  readonly #actions: JobActions

  constructor(
    envelope: JobEnvelope,
    place: { readonly ticket: Ticket; readonly priority: number; readonly nowMs: number },
    actions: JobActions,
    durable?: DurableJob,
  ) {
    this.#envelope = envelope
    this.#durable = durable
    this.#cuts = [...(durable?.adopted?.cuts ?? [])]
    this.#skipLeftEpochs()
    this.ticket = place.ticket
    this.priority = place.priority
    this.lastReplyAtMs = place.nowMs
    this.#actions = actions
    this.buffer = new EventBuffer(
      durable === undefined ? UNREAD_CHARS_MAX : UNREAD_CHARS_MAX_DURABLE,
      () => this.apply({ type: 'caughtUp' }),
      // Every process that replays the replies must produce the same events of a durable job.
      durable === undefined ? joinDeltas : undefined,
    )
  }

  get envelope(): JobEnvelope {
    return this.#envelope
  }

  get life(): JobLife {
    return this.#life
  }

  /**
   * Resolves when another process could adopt the job, if it is durable; false when one has begun
   * its request.
   */
  async keep(): Promise<boolean> {
    const kept = { envelope: this.#envelope, cuts: [...this.#cuts] }
    return this.#durable === undefined || (await this.#durable.keep(kept))
  }

  /**
   * Replays the replies that a former owner received. A run is ignored after the point at which
   * that owner abandoned it.
   */
  #skipLeftEpochs(): void {
    for (const { epoch, lastSeq } of this.#cuts) {
      if (epoch === this.#life.epoch && this.#life.lastSeq >= lastSeq)
        this.#life = skipEpoch(this.#life)
    }
  }

  /** Receives a reply of its worker. */
  onReply(reply: Reply, nowMs: number): void {
    const before = this.#life
    const { epoch, runId, seq } = reply
    const isRetryable = reply.type === 'failed' && ERROR_KINDS[reply.error.kind].isRetryable
    const event: LifeEvent = { type: 'reply', epoch, runId, seq, says: reply.type, isRetryable }
    const { life, action } = advance(before, event)
    this.#life = life
    if (action === 'ignore') return
    this.lastReplyAtMs = nowMs
    this.isSuspectedLost = false
    switch (action) {
      case 'deliver':
        if ('workerId' in reply) this.workerId = reply.workerId
        this.#deliver(reply)
        this.#skipLeftEpochs()
        return
      case 'answer':
        this.buffer.push(present(reply), 0)
        this.buffer.finish()
        return
      case 'fail':
        if (reply.type === 'failed') this.buffer.fail(fromWireError(reply.error))
        return
      default:
        this.#act(before, action)
    }
  }

  /** Applies an event that is not a reply. */
  apply(event: Exclude<LifeEvent, { type: 'reply' }>): void {
    const before = this.#life
    const { life, action } = advance(before, event)
    this.#life = life
    this.#act(before, action)
  }

  #act(before: JobLife, action: ReturnType<typeof advance>['action']): void {
    switch (action) {
      case 'resubmit':
        this.#cuts.push({ epoch: before.epoch, lastSeq: before.lastSeq })
        this.#beginEpoch()
        // The old run may still be alive after a lost frame; a paused run is already stopped.
        if (before.phase !== 'paused') this.#actions.cancel(this, before.epoch)
        this.#actions.resubmit(this)
        return
      case 'pause':
      case 'cancel':
        this.#actions.cancel(this, before.epoch)
        return
      case 'expire':
        this.#actions.cancel(this, before.epoch)
        this.buffer.fail(deadlineExceeded())
        return
      case 'deadLetter':
        this.#actions.cancel(this, before.epoch)
        this.#actions.deadLetter(this)
        this.buffer.fail(workerCrashed())
        return
      case 'failExhausted':
        this.#actions.cancel(this, before.epoch)
        this.buffer.fail(failure.internal('The request could not be completed.'))
        return
      default:
        return
    }
  }

  #beginEpoch(): void {
    this.workerId = undefined
    this.isSuspectedLost = false
    this.#envelope = {
      ...this.#envelope,
      epoch: this.#life.epoch,
      ...(isSuspect(this.#life) && { isSuspect: true }),
      input: this.#points.applyTo(this.#envelope),
    }
  }

  #deliver(reply: Reply): void {
    if (reply.type === 'entered') return
    if (reply.type === 'started') {
      // A second start is not shown to the client.
      if (!this.#hasStarted) this.buffer.push(present(reply), 0)
      this.#hasStarted = true
      return
    }
    if (reply.type === 'delta') this.#points.add(reply.deltas)
    const hasRoom = this.buffer.push(present(reply), charsOf(reply))
    if (hasRoom) return
    if (this.#durable === undefined) {
      this.apply({ type: 'overflow' })
      return
    }
    this.apply({ type: 'abandon' })
    this.buffer.fail(readTooSlowly())
  }
}

/** Joins the deltas of one frame. */
function joinDeltas(earlier: JobEvent, later: JobEvent): JobEvent | undefined {
  if (earlier.type !== 'delta' || later.type !== 'delta') return undefined
  return { type: 'delta', deltas: [...earlier.deltas, ...later.deltas] }
}

function charsOf(reply: Reply): number {
  if (reply.type !== 'delta') return 64
  return reply.deltas.reduce(
    (sum, { text, tokenIds, logprobs }) =>
      sum + text.length + 8 * tokenIds.length + 200 * (logprobs?.length ?? 0),
    64,
  )
}

/** The reply without the fields of the wire. */
function present(reply: Reply): JobEvent {
  const { jobId: _jobId, epoch: _epoch, runId: _runId, seq: _seq, ...event } = reply
  return event as JobEvent
}

/** The error of a job whose deadline has passed. */
export function deadlineExceeded(): Error {
  return failure.deadline('The request timed out before it was completed.', {
    code: 'request_timeout',
  })
}

function readTooSlowly(): Error {
  return failure.overloaded('The answer was read too slowly and could not be kept any longer.', {
    code: 'answer_unread',
  })
}

function workerCrashed(): Error {
  return failure.internal('The request made its worker fail repeatedly and was not run again.', {
    code: 'worker_crashed',
    shouldRetry: false,
  })
}

/** The delivered tokens of each candidate, after which the next run continues. */
class ResumePoints {
  readonly #points = new Map<number, { tokenIds: number[]; finishReason?: FinishReason }>()

  /** Adds the tokens of an earlier resumption. */
  add(deltas: readonly CandidateDelta[]): void {
    for (const { index, tokenIds, finishReason } of deltas) {
      let point = this.#points.get(index)
      if (point === undefined) {
        point = { tokenIds: [] }
        this.#points.set(index, point)
      }
      for (const tokenId of tokenIds) point.tokenIds.push(tokenId)
      if (finishReason !== undefined) point.finishReason = finishReason
    }
  }

  /** The input of the next run; jobs other than generation start again. */
  applyTo(envelope: JobEnvelope): JobEnvelope['input'] {
    const { input } = envelope
    if (input.task !== 'generate' || !('prompts' in input) || this.#points.size === 0) return input
    const resume: ResumePoint[] = [...this.#points]
      .toSorted(([a], [b]) => a - b)
      .map(([index, point]) => ({ index, ...point, tokenIds: [...point.tokenIds] }))
    return { ...input, resume }
  }
}

/**
 * The events of one job between its owner and a slower consumer. Bounded: beyond the limit `push`
 * returns false, and the owner stops the run until `onCaughtUp`.
 */
class EventBuffer<Event extends object> {
  readonly #charsMax: number
  readonly #onCaughtUp: () => void
  readonly #join: (earlier: Event, later: Event) => Event | undefined
  #events: { event: Event; chars: number }[] = []
  #chars = 0
  #ending: { readonly error: unknown } | 'done' | undefined
  #wake: (() => void) | undefined

  /** `join` merges two unread events, or returns undefined. */
  constructor(
    charsMax: number,
    onCaughtUp: () => void,
    join: (earlier: Event, later: Event) => Event | undefined = () => undefined,
  ) {
    this.#charsMax = charsMax
    this.#onCaughtUp = onCaughtUp
    this.#join = join
  }

  /** Adds an event. False when the consumer is too far behind; the event is added anyway. */
  push(event: Event, chars: number): boolean {
    const last = this.#events.at(-1)
    const joined = last && this.#join(last.event, event)
    if (last !== undefined && joined !== undefined) {
      last.event = joined
      last.chars += chars
    } else {
      this.#events.push({ event, chars })
    }
    this.#chars += chars
    this.#wake?.()
    return this.#chars <= this.#charsMax
  }

  /** Ends the sequence after the buffered events. */
  finish(): void {
    this.#ending ??= 'done'
    this.#wake?.()
  }

  /** Ends the sequence with an error after the buffered events. */
  fail(error: unknown): void {
    this.#ending ??= { error }
    this.#wake?.()
  }

  async *drain(): AsyncGenerator<Event> {
    while (true) {
      const next = this.#events.shift()
      if (next !== undefined) {
        this.#chars -= next.chars
        yield next.event
        if (this.#events.length === 0) this.#onCaughtUp()
        continue
      }
      if (this.#ending === 'done') return
      if (this.#ending !== undefined) throw this.#ending.error
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
      this.#wake = undefined
    }
  }
}
