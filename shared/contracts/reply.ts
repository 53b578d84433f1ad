import type { WireError } from '../errors.ts'
import type { CandidateDelta } from './completion.ts'
import type { QueueKind, QueueTable } from './queues.ts'

/** Tokens that were read and written for a job. */
export interface TokenUsage {
  readonly promptTokens: number
  readonly completionTokens: number
  /** Prompt tokens whose keys and values were already in the cache. */
  readonly cachedTokens: number
}

/** How long a job spent where, in milliseconds. */
export interface JobTimings {
  readonly queueMs: number
  readonly prepareMs: number
  readonly runMs: number
}

/** What a worker says about a job, in order: started, then deltas or progress, then one ending. */
export type ReplyBody<K extends QueueKind = QueueKind> =
  /** A suspect is about to run alone: if its process dies now, it is the cause. */
  | { readonly type: 'entered'; readonly workerId: string }
  | {
      /** The input is valid and the job runs: the owner may now send its headers. */
      readonly type: 'started'
      readonly workerId: string
      readonly promptTokens: number
    }
  | { readonly type: 'delta'; readonly deltas: readonly CandidateDelta[] }
  | {
      readonly type: 'progress'
      readonly step: number
      readonly steps: number
      /** What the window of a recording says, where that is wanted at once. */
      readonly text?: string
    }
  | {
      readonly type: 'result'
      readonly result: QueueTable[K]['result']
      readonly usage: TokenUsage
      readonly timings: JobTimings
    }
  | { readonly type: 'failed'; readonly error: WireError }
  /** The worker drains and gives the job back; the owner submits it again. */
  | { readonly type: 'yielded' }

/** A reply on the owner's stream. */
export type Reply<K extends QueueKind = QueueKind> = ReplyBody<K> & {
  readonly jobId: string
  readonly epoch: number
  /** The run that speaks: the owner listens to one run per epoch, whatever the queue delivers. */
  readonly runId: string
  /** 1, 2, 3, … within a run: a repeated frame is recognized, a lost one noticed. */
  readonly seq: number
}
