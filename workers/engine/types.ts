import type { FittedAdapter } from '#workers/adapters/fit-adapter.ts'
import type { PeftAdapter } from '#workers/adapters/peft-files.ts'

import type { ContextChoice } from './context-length.ts'

/** A chosen token; the log-probabilities are there when the sampler was asked for them. */
export interface SampledToken {
  readonly tokenId: number
  readonly logprob?: number
  readonly top?: readonly { readonly tokenId: number; readonly logprob: number }[]
}

/** Chooses the next token. */
export interface TokenSampler {
  /**
   * `position` is the number of tokens generated before. The logits may be changed, but are valid
   * only during the call. Called once per generated token, in order.
   */
  next(logits: Float32Array, position: number): SampledToken
}

/** Embeddings that take the places of prompt tokens from `start` on, one after another. */
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
  /** The first tokens of the prompt, which the encoder reads; the decoder reads those after. */
  readonly length: number
  /** The tokens that the decoder reads before the answer. */
  readonly startTokenIds: readonly number[]
}

/** One text to continue. */
export interface SequenceRequest {
  /**
   * A negative id fills the place of an embedding and identifies its content: prefixes are equal
   * where their ids are.
   */
  readonly promptTokenIds: readonly number[]
  /** Embeddings of images in the prompt; only for models that read embeddings. */
  readonly embedded?: readonly EmbeddedSpan[]
  /** Read by models whose positions have three axes; each token's place in the text if absent. */
  readonly positions?: PromptPositions
  /** For encoder-decoders, and only for them. */
  readonly source?: SequenceSource
  /** Tokens generated before the sequence moved here; the sampler continues after them. */
  readonly generatedTokenIds: readonly number[]
  /** In total, counting `generatedTokenIds`. */
  readonly maxNewTokens: number
  readonly sampler: TokenSampler
  readonly endTokenIds: ReadonlySet<number>
  /** Prefixes are shared only between sequences of one scope. */
  readonly cacheScope: string
  /** Shared by the sequences of one job; a sequence without it is a job of its own. */
  readonly job?: object
  /** Of the same engine; the base model where it is absent. */
  readonly adapter?: FittedAdapter
  /**
   * Receives each new token, in step order; an end token is not delivered. False ends the sequence:
   * no further step is spent on it.
   */
  readonly onToken: (token: SampledToken) => boolean
  /**
   * Receives the logits at every prompt position, which predict the token after it; they are valid
   * only during the call.
   */
  readonly onPromptLogits?: (position: number, logits: Float32Array) => void
  /** First prompt position whose logits are wanted (0 if absent); those before may be cached. */
  readonly promptLogitsFrom?: number
  readonly onAdmitted?: (admission: { readonly cachedTokens: number }) => void
  /** Proposes the next tokens; proposals are verified and never change the outcome. */
  readonly propose?: (tokenIds: readonly number[]) => readonly number[]
}

/** How a sequence ended, and how many of its tokens came from the cache. */
export interface SequenceEnd {
  readonly reason: 'endOfText' | 'length' | 'stopped'
  readonly cachedTokens: number
}

/** Counters and gauges of an engine. */
export interface EngineStats {
  /** Texts that run at a time, if those to come are as long as the present ones. */
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
  /** How that was chosen; absent for encoder-decoders. */
  readonly context?: ContextChoice
  /** Texts at a time while the memory holds them; absent for encoder-decoders. */
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
   * the base model. Throws a sentence that names the tensor when it does not fit the model.
   */
  fitAdapter(adapter: PeftAdapter): Promise<FittedAdapter>
  /** Calls back after every step. */
  onStep(listener: () => void): void
  stats(): EngineStats
  /** Cancels what runs, waits for the step in flight and releases the model. */
  close(): Promise<void>
}
