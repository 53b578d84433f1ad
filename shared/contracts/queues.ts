import type { AudioInput, AudioResult } from './audio.ts'
import type { CompletionInput, CompletionResult } from './completion.ts'
import type { EmbeddingInput, EmbeddingResult } from './embedding.ts'
import type { ImageInput, ImageResult } from './image.ts'

/** The input and result types of each kind of queue. */
export interface QueueTable {
  completion: { input: CompletionInput; result: CompletionResult }
  embedding: { input: EmbeddingInput; result: EmbeddingResult }
  image: { input: ImageInput; result: ImageResult }
  audio: { input: AudioInput; result: AudioResult }
}

/** The kinds of queues. */
export type QueueKind = keyof QueueTable

/** The kinds, in the order in which a worker starts them. */
export const QUEUE_KINDS = [
  'completion',
  'embedding',
  'image',
  'audio',
] as const satisfies readonly QueueKind[]

/**
 * The name of the queue of one kind and model: `completion.tiny-chat`. BullMQ forbids colons, and
 * hub ids contain slashes, so every other character than letters, digits, `.`, `_` and `-` is
 * percent-encoded.
 */
export function queueName(kind: QueueKind, modelId: string): string {
  return `${kind}.${encodeURIComponent(modelId)}`
}
