import type { ReplyBody } from '#shared/contracts/reply.ts'

/**
 * The life of a job as its owner sees it. Pure: the submitter and the model check run the same
 * code.
 *
 *   waiting ──started──► running ──result──► ended          worker lost ─► resubmit (epoch + 1)
 *      │                    │                               job lost    ─► resubmit (epoch + 1)
 *      └──── abandon, deadline, failed ────► ended          yielded     ─► resubmit (epoch + 1)
 *
 * A loss of its worker is charged to a job only if the lost run had delivered nothing: a job that
 * made progress did not kill the process at its start, and its next run begins after the delivered
 * part.
 * Progress also clears a job of earlier charges: a job that kills its worker at one place never
 * gets beyond it.
 */
export interface JobLife {
  readonly phase: 'waiting' | 'running' | 'paused' | 'ended'
  readonly epoch: number
  /** The accepted run of this epoch; undefined until its first reply. */
  readonly runId: string | undefined
  readonly lastSeq: number
  /** The current run has delivered something. */
  readonly isProven: boolean
  /** Any run has delivered something. */
  readonly hasDelivered: boolean
  /** Workers lost in a row while this job ran unproven; progress resets it. */
  readonly charges: number
  readonly resubmissions: number
  readonly retries: number
}

/** An event in a job's life. */
export type LifeEvent =
  | {
      readonly type: 'reply'
      readonly epoch: number
      readonly runId: string
      readonly seq: number
      readonly says: ReplyBody['type']
      readonly isRetryable?: boolean
    }
  | { readonly type: 'workerLost'; readonly epoch: number }
  | { readonly type: 'jobLost'; readonly epoch: number }
  | { readonly type: 'overflow' }
  | { readonly type: 'caughtUp' }
  | { readonly type: 'deadline' }
  | { readonly type: 'abandon' }

/** The action of the owner after an event. */
export type LifeAction =
  | 'ignore'
  | 'deliver'
  | 'answer'
  | 'fail'
  | 'resubmit'
  | 'pause'
  | 'deadLetter'
  | 'failExhausted'
  | 'expire'
  | 'cancel'

/**
 * The number of lost workers after which a job is dead-lettered. The first loss makes the job a
 * suspect, which runs alone, because another job that ran beside it may be the cause. A single loss
 * may also have an outside cause, such as a lost machine; a second one in a row is the fault of the
 * job.
 */
export const CHARGES_MAX = 3
/** Bounds every cycle of losses and hand-overs. */
const RESUBMISSIONS_MAX = 100
const RETRIES_MAX = 1

/** A job at its submission. */
export function beginLife(): JobLife {
  return {
    phase: 'waiting',
    epoch: 1,
    runId: undefined,
    lastSeq: 0,
    isProven: false,
    hasDelivered: false,
    charges: 0,
    resubmissions: 0,
    retries: 0,
  }
}

interface Transition {
  readonly life: JobLife
  readonly action: LifeAction
}

/** The next state of a job and what its owner must do. */
export function advance(life: JobLife, event: LifeEvent): Transition {
  if (life.phase === 'ended') return ignore(life)
  switch (event.type) {
    case 'reply':
      return onReply(life, event)
    case 'workerLost': {
      if (event.epoch !== life.epoch || life.phase === 'paused') return ignore(life)
      const charges = life.charges + (isChargeable(life) ? 1 : 0)
      if (charges >= CHARGES_MAX) return end({ ...life, charges }, 'deadLetter')
      return resubmit({ ...life, charges })
    }
    case 'jobLost':
      if (event.epoch !== life.epoch || life.phase === 'paused') return ignore(life)
      return resubmit(life)
    case 'overflow':
      return life.phase === 'running' ? pause(life) : ignore(life)
    case 'caughtUp':
      return life.phase === 'paused' ? resubmit(life) : ignore(life)
    case 'deadline':
      return end(life, 'expire')
    case 'abandon':
      return end(life, 'cancel')
  }
}

/**
 * A suspected job sends a reply before it runs, so one without a reply was still waiting. Any other
 * job may have died before its first reply was sent.
 */
function isChargeable({ isProven, charges, phase }: JobLife): boolean {
  return !isProven && (charges === 0 || phase === 'running')
}

/** Whether the next run must start alone, without other unproven jobs. */
export function isSuspect(life: JobLife): boolean {
  return life.charges > 0
}

function onReply(life: JobLife, event: Extract<LifeEvent, { type: 'reply' }>): Transition {
  if (event.epoch !== life.epoch || life.phase === 'paused') return ignore(life)
  if (life.runId !== undefined && event.runId !== life.runId) return ignore(life)
  if (event.seq <= life.lastSeq) return ignore(life)
  // A frame was lost in a failover, so the run cannot be followed any further.
  if (event.seq > life.lastSeq + 1) return resubmit(life)
  const running: JobLife = { ...life, phase: 'running', runId: event.runId, lastSeq: event.seq }
  switch (event.says) {
    case 'entered':
    case 'started':
      return { life: running, action: 'deliver' }
    case 'delta':
    case 'progress':
      return {
        life: { ...running, isProven: true, hasDelivered: true, charges: 0 },
        action: 'deliver',
      }
    case 'result':
      return end(running, 'answer')
    case 'failed': {
      const mayRetry = event.isRetryable === true && !life.hasDelivered
      if (!mayRetry || life.retries >= RETRIES_MAX) return end(running, 'fail')
      return resubmit({ ...running, retries: life.retries + 1 })
    }
    case 'yielded':
      return resubmit(running)
  }
}

/** The life after an epoch that another owner ended. Later replies of that epoch are ignored. */
export function skipEpoch(life: JobLife): JobLife {
  return { ...nextEpoch(life), phase: 'waiting', resubmissions: life.resubmissions + 1 }
}

function resubmit(life: JobLife): Transition {
  const resubmissions = life.resubmissions + 1
  if (resubmissions > RESUBMISSIONS_MAX) return end(life, 'failExhausted')
  return { life: { ...nextEpoch(life), phase: 'waiting', resubmissions }, action: 'resubmit' }
}

function pause(life: JobLife): Transition {
  return { life: { ...life, phase: 'paused' }, action: 'pause' }
}

function nextEpoch(life: JobLife): JobLife {
  return { ...life, epoch: life.epoch + 1, runId: undefined, lastSeq: 0, isProven: false }
}

function end(life: JobLife, action: LifeAction): Transition {
  return { life: { ...life, phase: 'ended' }, action }
}

function ignore(life: JobLife): Transition {
  return { life, action: 'ignore' }
}

/** The state of a fetched job, as a worker sees it. */
export interface Fetched {
  readonly nowMs: number
  readonly deadlineAtMs: number
  readonly isCancelled: boolean
  readonly isClaimed: boolean
  readonly isOwnerAlive: boolean
  readonly isOwnerless: boolean
}

/** Whether a fetched job is run or dropped without a run. */
export function judgeFetched(
  fetched: Fetched,
): 'run' | 'cancelled' | 'claimed' | 'expired' | 'orphaned' {
  if (fetched.isCancelled) return 'cancelled'
  if (!fetched.isClaimed) return 'claimed'
  if (fetched.nowMs >= fetched.deadlineAtMs) return 'expired'
  return fetched.isOwnerAlive || fetched.isOwnerless ? 'run' : 'orphaned'
}
