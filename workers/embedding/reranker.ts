import type { TruncationSide } from '#shared/contracts/embedding.ts'
import { failure, type ServiceError } from '#shared/errors.ts'
import { closeOnFailure } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Tokenizer } from '#workers/text/tokenizer.ts'

import type { EncodedText } from './encoder-batch.ts'
import { createPairReader } from './pair-input.ts'
import { truncate } from './read-input.ts'
import { type ClassifierOptions, openSequenceClassifier } from './sequence-classifier.ts'

/** The handling of a document that does not fit beside its query. */
export interface DocumentCut {
  /** Whether it is cut instead of refused. */
  readonly isCut: boolean
  readonly side?: TruncationSide | undefined
}

/** A loaded model that reads a query and a document together. */
export interface Reranker {
  readonly contextLength: number
  /**
   * A pair with the model's own markers. A long document is cut, as is usual for these models,
   * unless `cut` says otherwise.
   */
  encodePair(query: string, document: string, cut?: DocumentCut): EncodedText
  /** The relevance of a pair as a logit: its sigmoid is from 0 to 1. */
  logit(pair: EncodedText, signal: AbortSignal): Promise<number>
  readonly waitingCount: number
  close(): Promise<void>
}

// A query may take at most this share of the context; otherwise no part of the document would be
// read.
const QUERY_SHARE = 0.5

/** Loads a `…ForSequenceClassification` export with one label. Throws `ModelLoadError`. */
export async function openReranker(options: ClassifierOptions): Promise<Reranker> {
  const classifier = await openSequenceClassifier(options)
  return closeOnFailure(classifier, async () => {
    const { contextLength, tokenizer, files, labelCount } = classifier
    // The meaning of several logits is undefined.
    if (labelCount !== 1) {
      throw new ModelLoadError(
        files.modelFile,
        `a cross-encoder must have one label, not ${labelCount}`,
      )
    }
    return {
      contextLength,
      encodePair: createPairEncoder(tokenizer, contextLength),
      async logit(pair, signal) {
        const [logit = Number.NaN] = await classifier.logits(pair, signal)
        return logit
      },
      get waitingCount() {
        return classifier.waitingCount
      },
      close: () => classifier.close(),
    }
  })
}

/** Builds pairs with the markers of the model. */
function createPairEncoder(tokenizer: Tokenizer, contextLength: number): Reranker['encodePair'] {
  const { room, encode, join } = createPairReader(tokenizer, contextLength)
  return (query, document, { isCut, side } = { isCut: true }) => {
    const queryIds = encode(query)
    if (queryIds.length > room * QUERY_SHARE) {
      throw failure.invalidRequest(
        `The query has ${queryIds.length} tokens; this model reads at most ${Math.floor(room * QUERY_SHARE)}.`,
        { param: 'query', code: 'context_length_exceeded' },
      )
    }
    const documentIds = encode(document, side)
    const roomLeft = room - queryIds.length
    if (!isCut && documentIds.length > roomLeft) throw documentTooLong(roomLeft)
    return join(queryIds, truncate(documentIds, roomLeft, side))
  }
}

/** The refusal of a document that may not be cut. */
export function documentTooLong(room: number): ServiceError {
  return failure.invalidRequest(
    `A document has more than the ${room} tokens that this model reads beside the query. Please send shorter ones, or allow their truncation.`,
    { param: 'documents', code: 'context_length_exceeded' },
  )
}
