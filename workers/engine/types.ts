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

/** One text to continue. */
export interface SequenceRequest {
  readonly promptTokenIds: readonly number[]
  /** Tokens generated before the sequence moved here; the sampler continues after them. */
  readonly generatedTokenIds: readonly number[]
  /** In total, counting `generatedTokenIds`. */
  readonly maxNewTokens: number
  readonly sampler: TokenSampler
  readonly endTokenIds: ReadonlySet<number>
  /** Prefixes are shared only between sequences of one scope. */
  readonly cacheScope: string
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
  readonly contextLength: number
  readonly vocabSize: number
  /** How the model's cache is written; see docs/models.md. */
  readonly cachePath: 'in place' | 'rewritten' | 'growing'
  /** Continues a text. Rejects with `CancelledError` at once when the signal aborts. */
  run(request: SequenceRequest, options: { readonly signal: AbortSignal }): Promise<SequenceEnd>
  /** Calls back after every step. */
  onStep(listener: () => void): void
  stats(): EngineStats
  /** Cancels what runs, waits for the step in flight and releases the model. */
  close(): Promise<void>
}
