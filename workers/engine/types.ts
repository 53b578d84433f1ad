import type { FittedAdapter } from '#workers/adapters/fit-adapter.ts'
import type { PeftAdapter } from '#workers/adapters/peft-files.ts'

import type { ContextChoice } from './context-length.ts'

/** A chosen token; log-probabilities are present if they were requested. */
export interface SampledToken {
  readonly tokenId: number
  readonly logprob?: number
  readonly top?: readonly { readonly tokenId: number; readonly logprob: number }[]
}

/** Chooses the next token. */
export interface TokenSampler {
  /**
   * `position` is the number of tokens generated before. The logits may be modified, but are valid
   * only during the call. Called once per generated token, in order.
   */
  next(logits: Float32Array, position: number): SampledToken
}

/** Embeddings that replace prompt tokens, starting at `start`. */
export interface EmbeddedSpan {
  readonly start: number
  readonly embeddings: Float32Array
}

/** Positions of a prompt that differ by axis: a time, a row and a column for each of its tokens. */
export interface PromptPositions {
  readonly axes: readonly (readonly number[])[]
  /** The position of the first token after the prompt, in all axes. */
  readonly next: number
}

/** How an encoder-decoder reads a prompt. */
export interface SequenceSource {
  /** The number of leading prompt tokens that the encoder reads; the decoder reads the rest. */
  readonly length: number
  /** The tokens that the decoder reads before the answer. */
  readonly startTokenIds: readonly number[]
}

/** One text to continue. */
export interface SequenceRequest {
  /**
   * A negative id stands in for an embedding and identifies its content: prefixes are equal if
   * their ids are.
   */
  readonly promptTokenIds: readonly number[]
  /** Embeddings of images in the prompt; only for models that read embeddings. */
  readonly embedded?: readonly EmbeddedSpan[]
  /** Read by models whose positions have three axes; each token's index if absent. */
  readonly positions?: PromptPositions
  /** Required for encoder-decoders, and only for them. */
  readonly source?: SequenceSource
  /** Tokens generated before the sequence moved here; the sampler continues after them. */
  readonly generatedTokenIds: readonly number[]
  /** The limit including `generatedTokenIds`. */
  readonly maxNewTokens: number
  readonly sampler: TokenSampler
  readonly endTokenIds: ReadonlySet<number>
  /** Prefixes are shared only between sequences of one scope. */
  readonly cacheScope: string
  /** Shared by the sequences of one job; a sequence without it is a job of its own. */
  readonly job?: object
  /** An adapter fitted to the same engine; the base model if absent. */
  readonly adapter?: FittedAdapter
  /**
   * Receives each new token, in order; an end token is not delivered. Returning false ends the
   * sequence without a further step.
   */
  readonly onToken: (token: SampledToken) => boolean
  /**
   * Receives the logits at every prompt position, which predict the token after it; they are valid
   * only during the call.
   */
  readonly onPromptLogits?: (position: number, logits: Float32Array) => void
  /** First prompt position whose logits are needed (0 if absent); earlier ones may be cached. */
  readonly promptLogitsFrom?: number
  readonly onAdmitted?: (admission: { readonly cachedTokens: number }) => void
  /** Proposes the next tokens. Proposals are verified and never change the outcome. */
  readonly propose?: (tokenIds: readonly number[]) => readonly number[]
}

/** How a sequence ended, and how many of its tokens came from the cache. */
export interface SequenceEnd {
  readonly reason: 'endOfText' | 'length' | 'stopped'
  readonly cachedTokens: number
}

/** Counters and gauges of an engine. */
export interface EngineStats {
  /** Texts that can run at a time if further ones are as long as the current ones. */
  readonly slots: number
  readonly active: number
  readonly waiting: number
  /** Tokens whose computation the cache saved, since the start. */
  readonly cachedTokens: number
  readonly steps: number
  /** Tokens generated since the start. */
  readonly tokens: number
  readonly promptTokens: number
}

/** Text generation with continuous batching over one model. */
export interface TextEngine {
  /** Positions of a text; of a prompt alone where `decoderLength` is present. */
  readonly contextLength: number
  /** Why it was chosen; absent for encoder-decoders. */
  readonly context?: ContextChoice
  /** The most texts at a time while the memory holds them; absent for encoder-decoders. */
  readonly slotsMax?: number
  /** Positions of start tokens and answer in an encoder-decoder; absent for other models. */
  readonly decoderLength?: number
  readonly vocabSize: number
  /** Elements of an embedding, where the model reads embeddings. */
  readonly embeddingSize?: number
  /** How the model's cache is written; see docs/models.md. */
  readonly cachePath: 'in place' | 'rewritten' | 'growing'
  /** Its graphs; the first is the decoder's where there is no encoder. */
  readonly modelFiles: readonly string[]
  /** Continues a text. Rejects with `CancelledError` at once when the signal aborts. */
  run(request: SequenceRequest, options: { readonly signal: AbortSignal }): Promise<SequenceEnd>
  /**
   * Makes an adapter usable for sequences, which share steps with those of other adapters and of
   * the base model. Throws, naming the tensor, when it does not fit the model.
   */
  fitAdapter(adapter: PeftAdapter): Promise<FittedAdapter>
  /** Calls back after every step. */
  onStep(listener: () => void): void
  stats(): EngineStats
  /** Cancels running sequences, waits for the step in flight and releases the model. */
  close(): Promise<void>
}
