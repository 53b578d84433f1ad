/** Texts (or token ids of the model's own vocabulary) to embed. */
export interface EmbedInput {
  readonly task: 'embed'
  readonly items: readonly (string | readonly number[])[]
  /** Which prefix of the catalogue applies. */
  readonly role: 'query' | 'passage' | 'none'
  /** Keep this many leading dimensions and normalize again; null keeps all. */
  readonly dimensions: number | null
  /** Keep this many leading tokens of each item; if absent, an item beyond the context is refused. */
  readonly tokensMax?: number | 'context'
}

/** Relevance of documents to a query by a cross-encoder. */
export interface RerankInput {
  readonly task: 'rerank'
  readonly query: string
  readonly documents: readonly string[]
}

/** What a queue of embeddings is asked. */
export type EmbeddingInput = EmbedInput | RerankInput

/** What a queue of embeddings answers. */
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
