import { setImmediate } from 'node:timers/promises'

import type { Clock } from '#shared/clock.ts'
import type { CandidateDelta } from '#shared/contracts/completion.ts'
import type { QueueKind, QueueTable } from '#shared/contracts/queues.ts'
import type { JobTimings, StartReport, TokenUsage } from '#shared/contracts/reply.ts'

/** How a processor answers a job; nothing waits, the worker sends what has gathered. */
export interface JobReplies<K extends QueueKind = QueueKind> {
  started(promptTokens: number, report?: StartReport): void
  delta(deltas: readonly CandidateDelta[]): void
  /** Reports new tokens of a candidate for the metrics, whether or not they are sent. */
  noteTokens?(candidate: number, count: number): void
  /** `text` is what a window of a recording says, where that is wanted at once. */
  progress(step: number, steps: number, text?: string): void
  result(result: QueueTable[K]['result'], usage: TokenUsage, timings: JobTimings): void
}

/** What a processor gets beside its job. Failures are thrown; the worker turns them into replies. */
export interface JobTools<Model, K extends QueueKind = QueueKind> {
  readonly model: Model
  readonly reply: JobReplies<K>
  readonly signal: AbortSignal
  readonly clock: Clock
}

/**
 * Does all tasks at once. The first failure aborts the others' signal and is thrown once all of them
 * have ended, so that nothing of a job outlives it.
 */
export async function allOrNone<Value>(
  signal: AbortSignal,
  tasks: readonly ((signal: AbortSignal) => Promise<Value>)[],
): Promise<Value[]> {
  const failed = new AbortController()
  const either = AbortSignal.any([signal, failed.signal])
  const running = tasks.map((task) => task(either))
  try {
    return await Promise.all(running)
  } catch (error) {
    failed.abort()
    await Promise.allSettled(running)
    throw error
  }
}

// Short against the heartbeat of a worker and against one step of the engines beside it.
const TURN_MS = 10

/**
 * For loops that compute without waiting: lets everything else in the process have its turn once the
 * loop has run for a while.
 */
export function yieldToEventLoop(clock: Clock): () => Promise<void> {
  let startedAtMs = clock.monotonic()
  return async () => {
    if (clock.monotonic() - startedAtMs < TURN_MS) return
    await setImmediate()
    startedAtMs = clock.monotonic()
  }
}
