import type { AudioInput, AudioResult } from './audio.ts'
import type { CompletionInput, CompletionResult } from './completion.ts'
import type { EmbeddingInput, EmbeddingResult } from './embedding.ts'
import type { ImageInput, ImageResult } from './image.ts'
import type { SpeechInput, SpeechResult } from './speech.ts'
import type { TrainingInput, TrainingResult } from './training.ts'

/** The version of the envelope; a worker refuses others. */
export const ENVELOPE_VERSION = 1

/** One job in a queue. All of its fields are plain JSON. */
export interface JobEnvelope<K extends QueueKind = QueueKind> {
  readonly version: typeof ENVELOPE_VERSION
  /** The id that every reply carries; the same across resubmissions. */
  readonly jobId: string
  /** Grows with every resubmission. The owner drops replies of older epochs. */
  readonly epoch: number
  readonly kind: K
  readonly modelId: string
  readonly organizationId: string
  /** The reply stream of the API process that owns the job. */
  readonly replyTo: string
  readonly enqueuedAtMs: number
  /** After this time the answer is no longer needed. */
  readonly deadlineAtMs: number
  /** W3C trace context of the request. */
  readonly trace?: { readonly traceparent: string; readonly tracestate?: string }
  /** An earlier worker of the job died before it delivered anything, so the job runs isolated. */
  readonly isSuspect?: boolean
  /** Runs even when the process that enqueued it has ended. */
  readonly isOwnerless?: boolean
  readonly input: QueueTable[K]['input']
}

/** The BullMQ id of one epoch of a job. BullMQ forbids colons. */
export function queuedJobId(jobId: string, epoch: number): string {
  return `${jobId}-${epoch}`
}

/** The input and result types of each kind of queue. */
export interface QueueTable {
  completion: { input: CompletionInput; result: CompletionResult }
  embedding: { input: EmbeddingInput; result: EmbeddingResult }
  image: { input: ImageInput; result: ImageResult }
  audio: { input: AudioInput; result: AudioResult }
  speech: { input: SpeechInput; result: SpeechResult }
  training: { input: TrainingInput; result: TrainingResult }
}

/** The kinds of queues. */
export type QueueKind = keyof QueueTable

/** The kinds of models in `models.json`. */
export const MODEL_KINDS = [
  'completion',
  'embedding',
  'image',
  'audio',
  'speech',
] as const satisfies readonly QueueKind[]

/** The kind of a model in `models.json`. */
export type ModelKind = (typeof MODEL_KINDS)[number]

/** The kinds of queues. Models of kind `completion` may have one of kind `training` besides. */
export const QUEUE_KINDS = [...MODEL_KINDS, 'training'] as const satisfies readonly QueueKind[]

/**
 * The name of the queue of one kind and model: `completion.tiny-chat`. BullMQ forbids colons, and
 * hub ids contain slashes, so every other character than letters, digits, `.`, `_` and `-` is
 * percent-encoded.
 */
export function queueName(kind: QueueKind, modelId: string): string {
  return `${kind}.${encodeURIComponent(modelId)}`
}
