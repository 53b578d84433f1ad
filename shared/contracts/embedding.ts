import { failure } from '#shared/errors.ts'

/** An image to embed or to classify. */
export interface ImageItem {
  /** The key of its file in object storage, which exists until the request ends. */
  readonly key: string
  /** The field of the request that holds the image, for error messages. */
  readonly path: string
}

/** Texts, token ids of the model's own vocabulary, or images to embed. */
export interface EmbedInput {
  readonly task: 'embed'
  readonly items: readonly (string | readonly number[] | ImageItem)[]
  /** The prefix to apply to texts. */
  readonly role: 'query' | 'passage' | 'none'
  /** The task that the request names; models without tasks report it as ignored. */
  readonly taskName?: string
  /** Keeps this many leading dimensions and normalizes again; null keeps all. */
  readonly dimensions: number | null
  /** Keeps this many tokens of each item; when absent, an item beyond the context is refused. */
  readonly tokensMax?: number | 'context'
  readonly truncationSide?: TruncationSide
}

/** The side of an input at which tokens are dropped; the right one, its end, if absent. */
export type TruncationSide = 'left' | 'right'

/** Texts, or token ids of the model's own vocabulary, to embed as weights of tokens. */
export interface SparseInput extends Pick<EmbedInput, 'role' | 'tokensMax' | 'truncationSide'> {
  readonly task: 'sparse'
  readonly items: readonly (string | readonly number[])[]
}

/** Texts to embed as a vector of each of their tokens. */
export interface MultiVectorInput extends Pick<EmbedInput, 'dimensions'> {
  readonly task: 'multi-vector'
  readonly items: readonly string[]
  readonly role: 'query' | 'passage'
  /**
   * Whether texts are cut to the length that the model reads; otherwise longer texts are refused.
   */
  readonly isCut: boolean
}

/** Relevance of documents to a query, by a cross-encoder or the vectors of their tokens. */
export interface RerankInput {
  readonly task: 'rerank'
  readonly query: string
  /** One for each document, instead of `query`. */
  readonly queries?: readonly string[]
  readonly documents: readonly string[]
  /** Whether scores are from 0 to 1, the default, instead of the logits of the model. */
  readonly isActivated?: boolean
  /** Whether documents are cut to fit beside the query, the default, instead of refused. */
  readonly isCut?: boolean
  readonly truncationSide?: TruncationSide
}

/** Probabilities of a classifier's labels. */
export interface ClassifyInput {
  readonly task: 'classify'
  /** Texts, token ids of the model's own vocabulary, or images. */
  readonly items: readonly (string | readonly number[] | ImageItem)[]
  /**
   * Keeps this many tokens of each item. `split` reads a text in parts and gives each label
   * its highest probability. When absent, an item beyond the context is refused.
   */
  readonly tokensMax?: number | 'context' | 'split'
  readonly truncationSide?: TruncationSide
  /** Whether the model's markers are added to the texts. */
  readonly hasMarkers: boolean
  /** Whether the answer has probabilities instead of the logits of the model. */
  readonly isActivated: boolean
  /** Classifies by labels from the request instead of the labels of the model. */
  readonly zeroShot?: {
    readonly labels: readonly string[]
    /** For each label the hypothesis about a text. */
    readonly hypotheses: readonly string[]
    /** Whether several labels may hold at once. */
    readonly isMultiLabel: boolean
  }
}

/** The inputs of an embedding queue. */
export type EmbeddingInput =
  | EmbedInput
  | SparseInput
  | MultiVectorInput
  | RerankInput
  | ClassifyInput

/** The results of an embedding queue. */
export type EmbeddingResult =
  | {
      readonly task: 'embed'
      /** One vector per item, base64 of contiguous little-endian float32. */
      readonly vectors: readonly string[]
      readonly dimensions: number
    }
  | {
      readonly task: 'sparse'
      /** For each item the token ids with a weight, and the weights: base64, little-endian. */
      readonly vectors: readonly {
        /** Contiguous uint32, ascending. */
        readonly indices: string
        /** Contiguous float32, of the same count. */
        readonly values: string
      }[]
    }
  | {
      readonly task: 'multi-vector'
      /** For each item its vectors one after another, base64 of little-endian float32. */
      readonly matrices: readonly string[]
      /** Values of one vector. */
      readonly width: number
    }
  | {
      readonly task: 'rerank'
      /**
       * Relevance in document order: from 0 to 1 for a cross-encoder, the sum of the similarities
       * of the query's tokens for a multi-vector model.
       */
      readonly scores: readonly number[]
    }
  | {
      readonly task: 'classify'
      readonly labels: readonly string[]
      /** For each item the probability of each label. */
      readonly probabilities: readonly (readonly number[])[]
    }

/** The most weights of tokens in one answer: about 20 MB of JSON. */
export const SPARSE_VALUES_MAX = 500_000

/** The most vector values in one answer: two documents of 8,192 tokens with 128 values each. */
export const MULTI_VECTOR_VALUES_MAX = 2 ** 21

/** The most pairs of a text and a label in one request. */
export const PAIRS_MAX = 2048

/** The most probabilities in one answer: about 2 MB of JSON. */
const PROBABILITIES_MAX = 100_000

/** Throws 400 when the answer to a request would have too many probabilities. */
export function checkProbabilityCount(items: number, labels: number): void {
  if (items * labels <= PROBABILITIES_MAX) return
  throw failure.invalidRequest(
    `Invalid 'input': ${items} texts have ${items * labels} probabilities with the ${labels} labels of this model, of ${PROBABILITIES_MAX} that one answer may have. Please send at most ${Math.floor(PROBABILITIES_MAX / labels)} texts.`,
    { param: 'input', code: 'array_above_max_length' },
  )
}
