import type { ChatMessage, ToolDefinition } from './completion.ts'

/** One line of the prepared examples. Prompts and messages of weight 0 do not count in the loss. */
export type TrainingExample =
  | {
      readonly messages: readonly (ChatMessage & { readonly weight?: 0 | 1 })[]
      readonly tools?: readonly ToolDefinition[]
    }
  | { readonly prompt: string; readonly completion: string }

/** Settings of a training; the trainer replaces null by a value derived from the tokens. */
export interface Hyperparameters {
  readonly epochs: number | null
  /** Examples of one step of the optimizer. */
  readonly batchSize: number | null
  /** Factor of the learning rate that the trainer chooses for the model; null means 1. */
  readonly learningRateMultiplier: number | null
  readonly rank: number | null
  /** The adapter's products are scaled by `alpha / rank`. */
  readonly alpha: number | null
}

/** Trains a low-rank adapter of the model on examples in object storage. */
export interface TrainingInput {
  readonly task: 'train'
  /** Key of JSON lines of `TrainingExample`. */
  readonly examplesKey: string
  /** The key of the same for validation examples, which are not trained on. */
  readonly validationKey: string | null
  readonly hyperparameters: Hyperparameters
  /** The upper bound of epochs when the trainer chooses their number. */
  readonly epochsMax: number
  readonly seed: number
  /** Checkpoints and the adapter are written under this prefix. */
  readonly outputPrefix: string
}

/** The state of a training after one step of the optimizer. */
export interface TrainingProgress {
  readonly step: number
  readonly steps: number
  /** The mean over the weighted tokens of the step. */
  readonly trainLoss: number
  readonly meanTokenAccuracy: number
  readonly validationLoss?: number
  /** Tokens since the start of the job, on all of its workers. */
  readonly trainedTokens: number
  readonly learningRate: number
  readonly checkpoint?: { readonly step: number; readonly prefix: string }
  /** Sent with the first step. */
  readonly statistics?: TrainingStatistics
  /** Sent with the first step: the values that the trainer has chosen. */
  readonly settled?: { readonly epochs: number; readonly batchSize: number }
}

/** Counts of the prepared examples. */
export interface TrainingStatistics {
  readonly examples: number
  readonly tokens: number
  readonly truncatedExamples: number
}

/** A stored state of the adapter at the end of an epoch. */
export interface TrainingCheckpoint {
  readonly step: number
  readonly prefix: string
  readonly trainLoss: number
  readonly validationLoss: number | null
}

/** The adapter that the training made. */
export interface TrainingResult {
  /** `adapter_config.json` and `adapter_model.safetensors`; size and digest are of the latter. */
  readonly adapter: { readonly prefix: string; readonly bytes: number; readonly sha256: string }
  readonly statistics: TrainingStatistics
  readonly trainedTokens: number
  readonly steps: number
  readonly trainLoss: number
  readonly validationLoss: number | null
  readonly checkpoints: readonly TrainingCheckpoint[]
}
