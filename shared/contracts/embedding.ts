/** Texts (or token ids of the model's own vocabulary) to embed. */
export interface EmbedInput {
  readonly task: 'embed'
  readonly items: readonly (string | readonly number[])[]
  /** The catalogue prefix to apply. */
  readonly role: 'query' | 'passage' | 'none'
  /** Keeps this many leading dimensions and normalizes again; null keeps all. */
  readonly dimensions: number | null
  /**
   * Keeps this many leading tokens of each item; when absent, an item beyond the context is
   * refused.
   */
  readonly tokensMax?: number | 'context'
}

/** Relevance of documents to a query by a cross-encoder. */
export interface RerankInput {
  readonly task: 'rerank'
  readonly query: string
  /** One for each document, instead of `query`. */
  readonly queries?: readonly string[]
  readonly documents: readonly string[]
}

/** Probabilities of a classifier's labels. */
export interface ClassifyInput {
  readonly task: 'classify'
  readonly texts: readonly string[]
  /**
   * A text beyond the context is refused, or cut, or read in parts of which each label has the
   * highest probability.
   */
  readonly excess: 'refuse' | 'cut' | 'split'
}

/** The inputs of an embedding queue. */
export type EmbeddingInput = EmbedInput | RerankInput | ClassifyInput

/** The results of an embedding queue. */
export type EmbeddingResult =
  | {
      readonly task: 'embed'
      /** One vector per item, base64 of contiguous little-endian float32. */
      readonly vectors: readonly string[]
      readonly dimensions: number
    }
  | {
      readonly task: 'rerank'
      /** Relevance from 0 to 1, in document order. */
      readonly scores: readonly number[]
    }
  | {
      readonly task: 'classify'
      readonly labels: readonly string[]
      /** For each text the probability of each label. */
      readonly probabilities: readonly (readonly number[])[]
    }
