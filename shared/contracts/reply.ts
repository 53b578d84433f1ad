import type { WireError } from '#shared/errors.ts'

import type { AnswerDialect } from './answer-formats.ts'
import type { SpokenToken } from './audio.ts'
import type { CandidateDelta } from './completion.ts'
import type { PartialImage } from './image.ts'
import type { QueueKind, QueueTable } from './job.ts'
import type { SpeechAudio, SpeechFormat } from './speech.ts'
import type { TrainingProgress } from './training.ts'

/** Input and output tokens of a job. */
export interface TokenUsage {
  readonly promptTokens: number
  readonly completionTokens: number
  /** Reasoning tokens of the answers, including the tags around them; 0 if absent. */
  readonly reasoningTokens?: number
  /** Prompt tokens whose keys and values were already in the cache. */
  readonly cachedTokens: number
}

/** The duration of a job's phases, in milliseconds. */
export interface JobTimings {
  readonly queueMs: number
  readonly prepareMs: number
  readonly runMs: number
}

/**
 * The messages of a worker about a job, in order: started, then deltas or progress, then one
 * ending.
 */
export type ReplyBody<K extends QueueKind = QueueKind> =
  /** A suspected job is about to run isolated: if its process dies now, the job is the cause. */
  | { readonly type: 'entered'; readonly workerId: string }
  | {
      /** The input is valid and the job runs: the owner may send its headers now. */
      readonly type: 'started'
      readonly workerId: string
      readonly promptTokens: number
      /** Request fields that have no effect on this model. */
      readonly ignored?: readonly string[]
      /** Messages that were dropped from the beginning of a chat that was too long. */
      readonly droppedMessages?: number
      /** The tokens of each prompt of a stream that asks for them. */
      readonly promptTokenIds?: readonly (readonly number[])[]
      /** How the speech of the job is encoded. */
      readonly speechFormat?: SpeechFormat
      /** How the answers of the model are written, where it answers a chat. */
      readonly dialect?: AnswerDialect
    }
  | { readonly type: 'delta'; readonly deltas: readonly CandidateDelta[] }
  | {
      readonly type: 'progress'
      readonly step: number
      readonly steps: number
      /** The text of one window of a recording, when streaming. */
      readonly text?: string
      /** The tokens of that text, when the request asks for them. */
      readonly logprobs?: readonly SpokenToken[]
      /** The next bytes of a speech. */
      readonly audio?: SpeechAudio
      /** The losses of a training. */
      readonly training?: TrainingProgress
      readonly partialImage?: PartialImage
    }
  | {
      readonly type: 'result'
      readonly result: QueueTable[K]['result']
      readonly usage: TokenUsage
      readonly timings: JobTimings
    }
  | { readonly type: 'failed'; readonly error: WireError }
  /** The worker drains and returns the job; the owner resubmits it. */
  | { readonly type: 'yielded' }

/** Facts about a request that a worker reports before its tokens. */
export type StartReport = Pick<
  Extract<ReplyBody, { readonly type: 'started' }>,
  'ignored' | 'droppedMessages' | 'promptTokenIds' | 'speechFormat' | 'dialect'
>

/** A reply on the owner's stream. */
export type Reply<K extends QueueKind = QueueKind> = ReplyBody<K> & {
  readonly jobId: string
  readonly epoch: number
  /** The run that sent it: the owner accepts one run per epoch. */
  readonly runId: string
  /** 1, 2, 3, … within a run, to detect repeated and lost frames. */
  readonly seq: number
}
